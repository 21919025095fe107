"""The operator: sets limits, and decides about unknowns by what the provider and the tools wrote down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
from openai import OpenAI

from certification.crash.lines import Lines
from certification.crash.plan import ROOT, Round
from certification.crash.weather import Weather
from certification.crash.worker import open_runtime
from memoflow import Budget, Money, Runtime
from memoflow.openai import OpenAIResponses

__all__ = ["Operator"]

WHO = {"actor": "operator", "reason": "the other side was asked"}
Line = dict[str, Any]


class Operator:
    """Acts by the public API, at moments when no worker lives; limits may be set at any time.

    Args:
        url: the ledger.
        key: of its outputs.
        evidence: where the other sides write, and where decisions are noted.
        base_url: the provider.
        weather: the clock.
    """

    def __init__(self, url: str, key: str, evidence: Path, base_url: str, weather: Weather) -> None:
        self._url, self._key, self._weather = url, key, weather
        self._evidence = evidence
        self._decided = Lines(evidence / "operator.jsonl")
        self._base_url = base_url
        self.decisions = 0

    @contextmanager
    def opened(self) -> Iterator[Runtime]:
        """The ledger."""
        with open_runtime(self._url, self._key, self._weather, "operator") as runtime:
            yield runtime

    def prepare(self, round: Round) -> None:
        """The accounts of a round."""
        with self.opened() as runtime:
            runtime.budgets.put(ROOT, Budget(), soft=Budget(model_calls=50), period="hour")
            for path, dimension, amount in round.limits:
                runtime.budgets.put(path, _limit(dimension, amount))

    def change(self, of: Round, which: int, amount: float) -> None:
        """Raise or lower one limit while it is used."""
        path, dimension, limit = of.limits[which % len(of.limits)]
        with self.opened() as runtime:
            changed = _limit(dimension, round(limit * (0.5 + amount)))
            runtime.budgets.put(path, changed, actor="operator", reason="changed under load")

    def lift(self) -> None:
        """Take every limit away."""
        with self.opened() as runtime:
            for account in runtime.budgets.list(under=ROOT):
                runtime.budgets.put(account.path, Budget(), reason="the end of the campaign")

    def decide(self, what: Literal["nothing", "retrieved", "everything"]) -> int:
        """Decide about every unknown effect, and about requests as far as told; returns what is left."""
        with self.opened() as runtime:
            if what != "nothing":
                self._retrieve(runtime)
            if what == "everything":
                self._decide_requests(runtime)
            self._decide_effects(runtime)
            queue = runtime.reconcile.list()
            return len(queue.invocations) + len(queue.effects)

    def _retrieve(self, runtime: Runtime) -> None:
        with OpenAI(
            api_key="any", base_url=self._base_url, http_client=httpx2.Client(verify=False)
        ) as client:
            llm = OpenAIResponses(client)
            for attempted in runtime.reconcile.auto(llm.retrieve, llm.codec):
                if attempted.decision is not None:
                    self._note(attempted.decision)

    def _decide_requests(self, runtime: Runtime) -> None:
        seen = {
            (line["job"], line["attempt"], line["call"], line["round"]): line
            for line in _lines(self._evidence / "provider.jsonl")
        }
        for row in runtime.reconcile.list().invocations:
            call = json.loads(row.metadata or "{}")["call"]
            line = seen.get((row.run_id, row.attempt, call, row.round))
            # A request that was refused counts as a call.
            if line is None or not (line["performed"] or line["status"] == 429):
                evidence = "the provider's record has no generation for it"
                self._note(runtime.reconcile.release(row.id, evidence=evidence, **WHO))
                continue
            tokens_in, tokens_out = line["input_tokens"], line["output_tokens"]
            used = Budget(
                input_tokens=tokens_in,
                output_tokens=tokens_out,
                # A reply that was never heard could not ask for tools.
                tool_calls=0 if row.response_digest is None else line["asked"],
                cost=Money(1_000 * tokens_in + 2_000 * tokens_out),
            )
            evidence = "the provider's record of the request"
            self._note(runtime.reconcile.settle(row.id, used, evidence=evidence, **WHO))

    def _decide_effects(self, runtime: Runtime) -> None:
        done = {line["key"]: line for line in _lines(self._evidence / "tools.jsonl")}
        for effect in runtime.reconcile.list().effects:
            line = done.get(effect.idempotency_key or "")
            if line is None:
                evidence = "the tool's own record has nothing"
                self._note(runtime.reconcile.did_not_happen(effect.id, evidence=evidence, **WHO))
            else:
                result = {"item": line["item"], "nonce": line["nonce"]}
                self._note(runtime.reconcile.happened(effect.id, result=result, **WHO))

    def _note(self, decision: Any) -> None:
        self.decisions += 1
        self._decided.append(id=decision.id, target=decision.target_id, verdict=decision.verdict)


def _limit(dimension: str, amount: int) -> Budget:
    limit: dict[str, Any] = {dimension: Money(amount) if dimension == "cost" else amount}
    return Budget(**limit)


def _lines(path: Path) -> list[Line]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
