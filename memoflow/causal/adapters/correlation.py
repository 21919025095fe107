"""Which result belongs to which call, and what does not go together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from memoflow.causal.adapters.seen import Seen, SeenCall, SeenResult
from memoflow.causal.codes import MEANINGS, Code
from memoflow.causal.findings import Finding

__all__ = ["Pair", "Problem", "correlate"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something about calls and results that does not go together.

    Attributes:
        code: which rule of correlation.
        message: a sentence; it names ids of the provider, never content.
    """

    code: Code
    message: str

    def finding(self, record_id: str) -> Finding:
        """The problem as a finding about the record that stands for the call, or before the result."""
        return Finding(self.code.value, MEANINGS[self.code].severity, record_id, self.message)


@dataclass(frozen=True, slots=True)
class Pair:
    """A call with its result, if there is exactly one that can be its, and what is wrong with it."""

    call: SeenCall
    result: SeenResult | None
    problems: tuple[Problem, ...]


def correlate(seen: Seen) -> tuple[tuple[Pair, ...], tuple[Problem, ...]]:
    """Every call with its result and problems, and the problems of results that belong to no call."""
    by_id: dict[str, list[SeenResult]] = {}
    for result in seen.results:
        by_id.setdefault(result.call_id or "", []).append(result)
    counts = Counter(call.call_id for call in seen.calls)
    pairs = tuple(_pair(call, by_id.get(call.call_id or "", []), counts[call.call_id]) for call in seen.calls)
    return pairs, tuple(_orphans(by_id, counts.keys() - {None}))


def _pair(call: SeenCall, results: list[SeenResult], calls: int) -> Pair:
    if call.call_id is None or call.name is None:
        lacking = "id" if call.call_id is None else "name"
        return Pair(
            call, None, (Problem(Code.CALL_UNREADABLE, f"A call has no {lacking} that can be read."),)
        )
    given = [call.result] if call.result is not None else results
    problems = tuple(_problems(call, given, calls))
    single = given[0] if len(given) == 1 and calls == 1 else None
    return Pair(call, None if any(p.code == Code.RESULT_MISMATCHED for p in problems) else single, problems)


def _problems(call: SeenCall, results: list[SeenResult], calls: int) -> Iterator[Problem]:
    name = repr(call.call_id)[:80]
    if calls > 1:
        yield Problem(
            Code.CALL_DUPLICATE, f"{calls} calls have the id {name}; none of their results is assigned."
        )
    if not results:
        yield Problem(Code.CALL_UNANSWERED, f"The call {name} has no result.")
    if len(results) > 1:
        yield Problem(Code.RESULT_DUPLICATE, f"The call {name} has {len(results)} results; none is assigned.")
    for kind in {result.kind for result in results}:
        if call.result_kind not in (None, kind):
            yield Problem(
                Code.RESULT_MISMATCHED, f"The call {name} needs a {call.result_kind} and has another result."
            )


def _orphans(by_id: dict[str, list[SeenResult]], called: set[str | None]) -> Iterator[Problem]:
    for call_id, results in by_id.items():
        if call_id not in called:
            shown = repr(call_id)[:80] if call_id else "none"
            yield Problem(
                Code.RESULT_UNMATCHED, f"{len(results)} result(s) name a call that is not there (id {shown})."
            )
