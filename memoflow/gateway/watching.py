"""Inspection of what passes: the results of tools in a request, and the calls in its reply.

In ``shadow`` mode everything passes as it is, and what would have been decided is recorded. In ``enforce``
mode a reply with a call that is denied is refused whole; of a stream nothing of the call is passed on, and it
ends in an error. What cannot be read, and what cannot be known, is not passed off as looked at.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from memoflow.canonical import Digester
from memoflow.declarations import at_least
from memoflow.gateway.refusals import Refusal
from memoflow.inspection import Decision, Event, Inspector, Session, ToolCall, audit_record
from memoflow.inspection.calls import API, Holder, Out, calls_in_reply, continues, history, results_in_reply
from memoflow.inspection.events import Kind
from memoflow.ledger.inspections import InspectionRow

__all__ = ["Memory", "Watch", "Watcher"]

_APIS: Final[dict[str, API]] = {"responses": "responses", "chat.completions": "chat", "messages": "messages"}
_REMEMBERED: Final = 512
_UNSEEN: Final = "history-not-seen"
_ASKED: Final = "The policy wants somebody to be asked, which nobody can be here. "
_WHAT_NOW: Final = (
    "The reply was charged, and its calls are not passed on. Whoever runs the gateway sees why with "
    "`memoflow gateway inspections` and the invocation's id."
)


class Memory:
    """The sessions of stored replies, by the digest of the provider's id; the latest of this process."""

    def __init__(self) -> None:
        self._snapshots: OrderedDict[str, Mapping[str, Any]] = OrderedDict()

    def keep(self, digest: str, snapshot: Mapping[str, Any]) -> None:
        """Keep what is known after a reply."""
        self._snapshots[digest] = snapshot
        while len(self._snapshots) > _REMEMBERED:
            self._snapshots.popitem(last=False)

    def find(self, digest: str) -> Mapping[str, Any] | None:
        """What was known after a reply, if it is still kept."""
        return self._snapshots.get(digest)


class Watcher:
    """Inspects requests for one gateway.

    Args:
        inspector: the policy, and what it knows.
        digester: makes the digests of arguments and ids.
    """

    def __init__(self, inspector: Inspector, digester: Digester) -> None:
        self._inspector = inspector
        self._digester = digester
        self._memory = Memory()

    def watch(self, api: str, body: Mapping[str, Any]) -> Watch | None:
        """Look at a request; None for an API that makes no calls. Takes processor time, so not in a loop."""
        kind = _APIS.get(api)
        if kind is None:
            return None
        before = continues(kind, body)
        session = self._inspector.session() if before is None else self._session_after(before)
        watch = Watch(kind, session, self._digester)
        watch.read(body)
        return watch

    def look_again(self, response_id: str, body: Mapping[str, Any] | None) -> Refusal | None:
        """Why a stored reply is not given when it is asked for again, if it is not; None if it is not read.

        Its calls are judged by what is known now, as if they were made after it.
        """
        return Watch("responses", self._session_after(response_id), self._digester).whole(body)

    def _session_after(self, response_id: str) -> Session:
        known = self._memory.find(self._digest(response_id))
        session = self._inspector.session(known)
        return session if known is not None else cast(Session, _Unseen(session, self._inspector))

    def remember(self, watch: Watch, response_id: str) -> None:
        """Keep the session of a reply that a later request may go on from without its history."""
        self._memory.keep(self._digest(response_id), watch.session.snapshot())

    def _digest(self, response_id: str) -> str:
        return self._digester.bytes(response_id.encode())


class _Unseen:
    """A session whose history was not seen: what its calls are made of is not known, so none just runs."""

    def __init__(self, session: Session, inspector: Inspector) -> None:
        self._session = session
        self._inspector = inspector

    @property
    def mode(self) -> str:
        return self._session.mode

    def snapshot(self) -> dict[str, Any]:
        return self._session.snapshot()

    def judge(self, event: Event) -> Decision:
        decision = self._session.judge(event)
        action = decision.signals.action
        acts = isinstance(event.kind, ToolCall) and (action is None or at_least(action, "side_effecting"))
        if not acts or decision.verdict != "allow":
            return decision
        effect = self._inspector.effect_of("ask")
        reason = f"[{_UNSEEN}] It goes on from a reply whose history was not seen here."
        return replace(decision, verdict="ask", effect=effect, rule=_UNSEEN, reason=reason)


