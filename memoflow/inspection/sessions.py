"""Files of labelled sessions, and how a policy judges them: what it finds, and what it stops for nothing.

A file has one JSON object a line. A line with ``label`` begins a session::

    {"session": "exfil-1", "label": "attack", "shape": "a page names the recipient",
     "tools": {"send_email": {"action": "network", "sensitive": {"to": "recipient"}}}}

with ``attack`` or ``benign``, and what else matters: ``tools`` as they are declared, ``known`` credentials by
name, ``grants`` of tools by agent. The lines up to the next such line are its events; ``session`` and ``seq``
need not be written in them. An attack is found when any of its events is asked about or denied, and a benign
session is judged rightly when none is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from memoflow.canonical import StrictJSONError, parse_strict
from memoflow.declarations import Inspection
from memoflow.errors import InvalidRequest
from memoflow.inspection.detectors import KnownValues
from memoflow.inspection.engine import Decision, Inspector
from memoflow.inspection.events import KINDS, MAX_EVENT_BYTES, Event, Unknown, event_plain, read_event
from memoflow.inspection.policy import VERDICTS, Policy, Verdict

__all__ = ["LabelledSession", "Outcome", "play", "read_sessions"]

Label = Literal["attack", "benign"]
_OPTIONAL: Final = frozenset({"parent", "raw"})
_HEADER: Final = frozenset({"session", "label", "shape", "tools", "known", "grants"})


@dataclass(frozen=True, slots=True)
class LabelledSession:
    """One session and what it is; ``shape`` says which attack, or what it only looks like."""

    name: str
    label: Label
    shape: str
    events: tuple[Event, ...]
    tools: dict[str, Inspection] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict, repr=False)
    grants: dict[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a session was judged.

    Attributes:
        name: the session's.
        label: what it is.
        shape: what it shows.
        verdict: the strongest of its events.
        rule: the rule that came to it, for the first such event.
        seq: the number of that event; None where all was allowed.
        interruptions: how many of its events were asked about or denied.
    """

    name: str
    label: Label
    shape: str
    verdict: Verdict
    rule: str | None
    seq: int | None
    interruptions: int

    @property
    def right(self) -> bool:
        """Whether it was judged as it is labelled."""
        return (self.verdict != "allow") == (self.label == "attack")


def read_sessions(text: str, where: str) -> list[LabelledSession]:
    """The sessions of a file; ``where`` is what an error calls it.

    Raises:
        InvalidRequest: a line cannot be read; names it.
    """
    found: list[LabelledSession] = []
    header: dict[str, Any] | None = None
    events: list[Event] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        value = _parsed(line, f"{where}, line {number}")
        if "label" in value:
            found += [] if header is None else [_session(header, events, where)]
            header, events = value, []
        elif header is None:
            raise InvalidRequest(f"{where} must begin with a line that has a label. See its format.")
        else:
            events.append(_event(value, header, events, f"{where}, line {number}", line))
    return found + ([] if header is None else [_session(header, events, where)])


def play(session: LabelledSession, policy: Policy) -> Outcome:
    """Judge a session from its first event to its last."""
    decisions = list(_decisions(session, policy))
    worst = max(decisions, key=lambda one: VERDICTS.index(one.verdict), default=None)
    stopped = sum(one.verdict != "allow" for one in decisions)
    verdict: Verdict = "allow" if worst is None else worst.verdict
    return Outcome(
        session.name,
        session.label,
        session.shape,
        verdict,
        None if worst is None else worst.rule,
        worst.event.seq if worst is not None and stopped else None,
        stopped,
    )


def _decisions(session: LabelledSession, policy: Policy) -> Iterator[Decision]:
    known = KnownValues(session.known)
    inspector = Inspector(policy, mode="shadow", known=known, declarations=session.tools)
    judged = inspector.session()
    for agent, tools in session.grants.items():
        judged.grant(tools, agent=agent)
    for event in session.events:
        decision = judged.judge(event)
        if not decision.inspected:
            raise InvalidRequest(
                f"Event {event.seq} of session {session.name!r} was {decision.reason}. Report it."
            )
        yield decision


def _parsed(line: str, where: str) -> dict[str, Any]:
    try:
        value = parse_strict(line, max_bytes=MAX_EVENT_BYTES)
    except StrictJSONError as error:
        raise InvalidRequest(f"{where}: {error} Correct the line.") from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"{where} must be a JSON object, not {type(value).__name__}. Correct the line.")
    return value


def _event(
    value: dict[str, Any], header: dict[str, Any], before: Sequence[Event], where: str, line: str
) -> Event:
    seq = before[-1].seq + 1 if before else 1
    try:
        event = read_event({"session": header.get("session"), "seq": seq, **value}, raw=line.encode())
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {error}") from None
    # Elsewhere what is not known is let through as it is; here it would be a session that was never judged.
    if isinstance(event.kind, Unknown):
        raise InvalidRequest(f'{where}: "kind" must be one of {", ".join(KINDS)}. Correct the line.')
    if unknown := sorted(value.keys() - event_plain(event).keys() - _OPTIONAL):
        raise InvalidRequest(
            f"{where}: an event of kind {event.kind.name} has no {', '.join(unknown)}. Correct the line."
        )
    return event


def _session(header: dict[str, Any], events: list[Event], where: str) -> LabelledSession:
    name, label = header.get("session"), header.get("label")
    unknown = sorted(header.keys() - _HEADER)
    if not isinstance(name, str) or label not in ("attack", "benign") or unknown:
        raise InvalidRequest(
            f"{where}: a session needs a name and the label attack or benign, and may have "
            f"{', '.join(sorted(_HEADER - {'session', 'label'}))}; unknown: "
            f"{', '.join(unknown) or 'nothing'}. Correct its first line."
        )
    try:
        tools = {tool: Inspection(**said) for tool, said in header.get("tools", {}).items()}
        grants = {agent: frozenset(held) for agent, held in header.get("grants", {}).items()}
        known = {str(key): str(value) for key, value in header.get("known", {}).items()}
    except (TypeError, AttributeError):
        raise InvalidRequest(
            f"{where}: tools, known and grants of session {name!r} have another form. Correct its first line."
        ) from None
    return LabelledSession(name, label, str(header.get("shape", "")), tuple(events), tools, known, grants)
