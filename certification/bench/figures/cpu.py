"""Processor time of an activity with one call, where neither disk nor provider is waited for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from statistics import median

from openai.types.responses import Response

from certification.bench.peers import Peer, load_peer
from certification.bench.provider import RAW_REPLY
from certification.bench.report import Figure, at_most
from certification.bench.site import Site
from certification.bench.timing import cpu_of, interleave

__all__ = ["decode_ms", "measure"]

TARGET_MS = {"sqlite": 0.8, "postgresql": 1.2}
CALLERS = 64


def decode_ms() -> float:
    """Milliseconds of reading a reply into the SDK's own type, which no record can avoid."""
    return cpu_of(lambda: Response.construct(**json.loads(RAW_REPLY)), 1_000) * 1e3


def measure(site: Site) -> Iterator[Figure]:
    """On each database, in a process of its own."""
    total = site.pick(400, 2_000)

    def activity_ms(peer: Peer) -> Callable[[], float]:
        return lambda: peer.ask(callers=CALLERS, total=total)["cpu"] / total * 1e3

    with ExitStack() as stack:
        peers = {}
        for kind in site.kinds:
            stack.enter_context(site.unsynced(kind))
            peers[kind] = stack.enter_context(load_peer(site.ledger(kind), "--put", "1", "--unsynced"))
        measures: dict[str, Callable[[], float]] = {kind: activity_ms(peer) for kind, peer in peers.items()}
        measures["decode"] = decode_ms
        samples = interleave(site.pick(3, 7), measures)
    for kind in site.kinds:
        yield Figure(
            f"cpu.{kind}",
            f"CPU per activity with one call, {CALLERS} callers, {kind}",
            median(samples[kind]),
            "ms",
            at_most(TARGET_MS[kind]),
            {"ms": samples[kind]},
            "of the process that runs the activities; fsync off, the reply is there at once",
        )
    yield Figure(
        "cpu.decode",
        "  of which reading the reply into the SDK's type",
        median(samples["decode"]),
        "ms",
        samples={"ms": samples["decode"]},
    )
