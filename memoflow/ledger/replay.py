"""Reading back what a replay key has recorded: its binding, its rounds, its effects."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from memoflow.ledger import schema as s
from memoflow.ledger.outputs import OutputRow

__all__ = ["EffectRecord", "RoundRecord", "TurnRecord", "read_turn"]


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """One execution of a call, with its encrypted result if it has one."""

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
    result: OutputRow | None = field(repr=False)


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
    turn = connection.execute(
        select(s.turns).where(s.turns.c.activity_id == activity_id, s.turns.c.replay_key == replay_key)
    ).one_or_none()
    if turn is None:
        return None
    effects = _effects(connection, turn.id)
    rounds = connection.execute(
        select(
            s.invocations,
            s.reservations.c.state.label("reservation"),
            s.reservations.c.reserved_tool_calls,
            s.reservations.c.actual_tool_calls,
            *_output_columns(),
        )
        .join(s.reservations, s.reservations.c.id == s.invocations.c.id)
        .outerjoin(s.outputs, (s.outputs.c.owner_id == s.invocations.c.id) & (s.outputs.c.kind == "reply"))
        .where(s.invocations.c.turn_id == turn.id)
        .order_by(s.invocations.c.round, s.invocations.c.id)
    )
    return TurnRecord(
        turn.id,
        turn.api,
        turn.request_digest,
        turn.executors_digest,
        tuple(_round(row, tuple(effects[row.id])) for row in rounds),
    )


def _effects(connection: Connection, turn_id: str) -> dict[str, list[EffectRecord]]:
    found: dict[str, list[EffectRecord]] = defaultdict(list)
    rows = connection.execute(
        select(s.effects, *_output_columns())
        .join(s.invocations, s.invocations.c.id == s.effects.c.invocation_id)
        .outerjoin(s.outputs, (s.outputs.c.owner_id == s.effects.c.id) & (s.outputs.c.kind == "result"))
        .where(s.invocations.c.turn_id == turn_id, s.effects.c.kind != "hosted")
        .order_by(s.effects.c.ordinal, s.effects.c.execution)
    )
    for row in rows:
        found[row.invocation_id].append(
            EffectRecord(
                row.id,
                row.attempt,
                row.ordinal,
                row.execution,
                row.tool_namespace,
                row.tool_name,
                row.tool_version,
                row.effect_class,
                row.state,
                row.reason,
                row.idempotency_key,
                row.arguments_digest,
                row.result_digest,
                _output(row),
            )
        )
    return found


def _output_columns() -> list[Any]:
    o = s.outputs.c
    return [
        o.owner_id.label("o_owner_id"),
        o.kind.label("o_kind"),
        o.binding.label("o_binding"),
        o.key_id.label("o_key_id"),
        o.nonce.label("o_nonce"),
        o.ciphertext.label("o_ciphertext"),
    ]


def _output(row: Any) -> OutputRow | None:
    if row.o_owner_id is None:
        return None
    return OutputRow(row.o_owner_id, row.o_kind, row.o_binding, row.o_key_id, row.o_nonce, row.o_ciphertext)


def _round(row: Any, effects: tuple[EffectRecord, ...]) -> RoundRecord:
    return RoundRecord(
        row.id,
        row.attempt,
        row.round,
        row.state,
        row.reason,
        row.reservation,
        row.reserved_tool_calls,
        row.reserved_tool_calls if row.actual_tool_calls is None else row.actual_tool_calls,
        row.finish_reason,
        row.input_tokens,
        row.output_tokens,
        row.cost,
        row.input_basis,
        row.response_digest,
        _output(row),
        effects,
    )