class Watch:
    """One request and its reply, as they are looked at.

    Attributes:
        session: what is known.
        refusal: what the client is told instead of the reply, where it is refused.
    """

    def __init__(self, api: API, session: Session, digester: Digester) -> None:
        self.session = session
        self.refusal: Refusal | None = None
        self._api = api
        self._digester = digester
        self._rows: list[InspectionRow] = []
        self._holder: Holder | None = None
        self._seq = 0

    @property
    def enforces(self) -> bool:
        """Whether decisions are meant seriously."""
        return self.session.mode == "enforce"

    def rows(self) -> tuple[InspectionRow, ...]:
        """What was decided, for the ledger: every call, and of the rest what was not simply allowed."""
        return tuple(self._rows)

    def read(self, body: Mapping[str, Any]) -> None:
        """Look at what the request says of the session so far."""
        for kind in history(self._api, body):
            self._note(self._judge(kind))

    # A reply that comes whole

    def whole(self, body: Mapping[str, Any] | None) -> Refusal | None:
        """Look at a whole reply, None if it cannot be read; returns why it is refused, if it is."""
        if body is None:
            self._problem("not_inspected", "NOT_READ")
            return self._refused("NOT_READ", None)
        for result in results_in_reply(self._api, body):
            self._note(self._judge(result))
        for call in calls_in_reply(self._api, body):
            decision = self._judge(call.event())
            self._note(decision)
            if decision.effect != "run" and not call.ran:
                self._refused("DENIED" if decision.effect == "refuse" else "ASK", decision)
        return self.refusal

    # A reply that is streamed

    def feed(self, chunk: bytes) -> bytes:
        """What may be passed on of a stream now."""
        if self._holder is None:
            self._holder = Holder(self._api, self.session, seq=self._seq + 1)
        return self._take(self._holder.feed(chunk))

    def end(self) -> bytes:
        """The stream has ended, well or not; what may still be passed on. It ends once."""
        holder, self._holder = self._holder, None
        return b"" if holder is None else self._take(holder.finish())

    def _take(self, out: Out) -> bytes:
        for decision in out.decisions:
            self._note(decision)
        if out.problem is not None:
            self._problem("incomplete" if out.problem == "INCOMPLETE" else "not_inspected", out.problem)
        if out.refusal is not None:
            if out.refusal.decision is None:
                self._problem("incomplete" if out.refusal.code == "INCOMPLETE" else "deny", out.refusal.code)
            self._refused(out.refusal.code, out.refusal.decision)
        return out.release

    # Noting

    def _judge(self, kind: Kind) -> Decision:
        self._seq += 1
        return self.session.judge(Event("gateway", self._seq, kind))

    def _note(self, decision: Decision) -> None:
        if (
            not isinstance(decision.event.kind, ToolCall)
            and decision.inspected
            and decision.verdict == "allow"
        ):
            return
        record = audit_record(decision, self._digester)
        self._rows.append(
            InspectionRow(
                decision.mode, record["decision"], decision.effect, decision.rule, json.dumps(record)
            )
        )

    def _problem(self, decision: str, code: str) -> None:
        effect = "refuse" if self.enforces else "run"
        record = json.dumps({"event": "reply", "decision": decision, "problem": code})
        self._rows.append(InspectionRow(self.session.mode, decision, effect, None, record))

    def _refused(self, code: str, decision: Decision | None) -> Refusal | None:
        if not self.enforces or self.refusal is not None:
            return self.refusal
        rule = None if decision is None else decision.rule
        said = decision.reason if decision is not None and decision.reason else f"[{code}]"
        asked = "" if decision is None or decision.verdict != "ask" else _ASKED
        message = f"Refused by inspection: {_sentence(said)} {asked}{_WHAT_NOW}"
        figures = {"reason": code, **({} if rule is None else {"rule": rule})}
        self.refusal = Refusal(502, "inspection_refused", message, False, figures=figures)
        return self.refusal


def _sentence(text: str) -> str:
    return text if text.endswith((".", "]")) else f"{text}."
