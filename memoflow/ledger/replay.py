"""Reading back what a replay key has recorded: its binding, its rounds, its effects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Connection, func, literal_column, select

from memoflow.errors import PendingApproval
from memoflow.identity import tool_label
from memoflow.ledger import schema as s
from memoflow.ledger.outputs import OutputRow
from memoflow.ledger.statements import Sets
from memoflow.periods import to_datetime

__all__ = ["EffectRecord", "RoundRecord", "TurnRecord", "pending_approvals", "read_turn"]


@dataclass(frozen=True, slots=True, eq=False)
class EffectRecord:
    """One execution of a call, with its encrypted result if it has one.

    ``told`` is what an approver who denied it shared with the model.
    """

    id: str
    attempt: int
    ordinal: int
    execution: int
    tool_namespace: str
    tool_name: str
    tool_version: str
    effect_class: str
    state: str
    reason: str | None
    idempotency_key: str | None
    arguments_digest: str | None
    result_digest: str | None
    judgement: str | None
    result: OutputRow | None = field(repr=False)
    told: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RoundRecord:
    """One invocation of a turn with its reservation's state, its encrypted reply and its effects.

    ``tool_calls`` are those it reserved, ``charged`` those it was charged (what is still held counts).
    """

    id: str
    attempt: int
    round: int
    state: str
    reason: str | None
    reservation: str
    tool_calls: int
    charged: int
    finish_reason: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost: int | None
    input_basis: str
    response_digest: str | None
    reply: OutputRow | None = field(repr=False)
    effects: tuple[EffectRecord, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TurnRecord:
    """What is recorded under a replay key."""

    id: str
    api: str
    request_digest: str
    executors_digest: str
    rounds: tuple[RoundRecord, ...]

    def finished(self, number: int) -> RoundRecord | None:
        """The invocation of a round whose reply is recorded, or None."""
        for record in self.rounds:
            if record.round == number and record.state == "SUCCEEDED":
                return record
        return None


def read_turn(connection: Connection, activity_id: str, replay_key: str) -> TurnRecord | None:
    """The record of a replay key of one activity, or None if it was never used."""
    sets = Sets(connection)
    turns = sets.select(_TURN, (s.turns.c.activity_id, s.turns.c.replay_key), [(activity_id, replay_key)])
    if not turns:
        return None
    ((turn_id, *binding),) = turns
    effects: dict[str, list[EffectRecord]] = defaultdict(list)
    for kind, invocation_id, *cells in sets.select(_EFFECTS, (_i.turn_id,), [turn_id]):
        if kind != "hosted":
            fields = [*cells[:_OF_EFFECT], _output(cells[_OF_EFFECT:])]
            effects[invocation_id].append(EffectRecord(*fields))
    _add_told(connection, effects)
    rounds: list[RoundRecord] = []
    for row in sorted(sets.select(_ROUNDS, (_i.turn_id,), [turn_id]), key=itemgetter(2, 0)):
        fields = [*row[:_OF_ROUND], _output(row[_OF_ROUND:]), _in_order(effects[row[0]])]
        rounds.append(RoundRecord(*fields))
    fields = [turn_id, *binding, tuple(rounds)]
    return TurnRecord(*fields)


def pending_approvals(connection: Connection, ids: Sequence[str]) -> tuple[PendingApproval, ...]:
    """What `ApprovalRequired` says about these requests, in their order."""
    rows = {
        row.id: row
        for row in connection.execute(select(s.approval_requests).where(s.approval_requests.c.id.in_(ids)))
    }
    return tuple(
        PendingApproval(
            id,
            tool_label(row.tool_namespace, row.tool_name),
            row.tool_version,
            row.arguments_digest,
            to_datetime(row.expires_at),
        )
        for id, row in ((id, rows[id]) for id in ids)
    )


def _add_told(connection: Connection, effects: dict[str, list[EffectRecord]]) -> None:
    """Put what approvers shared beside what they denied; seldom anything, so it is not read with the rest."""
    denied = [e.id for of_call in effects.values() for e in of_call if e.reason == "APPROVAL_DENIED"]
    if not denied:
        return
    query = select(_d.id, _d.reason).where(_d.id.in_(denied), _d.shared == 1)
    told = {row.id: row.reason for row in connection.execute(query)}
    for of_call in effects.values():
        of_call[:] = [replace(e, told=told[e.id]) if e.id in told else e for e in of_call]


def _in_order(effects: list[EffectRecord]) -> tuple[EffectRecord, ...]:
    return tuple(sorted(effects, key=lambda effect: (effect.ordinal, effect.execution)))


def _output(cells: Sequence[Any]) -> OutputRow | None:
    return None if cells[0] is None else OutputRow(*cells)


# The columns stand in the order of the records' fields.
_t, _i, _r, _e, _o = (table.c for table in (s.turns, s.invocations, s.reservations, s.effects, s.outputs))
_d = s.approval_decisions.c
_OUTPUT: Final = (_o.owner_id, _o.kind, _o.binding, _o.key_id, _o.nonce, _o.ciphertext)
_OF_ROUND: Final = 14
_OF_EFFECT: Final = 14
_TURN: Final = select(_t.id, _t.api, _t.request_digest, _t.executors_digest)
_ROUNDS: Final = (
    select(
        *(_i.id, _i.attempt, _i.round, _i.state, _i.reason, _r.state, _r.reserved_tool_calls),
        func.coalesce(_r.actual_tool_calls, _r.reserved_tool_calls),
        *(_i.finish_reason, _i.input_tokens, _i.output_tokens, _i.cost, _i.input_basis, _i.response_digest),
        *_OUTPUT,
    )
    .join(s.reservations, _r.id == _i.id)
    .outerjoin(s.outputs, (_o.owner_id == _i.id) & (_o.kind == literal_column("'reply'")))
)
_EFFECTS: Final = (
    select(
        *(_e.kind, _e.invocation_id),
        *(_e.id, _e.attempt, _e.ordinal, _e.execution, _e.tool_namespace, _e.tool_name, _e.tool_version),
        *(_e.effect_class, _e.state, _e.reason, _e.idempotency_key, _e.arguments_digest, _e.result_digest),
        _e.judgement,
        *_OUTPUT,
    )
    .join(s.invocations, _i.id == _e.invocation_id)
    .outerjoin(s.outputs, (_o.owner_id == _e.id) & (_o.kind == literal_column("'result'")))
)
