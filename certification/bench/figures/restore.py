"""Processor time of restoring a recorded call."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from statistics import median

from certification.bench.figures.cpu import decode_ms
from certification.bench.load import PER_CALL, account, put_accounts, unsynced
from certification.bench.provider import ready, request
from certification.bench.report import Figure, at_most
from certification.bench.site import DatabaseKind, Site
from certification.bench.timing import interleave
from memoflow import KeyRing, Runtime

__all__ = ["measure"]


class AgainError(Exception):
    """Ends an attempt that has restored its calls, so that a further one can do it again."""


def measure(site: Site) -> Iterator[Figure]:
    """On each database."""
    for kind in site.kinds:
        yield _measure(site, kind)


def _measure(site: Site, kind: DatabaseKind) -> Figure:
    count, llm = site.pick(50, 500), ready()
    with Runtime.open(site.ledger(kind), keys=KeyRing.generate()) as runtime:
        unsynced(runtime)
        put_accounts(runtime, 1)
        spent: list[float] = []

        @runtime.activity(version="v1", budget=account(0))
        def answer() -> None:
            start = time.process_time()
            for number in range(count):
                llm.run(request(number), budget=PER_CALL, replay_key=f"call {number}")
            spent.append((time.process_time() - start) / count * 1e3)
            raise AgainError

        def attempt() -> float:
            with suppress(AgainError):
                answer.run(workflow_id="bench", run_id="1")
            return spent[-1]

        # The first attempt makes the calls, all others restore them.
        attempt()
        samples = interleave(site.pick(3, 15), {"restore": attempt, "decode": decode_ms})
    return Figure(
        f"restore.{kind}",
        f"CPU of restoring a recorded call, without decoding the response, {kind}",
        median(a - b for a, b in zip(samples["restore"], samples["decode"], strict=True)),
        "ms",
        at_most(0.25),
        samples,
        "milliseconds of a call; 'decode' is reading the reply into the SDK's type",
    )
