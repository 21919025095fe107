"""What inspection decided on the calls in a ledger: how often it interrupts, by which rules, which tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from memoflow.inspection.policy import Verdict
from memoflow.inspection.rulings import JUDGE_ID, Kept, kept_of
from memoflow.ledger.queries import EffectInfo
from memoflow.turn import Judgement

__all__ = ["InspectionReport", "PolicyTally", "RuleTally", "ToolTally", "share", "summed"]

# What no executor would have run.
_NOT_JUDGED: Final = frozenset({"PROVIDER_SIDE", "REFUSED"})


@dataclass(frozen=True, slots=True)
class RuleTally:
    """How often a rule decided; None is the policy's default, and what was not inspected."""

    rule: str | None
    verdict: Verdict
    calls: int
    tools: int


@dataclass(frozen=True, slots=True)
class ToolTally:
    """What was decided on the calls of one tool; ``interrupted`` is asked about, or denied."""

    tool_namespace: str
    tool_name: str
    calls: int
    asked: int
    denied: int
    not_inspected: int
    rate: str


@dataclass(frozen=True, slots=True)
class PolicyTally:
    """How many calls were judged by a policy, which is named by its digest."""

    policy: str
    calls: int


@dataclass(frozen=True, slots=True)
class InspectionReport:
    """What was decided on calls.

    Attributes:
        calls: those that were judged.
        shadow: those of them that were judged in shadow mode: nothing of it was done.
        unjudged: calls of tools on which inspection was not asked.
        asked, denied: what the policy came to, whether it was done or not.
        not_inspected: where looking failed.
        rate: asked and denied of all, as a decimal number with four places.
        rules: by how often they interrupted, most first.
        tools: by how many calls, most first.
        policies: by how many calls, most first.
    """

    calls: int
    shadow: int
    unjudged: int
    asked: int
    denied: int
    not_inspected: int
    rate: str
    rules: tuple[RuleTally, ...]
    tools: tuple[ToolTally, ...]
    policies: tuple[PolicyTally, ...]


@dataclass(slots=True)
class _Seen:
    """What was decided on the calls of one tool."""

    kept: list[Kept] = field(default_factory=list)

    def count(self, verdict: Verdict) -> int:
        return sum(one.verdict == verdict for one in self.kept)

    @property
    def blind(self) -> int:
        return sum(not one.inspected for one in self.kept)


def summed(effects: Iterable[EffectInfo]) -> InspectionReport:
    """Sum up what was decided on calls, by their effects, newest first.

    Each call counts once, however often it was executed: by its last execution.
    """
    tools: dict[tuple[str, str], _Seen] = {}
    unjudged = 0
    for effect in _last_executions(effects):
        kept = _kept(effect)
        if kept is None:
            unjudged += 1
        else:
            tools.setdefault((effect.tool_namespace, effect.tool_name), _Seen()).kept.append(kept)
    every = _Seen([one for seen in tools.values() for one in seen.kept])
    asked, denied = every.count("ask"), every.count("deny")
    return InspectionReport(
        calls=len(every.kept),
        shadow=sum(one.shadow for one in every.kept),
        unjudged=unjudged,
        asked=asked,
        denied=denied,
        not_inspected=every.blind,
        rate=share(asked + denied, len(every.kept)),
        rules=tuple(sorted(_rules(tools), key=lambda one: (-one.calls, one.rule or ""))),
        tools=tuple(sorted(_tools(tools), key=lambda one: (-one.calls, one.tool_name, one.tool_namespace))),
        policies=tuple(_policies(every.kept)),
    )


def _last_executions(effects: Iterable[EffectInfo]) -> Iterator[EffectInfo]:
    again: set[tuple[str, int]] = set()
    for effect in effects:
        call = effect.invocation_id, effect.ordinal
        if effect.state not in _NOT_JUDGED and call not in again:
            yield effect
        if effect.execution > 1:
            again.add(call)


def share(part: int, whole: int) -> str:
    """A part of a whole as a decimal number with four places."""
    return str((Decimal(part) / Decimal(whole or 1)).quantize(Decimal("0.0001")))


def _kept(effect: EffectInfo) -> Kept | None:
    rulings = Judgement.parse(effect.judgement).rulings
    return next((kept_of(one) for one in rulings if one.judge == JUDGE_ID), None)


def _policies(kept: Iterable[Kept]) -> Iterator[PolicyTally]:
    return (PolicyTally(*pair) for pair in Counter(one.policy for one in kept).most_common())


def _rules(tools: dict[tuple[str, str], _Seen]) -> Iterator[RuleTally]:
    pairs = Counter(
        (one.rule, one.verdict, tool)
        for tool, seen in tools.items()
        for one in seen.kept
        if one.verdict != "allow"
    )
    for rule, verdict in dict.fromkeys((rule, verdict) for rule, verdict, _ in pairs):
        counts = [count for (name, said, _), count in pairs.items() if (name, said) == (rule, verdict)]
        yield RuleTally(rule, verdict, sum(counts), len(counts))


def _tools(tools: dict[tuple[str, str], _Seen]) -> Iterator[ToolTally]:
    for (namespace, name), seen in tools.items():
        asked, denied, calls = seen.count("ask"), seen.count("deny"), len(seen.kept)
        yield ToolTally(namespace, name, calls, asked, denied, seen.blind, share(asked + denied, calls))
