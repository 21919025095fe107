"""Durable commits, counted in the log of the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from certification.bench.counting import Counter, PostgresCounter, counter
from certification.bench.report import Figure, exactly
from certification.bench.site import DatabaseKind, Site
from memoflow import Budget, KeyRing, Runtime, tool
from memoflow.openai import OpenAIResponses
from memoflow.testing import SimulatedProvider, call, calls, text

__all__ = ["ROUNDS", "Calls", "measure"]

ROUNDS: Final = 5
EACH: Final = Budget(total_tokens=5_000, tool_calls=1)
REQUEST: Final = {"model": "gpt-test", "input": "Hello"}
Work = Callable[[OpenAIResponses], object]


@tool(version="v1", effect="read_only")
def look(n: int) -> int:
    """Look something up."""
    return n


def nothing(llm: OpenAIResponses) -> None:
    """An activity without calls."""


def plain(llm: OpenAIResponses) -> None:
    """One plain call."""
    llm.run(REQUEST, budget=EACH, replay_key="call")


def loop(llm: OpenAIResponses) -> None:
    """ROUNDS model calls with one tool call between one and the next."""
    llm.run_with_tools(
        REQUEST, [look], budget=EACH, continuation_budgets=[EACH] * (ROUNDS - 1), replay_key="call"
    )


class Calls:
    """A ledger, and activities in it whose commits are counted."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._keys = KeyRing.generate()
        with self._open() as runtime:
            runtime.budgets.put("acme", Budget(total_tokens=10**9, tool_calls=10**6))

    def _open(self) -> Runtime:
        return Runtime.open(self._url, keys=self._keys)

    def commits(self, count: Counter, times: int, work: Work, *script: Any) -> int:
        """Durable commits of so many activities that do this work; the writer is registered before."""
        llm = OpenAIResponses(SimulatedProvider(list(script) * times).client())
        with self._open() as runtime:

            @runtime.activity(version="v1", budget="acme")
            def activity(do: bool) -> None:
                if do:
                    work(llm)

            activity.run(False)
            count.mark()
            for _ in range(times):
                activity.run(True)
            return count.count()


def measure(site: Site) -> Iterator[Figure]:
    """On each database."""
    for kind in site.kinds:
        yield from _measure(kind, site.ledger(kind), site.pick(5, 20))


def _measure(kind: DatabaseKind, url: str, times: int) -> Iterator[Figure]:
    ledger, count = Calls(url), counter(url)
    asking = [calls(call("look", {"n": n})) for n in range(ROUNDS - 1)]
    kinds: dict[str, tuple[Work, list[Any]]] = {
        "activity": (nothing, []),
        "plain": (plain, [text("a")]),
        "loop": (loop, [*asking, text("Done.")]),
    }
    each: dict[str, float] = {}
    samples: dict[str, dict[str, list[float]]] = {}
    for name, (work, script) in kinds.items():
        before = _transactions(count)
        each[name] = ledger.commits(count, times, work, *script) / times
        samples[name] = {
            "durable commits of each": [each[name]],
            "activities": [times],
        }
        if isinstance(count, PostgresCounter):
            # Everything between opening the runtime and closing it, reads and one more activity included.
            samples[name]["xact_commit of all"] = [_transactions(count) - before]
    count.close()
    above = each["activity"]
    where = "commit frames in the WAL" if kind == "sqlite" else "commit records in the WAL"
    yield Figure(
        f"commits.plain.{kind}",
        f"durable commits of a plain call, {kind}",
        each["plain"] - above,
        "",
        exactly(2),
        samples["plain"],
        where,
    )
    yield Figure(
        f"commits.loop.{kind}",
        f"durable commits of {ROUNDS} model calls with a tool between, {kind}",
        each["loop"] - above,
        "",
        exactly(2 * ROUNDS),
        samples["loop"],
        f"{where}; 2 a model call. The N + 1 of the page would need a reply and the next "
        "reservation in one commit, which the tool between them does not allow",
    )
    yield Figure(
        f"commits.activity.{kind}",
        f"durable commits of an activity on top, {kind}",
        above,
        "",
        exactly(2),
        samples["activity"],
        where,
    )


def _transactions(count: Counter) -> int:
    return count.transactions() if isinstance(count, PostgresCounter) else 0
