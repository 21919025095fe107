"""Small translations between what the protocol knows and what is recorded or shown."""

from __future__ import annotations

from typing import Final

from memoflow.identity import new_id
from memoflow.ledger.effects import NewEffect
from memoflow.ledger.invocations import Binding, Started
from memoflow.ledger.replay import EffectRecord, RoundRecord
from memoflow.providers.base import PreparedRequest
from memoflow.turn.call import Call
from memoflow.turn.outcome import Verdict
from memoflow.turn.plan import Plan
from memoflow.turn.results import InvocationRecord

__all__ = ["FRESH", "as_recorded", "bind", "live_invocation", "restored_invocation", "storable"]

FRESH: Final = "FRESH"
"""The state of an effect that this attempt has just begun; never stored."""


def bind(call: Call, prepared: PreparedRequest) -> Binding | None:
    """What the call's replay key stands for: the whole initial request, the API, and the executors."""
    if call.replay_key is None:
        return None
    digester = call.attempt.digester
    executors = [] if call.toolset is None else call.toolset.digest_entries()
    return Binding(
        turn_id=new_id(),
        replay_key=call.replay_key,
        api=f"{call.codec.provider}/{call.codec.api}",
        request_digest=digester.json(prepared.body),
        executors_digest=digester.json([list(entry) for entry in executors]),
    )


def as_recorded(effect: NewEffect, call: Call) -> EffectRecord:
    """An effect begun a moment ago, in the form in which restored ones come."""
    return EffectRecord(
        effect.id,
        call.attempt.fence.attempt,
        effect.ordinal,
        effect.execution,
        effect.tool_namespace,
        effect.tool_name,
        effect.tool_version,
        effect.effect_class,
        FRESH,
        effect.reason,
        effect.idempotency_key,
        effect.arguments_digest,
        None,
        effect.judgement,
        None,
    )


def storable(text: str | None) -> str | None:
    """A provider's own name for a model or tier, as far as it can be stored."""
    return None if text is None else text.replace("\0", "")[:256]


def live_invocation(verdict: Verdict, id: str, number: int, plan: Plan, started: Started) -> InvocationRecord:
    """A request that was just made, for the caller."""
    use = verdict.usage
    return InvocationRecord(
        id=id,
        round=number,
        restored=False,
        state=verdict.state,
        finish_reason=verdict.finish_reason,
        input_tokens=None if use is None else use.input_tokens,
        output_tokens=None if use is None else use.output_tokens,
        cost=None if use is None else use.cost,
        input_basis="none" if plan.input is None else plan.input.basis,
        alerts=started.alerts,
    )


def restored_invocation(record: RoundRecord) -> InvocationRecord:
    """A request of an earlier attempt, for the caller."""
    return InvocationRecord(
        id=record.id,
        round=record.round,
        restored=True,
        state=record.state,
        finish_reason=record.finish_reason,
        input_tokens=record.input_tokens,
        output_tokens=record.output_tokens,
        cost=record.cost,
        input_basis=record.input_basis,
    )
