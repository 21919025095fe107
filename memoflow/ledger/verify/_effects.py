"""Tool effects: the order of executions of one call, and what each state must hold."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, select

from memoflow.ledger.schema import activities, effects, invocations
from memoflow.ledger.verify._finding import Finding, stream

__all__ = ["effect_findings"]

RUN_AGAIN: Final = frozenset({"SUPERSEDED", "FAILED"})
"""The states after which the same call may have been run once more."""


NEVER_RUN: Final = frozenset({"AWAITING_APPROVAL", "DENIED"})
"""The states of a call that nobody has permitted."""


def effect_findings(connection: Connection, namespace: str | None) -> Iterator[Finding]:
    """What does not hold for tool effects."""
    rows = stream(connection, _effects(namespace))
    for _, executions in groupby(rows, lambda row: (row.invocation_id, row.ordinal)):
        yield from _check_call(list(executions))


def _effects(namespace: str | None) -> Select[Any]:
    query = (
        select(
            effects,
            invocations.c.namespace.label("invocation_namespace"),
            invocations.c.activity_id.label("invocation_activity"),
            activities.c.state.label("activity"),
            activities.c.attempt.label("last_attempt"),
        )
        .join(invocations, invocations.c.id == effects.c.invocation_id)
        .join(activities, activities.c.id == effects.c.activity_id)
        .order_by(effects.c.invocation_id, effects.c.ordinal, effects.c.execution)
    )
    either = (effects.c.namespace == namespace) | (invocations.c.namespace == namespace)
    return query if namespace is None else query.where(either)


def _check_call(executions: list[Row[Any]]) -> Iterator[Finding]:
    for number, effect in enumerate(executions, 1):
        if effect.execution != number:
            message = (
                f"Effect {effect.id} is execution {effect.execution} of call {effect.ordinal} of invocation "
                f"{effect.invocation_id}; execution {number} is missing."
            )
            yield Finding("EXECUTIONS_DIFFER", "effects", effect.id, message)
        if number < len(executions) and effect.state not in RUN_AGAIN:
            message = (
                f"Effect {effect.id} is {effect.state}, and the same call was run again as execution "
                f"{executions[number].execution}."
            )
            yield Finding("RUN_AGAIN", "effects", effect.id, message)
        yield from _check_effect(effect)


def _check_effect(effect: Row[Any]) -> Iterator[Finding]:
    if effect.state in NEVER_RUN and (effect.result_digest is not None or effect.result_bytes is not None):
        message = f"Effect {effect.id} is {effect.state}, so nothing ran, and it has a result all the same."
        yield Finding("RESULT_OF_NOTHING", "effects", effect.id, message)
    if effect.state == "DONE" and effect.result_digest is None:
        message = f"Effect {effect.id} is DONE without the digest of its result."
        yield Finding("RESULT_DIGEST_MISSING", "effects", effect.id, message)
    if effect.state == "STARTED" and effect.activity == "COMPLETED":
        message = f"Effect {effect.id} is STARTED, but its activity is COMPLETED and nobody will end it."
        yield Finding("LEFT_OPEN", "effects", effect.id, message)
    if not 1 <= effect.attempt <= effect.last_attempt:
        message = (
            f"Effect {effect.id} belongs to attempt {effect.attempt}, but its activity has had "
            f"{effect.last_attempt}."
        )
        yield Finding("ATTEMPT_UNKNOWN", "effects", effect.id, message)
    if effect.namespace != effect.invocation_namespace or effect.activity_id != effect.invocation_activity:
        message = (
            f"Effect {effect.id} is of activity {effect.activity_id} in namespace {effect.namespace!r}, its "
            f"invocation of {effect.invocation_activity} in {effect.invocation_namespace!r}."
        )
        yield Finding("NAMESPACE_DIFFERS", "effects", effect.id, message)
