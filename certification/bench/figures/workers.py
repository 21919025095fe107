"""Several worker processes on PostgreSQL beside one: on one hot budget, and on budgets that share nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from certification.bench.peers import Peer, load_peer
from certification.bench.report import Figure, at_least
from certification.bench.site import Site
from certification.bench.timing import interleave, ratio, seconds_of

__all__ = ["measure"]

WORKERS = 4
CALLERS = 64
BUDGETS = 64


def measure(site: Site) -> Iterator[Figure]:
    """Each process has callers of its own."""
    total = site.pick(100, 2_000)

    def rate(peers: Sequence[Peer], budgets: int) -> Callable[[], float]:
        def work() -> None:
            for peer in peers:
                peer.send(callers=CALLERS, total=total, budgets=budgets)
            for peer in peers:
                peer.receive()

        return lambda: len(peers) * total / seconds_of(work)

    url = site.ledger("postgresql")
    with ExitStack() as stack:
        first = stack.enter_context(load_peer(url, "--put", str(BUDGETS)))
        peers = [first, *[stack.enter_context(load_peer(url)) for _ in range(WORKERS - 1)]]
        samples = interleave(
            site.pick(1, 7),
            {
                "hot 1": rate(peers[:1], 1),
                f"hot {WORKERS}": rate(peers, 1),
                "apart 1": rate(peers[:1], BUDGETS),
                f"apart {WORKERS}": rate(peers, BUDGETS),
            },
        )
    for name, text in (("hot", "one hot budget"), ("apart", f"{BUDGETS} budgets")):
        own = {key: values for key, values in samples.items() if key.startswith(name)}
        yield Figure(
            f"workers.{name}",
            f"{text} on PostgreSQL: activities of {WORKERS} processes / of one",
            ratio(samples, f"{name} {WORKERS}", f"{name} 1"),
            "",
            at_least(0.9),
            own,
            f"a second, all processes together, {CALLERS} callers each; it must not collapse",
        )
