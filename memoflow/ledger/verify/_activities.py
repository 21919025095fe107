"""Activities against their attempts."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Row, Select, select

from memoflow.ledger.schema import activities, attempts
from memoflow.ledger.verify._finding import Children, Finding, stream

__all__ = ["activity_findings"]


def activity_findings(connection: Connection, namespace: str | None) -> Iterator[Finding]:
    """What does not hold for activities and attempts."""
    tried = Children(stream(connection, _attempts(namespace)), attrgetter("activity_id"))
    for activity in stream(connection, _activities(namespace)):
        yield from _check(activity, list(tried.of(activity.id)))


def _activities(namespace: str | None) -> Select[Any]:
    query = select(activities).order_by(activities.c.id)
    return query if namespace is None else query.where(activities.c.namespace == namespace)


def _attempts(namespace: str | None) -> Select[Any]:
    query = (
        select(attempts)
        .join(activities, activities.c.id == attempts.c.activity_id)
        # The activity's column: the same order as the activities', whatever the index.
        .order_by(activities.c.id, attempts.c.number)
    )
    return query if namespace is None else query.where(activities.c.namespace == namespace)


def _check(activity: Row[Any], tried: list[Row[Any]]) -> Iterator[Finding]:
    numbers = [attempt.number for attempt in tried]
    if numbers != list(range(1, activity.attempt + 1)):
        message = (
            f"Activity {activity.id} is at attempt {activity.attempt}, its attempts are {_few(numbers)}."
        )
        yield Finding("ATTEMPTS_DIFFER", "activities", activity.id, message)
    for attempt in tried[:-1]:
        if attempt.state == "RUNNING":
            message = f"Attempt {attempt.number} of activity {activity.id} is RUNNING beside a later attempt."
            yield Finding("ATTEMPT_RUNNING", "attempts", attempt.id, message)
    if tried:
        yield from _check_state(activity, tried[-1])


def _few(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:20]))
    return f"{shown}, … ({len(numbers)})" if len(numbers) > 20 else shown or "none"


def _check_state(activity: Row[Any], last: Row[Any]) -> Iterator[Finding]:
    for state in ("RUNNING", "COMPLETED"):
        if (activity.state == state) != (last.state == state):
            message = f"Activity {activity.id} is {activity.state}, its last attempt is {last.state}."
            yield Finding("ACTIVITY_STATE", "activities", activity.id, message)
            return
    if activity.state == "COMPLETED" and activity.output_digest is None:
        message = f"Activity {activity.id} is COMPLETED without the digest of its output."
        yield Finding("OUTPUT_DIGEST_MISSING", "activities", activity.id, message)
