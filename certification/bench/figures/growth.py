"""Throughput on a ledger with very many invocations beside an empty one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from certification.bench.peers import Peer, load_peer
from certification.bench.report import Figure, at_least
from certification.bench.seeding import seed
from certification.bench.site import DatabaseKind, Site
from certification.bench.timing import Samples, interleave, ratio

__all__ = ["measure"]

CALLERS = 64


def measure(site: Site) -> Iterator[Figure]:
    """On each database, at a tenth of the size and at the whole."""
    for kind in site.kinds:
        yield from _measure(site, kind)


def _measure(site: Site, kind: DatabaseKind) -> Iterator[Figure]:
    size = site.pick(50_000, 2_000_000)
    empty, full = site.ledger(kind), site.ledger(kind)
    with load_peer(full, "--put", "1"):
        # What it is warmed up with is what is then written again.
        pass
    samples: dict[str, list[float]] = {}
    seeded = 0
    for part in (size // 10, size):
        seed(full, part - seeded)
        seeded = part
        # What the seeding left unwritten would be flushed with the first commits of the full ledger alone.
        os.sync()
        with load_peer(empty, "--put", "1") as before, load_peer(full) as after:
            found = _beside(before, after, site)
        samples |= {f"{name} at {part}": values for name, values in found.items()}
        value = ratio(found, "full", "empty")
    yield Figure(
        f"growth.{kind}",
        f"throughput with {size:,} invocations in the ledger / empty ledger, {kind}",
        value,
        "",
        at_least(0.9),
        samples,
        "activities a second, all on one account that has two journal rows for each; 'cpu' in ms of one",
    )


def _beside(empty: Peer, full: Peer, site: Site) -> Samples:
    total = site.pick(300, 3_000)
    cpu: Samples = {"empty cpu": [], "full cpu": []}

    def rate(name: str, peer: Peer) -> Callable[[], float]:
        def measure() -> float:
            spent = peer.ask(callers=CALLERS, total=total)
            cpu[f"{name} cpu"].append(spent["cpu"] / total * 1e3)
            return total / spent["seconds"]

        return measure

    return interleave(site.pick(3, 9), {"empty": rate("empty", empty), "full": rate("full", full)}) | cpu
