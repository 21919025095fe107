"""What the record says about the calls of a restored reply."""

from __future__ import annotations

from typing import Final

from memoflow.errors import OutcomeUnknown, ReplayMismatch, ResultNotRetained, ToolVersionMismatch
from memoflow.ledger.places import result_place
from memoflow.ledger.replay import EffectRecord, TurnRecord
from memoflow.tools import approval_text, refusal_text, review_required_text
from memoflow.turn.call import Call
from memoflow.turn.calls import JUDGED, PlannedCall
from memoflow.turn.judging import Judgement
from memoflow.turn.results import ToolResult

__all__ = ["AWAITING", "NOT_RECORDED", "check_versions", "denial_text", "recall"]

AWAITING: Final = "AWAITING_APPROVAL"
NOT_RECORDED: Final = "NOT_RECORDED"
_AGAIN: Final = frozenset({"TOOL_ERROR", "ATTEMPT_LOST", "NOT_STARTED", "NOT_PERFORMED", "TOOL_TIMEOUT"})


def check_versions(call: Call, record: TurnRecord) -> None:
    """Refuse to finish a recorded call under another version of its tool.

    Raises:
        ToolVersionMismatch: naming the recorded and the registered version.
    """
    for effect in (effect for round in record.rounds for effect in round.effects):
        tool = (
            None
            if call.toolset is None
            else call.toolset.lookup(effect.tool_namespace or None, effect.tool_name)
        )
        if tool is not None and tool.version != effect.tool_version and _unfinished(effect):
            raise ToolVersionMismatch(
                tool=effect.tool_name, recorded=effect.tool_version, registered=tool.version
            )


def _unfinished(effect: EffectRecord) -> bool:
    return effect.state in (AWAITING, "STARTED", "OUTCOME_UNKNOWN") or _may_run_again(effect)


def _may_run_again(effect: EffectRecord) -> bool:
    return effect.state == "FAILED" and effect.reason in _AGAIN


def recall(call: Call, planned: PlannedCall, effects: list[EffectRecord]) -> ToolResult | EffectRecord:
    """What the record says about a call: its result, or the execution that waits or is followed by another.

    Raises:
        OutcomeUnknown: it may have run, and its tool did not declare that it can run again.
        ResultNotRetained: it ran, and its result is gone.
        ReplayMismatch: the record holds other arguments.
    """
    last = effects[-1]
    if planned.refusal is not None and last.state == "REFUSED":
        return planned.result("REFUSED", planned.refusal.text, restored=True)
    # Also where it was run and would be refused now: the model must not be told that nothing happened.
    if last.idempotency_key != planned.key:
        raise ReplayMismatch(
            replay_key=call.replay_key or "",
            component="arguments",
            recorded=last.arguments_digest or "refused",
            given=planned.digest or "refused",
        )
    if last.state == AWAITING or _may_run_again(last):
        return last
    if last.state == "STARTED" or (last.state, last.effect_class) == ("OUTCOME_UNKNOWN", "at_most_once"):
        # STARTED: it was begun by this attempt, and how it ended could not be recorded.
        raise OutcomeUnknown(kind="effect", id=last.id, reason=last.reason or NOT_RECORDED)
    if last.state == "OUTCOME_UNKNOWN":
        return last
    if last.state == "DENIED":
        return planned.result(last.state, denial_text(last.reason, last.judgement, last.told), restored=True)
    return planned.result(last.state, _recorded_output(call, planned, last), restored=True)


def denial_text(reason: str | None, judgement: str | None, told: str | None) -> str:
    """What the model is told of a call that was denied, again whenever it is restored."""
    if reason == JUDGED:
        return review_required_text(Judgement.parse(judgement).findings)
    return approval_text(reason or "", told)


def _recorded_output(call: Call, planned: PlannedCall, effect: EffectRecord) -> str:
    if effect.result is None and effect.reason == "DECIDED":
        return refusal_text(
            "RESULT_NOT_RETAINED", "The tool ran and its result is not known. Do not call it again."
        )
    assert planned.key is not None
    assert planned.digest is not None
    place = result_place(planned.key, planned.digest)
    try:
        return call.attempt.vault.open(
            call.attempt.identity,
            effect.result,
            place=place.place,
            binding=place.binding,
            what=f"result of effect {effect.id}",
        ).decode()
    except ResultNotRetained as gone:
        raise gone.with_digest(effect.result_digest) from None
