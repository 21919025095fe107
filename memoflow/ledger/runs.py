"""Looking at runs: their activities, and the attempts of each."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, case, func, select

from memoflow.ledger import schema as s
from memoflow.ledger.queries import Filter, Page

__all__ = ["ActivityInfo", "AttemptInfo", "RunSummary", "list_activities", "list_runs"]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run and how far its activities are. Times are UTC microseconds."""

    workflow_id: str
    run_id: str
    activities: int
    completed: int
    running: int
    attempts: int
    created_at: int
    last_created_at: int


@dataclass(frozen=True, slots=True)
class AttemptInfo:
    """One try at an activity. Times are UTC microseconds."""

    number: int
    worker: str
    state: str
    error_type: str | None
    claimed_at: int
    ended_at: int | None


@dataclass(frozen=True, slots=True)
class ActivityInfo:
    """An activity with its attempts, oldest first. Times are UTC microseconds.

    ``lease_over`` tells that it is RUNNING and its lease ran out, so that the next attempt may begin.
    """

    id: str
    workflow_id: str
    run_id: str
    activity_id: str
    activity_type: str
    activity_version: str
    state: str
    lease_expires_at: int
    lease_over: bool
    input_digest: str
    output_digest: str | None
    created_at: int
    attempts: tuple[AttemptInfo, ...]


_a = s.activities.c


def list_runs(connection: Connection, namespace: str, only: Filter) -> Page[RunSummary]:
    """Runs, newest first. ``state`` names one in which at least one activity of the run is."""
    first = func.min(_a.id).label("first")
    query = (
        select(
            _a.workflow_id,
            _a.run_id,
            first,
            func.count().label("activities"),
            _count("COMPLETED").label("completed"),
            _count("RUNNING").label("running"),
            func.sum(_a.attempt).label("attempts"),
            func.min(_a.created_at).label("created_at"),
            func.max(_a.created_at).label("last_created_at"),
        )
        .where(_a.namespace == namespace)
        .group_by(_a.workflow_id, _a.run_id)
    )
    for column, value in ((_a.workflow_id, only.workflow_id), (_a.run_id, only.run_id)):
        if value is not None:
            query = query.where(column == value)
    if only.state is not None:
        query = query.having(_count(only.state) > 0)
    if only.since is not None:
        query = query.having(func.min(_a.created_at) >= only.since)
    if only.until is not None:
        query = query.having(func.min(_a.created_at) < only.until)
    if only.after is not None:
        query = query.having(func.min(_a.id) < only.after)
    rows = connection.execute(query.order_by(first.desc()).limit(only.limit + 1)).all()
    items = rows[: only.limit]
    return Page(tuple(map(_summary, items)), items[-1].first if len(rows) > only.limit else None)


def _count(state: str) -> Any:
    return func.sum(case((_a.state == state, 1), else_=0))


def _summary(row: Any) -> RunSummary:
    return RunSummary(
        row.workflow_id,
        row.run_id,
        row.activities,
        int(row.completed),
        int(row.running),
        int(row.attempts),
        row.created_at,
        row.last_created_at,
    )


def list_activities(
    connection: Connection, namespace: str, workflow_id: str, run_id: str, now: int
) -> list[ActivityInfo]:
    """The activities of a run, oldest first, each with its attempts; empty if there is no such run."""
    query = select(s.activities).where(
        _a.namespace == namespace, _a.workflow_id == workflow_id, _a.run_id == run_id
    )
    rows = connection.execute(query.order_by(_a.id)).all()
    attempts: dict[str, list[AttemptInfo]] = defaultdict(list)
    tries = (
        select(s.attempts)
        .join(s.activities, _a.id == s.attempts.c.activity_id)
        .where(_a.namespace == namespace, _a.workflow_id == workflow_id, _a.run_id == run_id)
        .order_by(s.attempts.c.number)
    )
    for row in connection.execute(tries):
        attempts[row.activity_id].append(
            AttemptInfo(row.number, row.worker, row.state, row.error_type, row.claimed_at, row.ended_at)
        )
    return [_activity(row, attempts[row.id], now) for row in rows]


def _activity(row: Any, attempts: list[AttemptInfo], now: int) -> ActivityInfo:
    return ActivityInfo(
        row.id,
        row.workflow_id,
        row.run_id,
        row.activity_id,
        row.activity_type,
        row.activity_version,
        row.state,
        row.lease_expires_at,
        row.state == "RUNNING" and row.lease_expires_at <= now,
        row.input_digest,
        row.output_digest,
        row.created_at,
        tuple(attempts),
    )
