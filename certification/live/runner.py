"""Crosses the boundaries of a provider, each in an activity of its own, within one hard budget."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from certification.live.asking import Asker
from certification.live.boundaries import ACCOUNT, BOUNDARIES, CALLS, Boundary
from certification.live.evidence import Case, Evidence, Source
from certification.live.inputs import Inputs, check_endpoint
from certification.live.provider import Provider
from certification.live.refused import NotCertified, Refused
from certification.live.verifier import case_findings, evidence_findings
from certification.live.witness import Witness
from certification.live.writer import write_case, write_evidence
from memoflow import Budget, CallCancelled, Digester, KeyRing, MemoflowError, Runtime
from memoflow.identity import new_id
from memoflow.ledger.verify import verify

__all__ = ["TOKENS", "certify"]

TOKENS: Final = 4_000
"""What each call reserves and may use in all, unless told otherwise; models that think need some room."""


def certify(
    provider: Provider,
    inputs: Inputs,
    source: Source,
    *,
    tokens: int = TOKENS,
    database_url: str | None = None,
    tell: Callable[[str], object] = lambda line: None,
) -> Evidence:
    """Make the calls, and the evidence of them.

    Args:
        provider: whose SDK and API.
        inputs: see `certification.live.inputs`.
        source: what is run.
        tokens: most tokens of each call, input and output.
        database_url: a ledger with the current schema; a SQLite file that is removed afterwards if left out.
        tell: is given a line about each boundary.

    Raises:
        Refused: the requests would go elsewhere than the inputs say, or the ledger cannot be used.
        NotCertified: a boundary did not end as it must. Nothing further is asked, or paid, after that.
    """
    with Witness(provider.name) as witness, witness.client() as http, _ledger(database_url) as runtime:
        client = provider.connect(inputs.key, inputs.base_url, http)
        check_endpoint(provider, client.base_url, simulated=inputs.simulated)
        run = _Run(Asker(provider, inputs.model, provider.adapt(client), tokens), runtime, witness)
        cases = []
        for boundary in BOUNDARIES:
            cases.append(run.cross(boundary))
            tell(_told(cases[-1]))
        if found := runtime.ledger.database.read(lambda c: verify(c, runtime.namespace)):
            raise NotCertified(*(finding.message for finding in found))
        evidence = write_evidence(provider, inputs, source, runtime, cases)
    if evidence.simulated != inputs.simulated:
        raise NotCertified("Requests went elsewhere than the run was said to go.")
    if wrong := evidence_findings(evidence):
        raise NotCertified(*wrong)
    return evidence


@contextmanager
def _ledger(url: str | None) -> Iterator[Runtime]:
    """A runtime in a namespace of its own, whatever the environment configures for others."""
    with tempfile.TemporaryDirectory(prefix="memoflow-live-") as directory:
        try:
            runtime = Runtime.open(
                url or f"sqlite:///{directory}/ledger.db",
                namespace=f"live-{new_id()}",
                keys=KeyRing.generate(),
                digester=Digester(),
                worker="live",
            )
        except MemoflowError as error:
            raise Refused(f"The ledger cannot be used. {error}") from None
        with runtime:
            yield runtime


class _Run:
    def __init__(self, asker: Asker, runtime: Runtime, witness: Witness) -> None:
        self._asker, self._runtime, self._witness = asker, runtime, witness
        self._limit(ACCOUNT, CALLS)
        for boundary in BOUNDARIES:
            self._limit(boundary.account, len(boundary.endings))

    def _limit(self, account: str, calls: int) -> None:
        limits = Budget(total_tokens=calls * self._asker.tokens, model_calls=calls)
        # Strict, so that what is reserved is a true bound and not an estimate.
        self._runtime.budgets.put(account, limits, strict_input=True, actor="certification")

    def cross(self, boundary: Boundary) -> Case:
        """Cross one boundary; returns how it ended, which is as it must."""
        before, started = len(self._witness.exchanges), time.monotonic_ns()
        self._ask(boundary)
        duration_ms = (time.monotonic_ns() - started) // 1_000_000
        case = write_case(self._runtime, boundary, duration_ms, self._witness.exchanges[before:])
        if wrong := case_findings(boundary, case):
            raise NotCertified(*wrong)
        return case

    def _ask(self, boundary: Boundary) -> None:
        @self._runtime.activity(version="v1", name=boundary.name, budget=boundary.account)
        def activity() -> None:
            self._asker.ask(boundary.name)

        try:
            activity.run(workflow_id="certification", run_id=boundary.name)
        except CallCancelled:
            # Whether the ledger has it right is what the case is about.
            pass
        except MemoflowError as error:
            raise NotCertified(f"{boundary.name}: {type(error).__name__}: {error}") from None
        except Exception as error:
            # Whatever else it is, its text may hold a request or a reply.
            raise NotCertified(f"{boundary.name}: the run broke down ({type(error).__name__}).") from None


def _told(case: Case) -> str:
    states = ", then ".join(f"{call.state} / {call.reservation}" for call in case.calls)
    return f"{case.boundary:<13} {case.duration_ms:>7,} ms  {states}"
