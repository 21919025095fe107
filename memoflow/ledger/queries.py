"""Looking at invocations and effects. What leaves here are records, newest first, in pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, func, literal, or_, select

from memoflow.budget import Amounts
from memoflow.errors import InvalidRequest
from memoflow.ledger import schema as s
from memoflow.ledger.account_queries import currencies

__all__ = [
    "EffectInfo",
    "Filter",
    "InvocationInfo",
    "Page",
    "charged_to",
    "effect_info",
    "every_effect",
    "find_effect",
    "find_invocation",
    "invocation_infos",
    "list_effects",
    "list_invocations",
    "select_effects",
    "select_invocations",
]

T = TypeVar("T")

MAX_PAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which rows to show. What is None does not matter.

    Attributes:
        since: only what started at or after this time; until: only what started before it (UTC
            microseconds).
        after: the ``next`` of the page before.
        limit: rows of a page, 1 to 1000.
    """

    state: str | None = None
    workflow_id: str | None = None
    run_id: str | None = None
    activity_id: str | None = None
    invocation_id: str | None = None
    model: str | None = None
    tool: str | None = None
    account: str | None = None
    since: int | None = None
    until: int | None = None
    after: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= MAX_PAGE:
            raise InvalidRequest(f"A page has 1 to {MAX_PAGE} rows, not {self.limit}.")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows, and where the next page begins; None if there is none."""

    items: tuple[T, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class InvocationInfo:
    """One provider request with its reservation.

    Times are UTC microseconds, costs nano-units of ``currency`` (None where no account counts cost).
    ``actual`` is None until the reservation is settled; ``retrievable`` tells whether the provider's id of
    the reply is kept, so that it can be asked for where the API has a way to do that.
    """

    id: str
    workflow_id: str
    run_id: str
    activity_id: str
    activity_type: str
    attempt: int
    replay_key: str | None
    round: int
    provider: str
    api: str
    model: str
    reply_model: str | None
    service_tier: str | None
    state: str
    reason: str | None
    finish_reason: str | None
    http_status: int | None
    error_code: str | None
    error_type: str | None
    request_digest: str
    response_digest: str | None
    input_basis: str
    input_measured: int | None
    output_cap: int | None
    price_version: str | None
    metadata: str | None
    input_tokens: int | None
    cached_input_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    cost: int | None
    currency: str | None
    started_at: int
    finished_at: int | None
    accounts: tuple[str, ...]
    reservation_state: str
    reservation_reason: str | None
    reserved: Amounts
    actual: Amounts | None
    resolved_at: int | None
    decision_id: str | None
    retrievable: bool


@dataclass(frozen=True, slots=True)
class EffectInfo:
    """One execution of a tool call, or a call that was refused or that ran at the provider.

    Times are UTC microseconds. ``judgement`` is what the judges of the call said: names, digests and codes.
    """

    id: str
    workflow_id: str
    run_id: str
    activity_id: str
    invocation_id: str
    attempt: int
    round: int
    ordinal: int
    execution: int
    call_id: str
    kind: str
    tool_namespace: str
    tool_name: str
    tool_version: str
    effect_class: str
    idempotency_key: str | None
    arguments_digest: str | None
    state: str
    reason: str | None
    result_digest: str | None
    result_bytes: int | None
    error_type: str | None
    decision_id: str | None
    started_at: int
    finished_at: int | None
    judgement: str | None


_i, _r, _a, _t, _e, _o = (
    table.c for table in (s.invocations, s.reservations, s.activities, s.turns, s.effects, s.outputs)
)
# The reader role sees some columns of outputs only, so no column is asked for.
_RETRIEVABLE = (
    select(literal(1)).where(_o.owner_id == _i.id, _o.kind == "response_id", _o.purged_at.is_(None)).exists()
)
_PLAIN: Final = frozenset(column.name for column in s.invocations.columns)
_SPECIAL: Final = {
    "workflow_id": _a.workflow_id,
    "run_id": _a.run_id,
    "activity_id": _a.activity_id,
    "activity_type": _a.activity_type,
    "replay_key": _t.replay_key,
    "round": _i.round,
}


def select_invocations(*conditions: ColumnElement[bool]) -> Select[Any]:
    """Rows for `invocation_infos`."""
    names = [field.name for field in fields(InvocationInfo)]
    plain = [_i[name] for name in names if name in _PLAIN and name not in _SPECIAL]
    return (
        select(
            *plain,
            *[column.label(name) for name, column in _SPECIAL.items()],
            _r.account,
            _r.state.label("reservation_state"),
            _r.reason.label("reservation_reason"),
            _r.resolved_at,
            _r.decision_id,
            *[column for column in _r if column.name.startswith(("reserved_", "actual_"))],
            _RETRIEVABLE.label("retrievable"),
        )
        .join(s.activities, _a.id == _i.activity_id)
        .join(s.reservations, _r.id == _i.id)
        .outerjoin(s.turns, _t.id == _i.turn_id)
        .where(*conditions)
    )


def invocation_infos(
    connection: Connection, namespace: str, rows: Sequence[Any]
) -> tuple[InvocationInfo, ...]:
    """The records in rows of `select_invocations`."""
    charged = [tuple(row.account.split("\n")) for row in rows]
    known = currencies(connection, namespace, {path for paths in charged for path in paths})
    return tuple(
        _invocation(row, paths, next((known[path] for path in paths if path in known), None))
        for row, paths in zip(rows, charged, strict=True)
    )


def _invocation(row: Any, accounts: tuple[str, ...], currency: str | None) -> InvocationInfo:
    made: dict[str, Any] = {
        "accounts": accounts,
        "currency": currency,
        "reserved": s.read_amounts(row, "reserved"),
        "actual": None if row.actual_model_calls is None else s.read_amounts(row, "actual"),
        "retrievable": bool(row.retrievable),
    }
    kept = {f.name: getattr(row, f.name) for f in fields(InvocationInfo) if f.name not in made}
    return InvocationInfo(**kept, **made)


def select_effects(*conditions: ColumnElement[bool]) -> Select[Any]:
    """Rows for `effect_info`."""
    names = [field.name for field in fields(EffectInfo)]
    own = [_e[name] for name in names if name not in _SPECIAL]
    return (
        select(*own, _a.workflow_id, _a.run_id, _a.activity_id, _i.round)
        .join(s.activities, _a.id == _e.activity_id)
        .join(s.invocations, _i.id == _e.invocation_id)
        .where(*conditions)
    )


def effect_info(row: Any) -> EffectInfo:
    """The record in a row of `select_effects`."""
    return EffectInfo(**{field.name: getattr(row, field.name) for field in fields(EffectInfo)})


def find_invocation(connection: Connection, namespace: str, id: str) -> InvocationInfo | None:
    """One invocation, or None."""
    rows = connection.execute(select_invocations(_i.namespace == namespace, _i.id == id)).all()
    return next(iter(invocation_infos(connection, namespace, rows)), None)


def find_effect(connection: Connection, namespace: str, id: str) -> EffectInfo | None:
    """One effect, or None."""
    row = connection.execute(select_effects(_e.namespace == namespace, _e.id == id)).one_or_none()
    return None if row is None else effect_info(row)


def list_invocations(connection: Connection, namespace: str, only: Filter) -> Page[InvocationInfo]:
    """Invocations, newest first. ``only.account`` may be charged itself or through an account below it."""
    conditions = [_i.namespace == namespace, *_common(only, _i)]
    if only.model is not None:
        conditions.append(_i.model == only.model)
    if only.account is not None:
        conditions.append(charged_to(only.account))
    if only.invocation_id is not None:
        conditions.append(_i.id == only.invocation_id)
    rows, following = _page(connection, select_invocations(*conditions), _i.id, only)
    return Page(invocation_infos(connection, namespace, rows), following)


def list_effects(connection: Connection, namespace: str, only: Filter) -> Page[EffectInfo]:
    """Effects, newest first."""
    conditions = [_e.namespace == namespace, *_common(only, _e)]
    if only.model is not None:
        conditions.append(_i.model == only.model)
    if only.tool is not None:
        conditions.append(_e.tool_name == only.tool)
    if only.invocation_id is not None:
        conditions.append(_e.invocation_id == only.invocation_id)
    rows, following = _page(connection, select_effects(*conditions), _e.id, only)
    return Page(tuple(effect_info(row) for row in rows), following)


def every_effect(connection: Connection, namespace: str, only: Filter) -> Iterator[EffectInfo]:
    """All effects from ``only.after`` on, newest first, read in pages of ``only.limit``."""
    following: str | None = only.after
    while True:
        page = list_effects(connection, namespace, replace(only, after=following))
        yield from page.items
        if page.next is None:
            return
        following = page.next


def _common(only: Filter, c: Any) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    for column, value in (
        (c.state, only.state),
        (_a.workflow_id, only.workflow_id),
        (_a.run_id, only.run_id),
        (_a.activity_id, only.activity_id),
    ):
        if value is not None:
            conditions.append(column == value)
    if only.since is not None:
        conditions.append(c.started_at >= only.since)
    if only.until is not None:
        conditions.append(c.started_at < only.until)
    return conditions


def charged_to(path: str) -> ColumnElement[bool]:
    """Whether one of the lines of a reservation's accounts is the path, or lies below it."""
    # LIKE would ignore case on one of the databases.
    lines = "\n" + _r.account + "\n"
    return or_(*[func.replace(lines, needle, "") != lines for needle in (f"\n{path}\n", f"\n{path}/")])


def _page(
    connection: Connection, query: Select[Any], key: ColumnElement[str], only: Filter
) -> tuple[Sequence[Any], str | None]:
    # Ids are ordered by time, and the primary key's index serves the order.
    if only.after is not None:
        query = query.where(key < only.after)
    rows = connection.execute(query.order_by(key.desc()).limit(only.limit + 1)).all()
    page = rows[: only.limit]
    return page, page[-1].id if len(rows) > only.limit else None
