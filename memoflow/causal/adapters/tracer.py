"""A log as it is written, and the cursor that says what caused what."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from memoflow.canonical import JSON, Digester
from memoflow.causal.adapters.calls import Terms, call_record
from memoflow.causal.adapters.correlation import Pair, correlate
from memoflow.causal.adapters.seen import Seen, SeenCall
from memoflow.causal.classes import ClassRule
from memoflow.causal.ctag import ActionClass, Domain, encode
from memoflow.causal.findings import Finding
from memoflow.causal.record import Actor, CausalRecord
from memoflow.identity import new_id

__all__ = ["Tracer"]

_HOST: Final = Actor(kind="host", name="memoflow")
_AGENT: Final = Actor(kind="agent", name="agent")


class Tracer:
    """Writes a log as things happen, and knows what the next thing will be caused by. Not thread-safe.

    Args:
        agent: who acts, unless the terms of a call say otherwise.
        host: who joins parallel branches.
        clock: nanoseconds.
        make_id: ids of records.
        classes: how calls are classified.
        digester: makes the digests.
        payloads: whether arguments and results stand in the records; see `call_record`.
    """

    def __init__(
        self,
        agent: Actor = _AGENT,
        *,
        host: Actor = _HOST,
        clock: Callable[[], int] = time.time_ns,
        make_id: Callable[[], str] = new_id,
        classes: Sequence[ClassRule] = (),
        digester: Digester | None = None,
        payloads: bool = False,
    ) -> None:
        self.agent, self.host = agent, host
        self.records: list[CausalRecord] = []
        self.problems: list[Finding] = []
        self.cursor: str | None = None
        self._clock, self._make_id = clock, make_id
        self._how: dict[str, Any] = {"classes": classes, "digester": digester, "payloads": payloads}

    def event(
        self,
        actor: Actor,
        action: str,
        *,
        permitted_by: str,
        object: JSON = None,
        domain: Domain = Domain.UNKNOWN,
        action_class: ActionClass = ActionClass.NONE,
        joins: Iterable[str] = (),
        id: str | None = None,
    ) -> CausalRecord:
        """Record what is no call: a request of a user, an approval, a join. It is caused by the cursor."""
        record = CausalRecord(
            id=id or self._make_id(),
            timestamp=self._clock(),
            actor=actor,
            action=action,
            object=object,
            permitted_by=permitted_by,
            parent_cause=self.cursor,
            joins=tuple(joins),
            ctag=encode(domain, action_class, parent=self.cursor),
        )
        return self._append(record)

    def turn(self, seen: Seen, terms: Callable[[SeenCall], Terms]) -> tuple[CausalRecord, ...]:
        """Record the calls of one turn, with their results, after the fact.

        Calls that stand side by side have the same parent, each on a branch of its own; where there are
        several, a record of the host joins the branches, and what comes next is caused by that.
        """
        pairs, orphans = correlate(seen)
        parent = self.cursor
        records = tuple(self._call(pair, terms(pair.call), parent) for pair in pairs)
        if len(records) > 1:
            self.cursor = parent
            branches = [record.id for record in records]
            self.event(
                self.host, "join", permitted_by=parent or branches[0], joins=branches, domain=Domain.SERVICE
            )
        if orphans:
            self.problems += [problem.finding(self.cursor or "") for problem in orphans]
        return records

    def _call(self, pair: Pair, terms: Terms, parent: str | None) -> CausalRecord:
        id = self._make_id()
        record = call_record(
            pair.call,
            pair.result,
            terms,
            id=id,
            timestamp=self._clock(),
            actor=self.agent,
            parent=parent,
            **self._how,
        )
        self.problems += [problem.finding(id) for problem in pair.problems]
        return self._append(record)

    def _append(self, record: CausalRecord) -> CausalRecord:
        self.records.append(record)
        self.cursor = record.id
        return record
