"""Decisions as the words that are kept with a tool effect, and back.

A code says what was decided: ``deny:<rule>``, ``ask:<rule>``, ``allow``, or ``not_inspected:<verdict>`` where
looking failed; in shadow mode each begins with ``shadow:``. Notes say what it rests on. Neither holds any of
the text: rules and detectors are named by the policy and here, lengths and numbers are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from memoflow.inspection.engine import ENGINE_VERSION, Decision
from memoflow.inspection.findings import Finding
from memoflow.inspection.policy import VERDICTS, Verdict
from memoflow.turn import Ruling

__all__ = ["JUDGE_ID", "Kept", "code_of", "kept_of", "notes_of", "word"]

JUDGE_ID: Final = "memoflow.inspection"

MAX_NOTES: Final = 32
"""Most notes of one decision; those on more findings, rules and hosts are left out."""

_SHADOW: Final = "shadow:"
_FAILED: Final = "not_inspected"
_OTHER: Final = re.compile("[^A-Za-z0-9_.:-]")
_WORD: Final = 100
_BY_SAID: Final[dict[str, Verdict]] = {"permit": "allow", "approval": "ask", "refuse": "deny"}


@dataclass(frozen=True, slots=True)
class Kept:
    """What was decided on a call, as its effect says.

    Attributes:
        shadow: whether it was only told.
        inspected: False where looking failed.
        verdict: what the policy came to.
        rule: the rule that decided; None for the default, and where looking failed.
        policy: digest of the policy.
    """

    shadow: bool
    inspected: bool
    verdict: Verdict
    rule: str | None
    policy: str


def code_of(decision: Decision) -> str:
    """The code of a decision."""
    said = [decision.verdict, *([] if decision.rule is None else [word(decision.rule)])]
    parts = said if decision.inspected else [_FAILED, decision.verdict]
    return (_SHADOW if decision.mode == "shadow" else "") + ":".join(parts)


def kept_of(ruling: Ruling) -> Kept:
    """What a code of this judge says. One that is none of them is a judge that failed."""
    code = ruling.codes[0] if ruling.codes else ""
    verdict, _, rule = code.removeprefix(_SHADOW).partition(":")
    known: dict[str, Verdict] = {one: one for one in VERDICTS}
    if verdict in known:
        shadow = code.startswith(_SHADOW)
        return Kept(shadow, True, known[verdict], rule or None, ruling.policy_digest)
    failed = known.get(rule, _BY_SAID[ruling.said])
    return Kept(code.startswith(_SHADOW), False, failed, None, ruling.policy_digest)


def notes_of(decision: Decision, *, hosts: bool, latency_us: int) -> tuple[str, ...]:
    """What a decision rests on.

    Args:
        decision: the decision.
        hosts: whether hosts are named. A name can be made of the data that it carries away.
        latency_us: time that judging took, in microseconds.
    """
    return tuple(_notes(decision, hosts, latency_us))[:MAX_NOTES]


def _notes(decision: Decision, hosts: bool, latency_us: int) -> Iterator[str]:
    signals, mark = decision.signals, decision.mark
    yield f"engine:{ENGINE_VERSION}"
    yield f"latency_us:{latency_us}"
    if not decision.inspected:
        yield word(f"failed:{decision.reason or ''}")
    if signals.action is not None:
        yield f"action:{signals.action}"
        yield f"score:{signals.score}"
    if mark is not None:
        yield f"taint:{mark.source.origin}:{mark.seq}"
    for flag in ("cut", "taint_full", "escalated"):
        if getattr(decision, flag):
            yield flag
    if decision.hosts:
        yield f"hosts:{len(decision.hosts)}"
    yield from (word(f"rule:{rule}") for rule in decision.matched if rule != decision.rule)
    yield from map(_finding, decision.findings)
    if hosts:
        yield from (word(f"host:{host.name}") for host in decision.hosts)


def _finding(one: Finding) -> str:
    how = one.view.replace("+", ".")
    parts = [one.detector, one.severity, str(one.confidence), str(one.length), how, one.label]
    return word("finding:" + ":".join(filter(None, parts)))


def word(text: str) -> str:
    """A text as a word of a verdict: what was changed or cut ends with a digest, so two stay two."""
    plain = _OTHER.sub("-", text)
    if plain == text and len(text) <= _WORD:
        return text
    return f"{plain[:_WORD]}-{sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}"
