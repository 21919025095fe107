"""Invocations against their reservations, and those against the journal of every balance they touch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, func, select

from memoflow.budget import DIMENSIONS, Amounts
from memoflow.ledger.schema import (
    accounts,
    activities,
    balances,
    invocations,
    journal,
    read_amounts,
    reservations,
)
from memoflow.ledger.verify._finding import Children, Finding, stream

__all__ = ["reservation_findings"]

ENDED: Final = frozenset({"SETTLED", "RELEASED"})
STATES: Final = {
    "STARTED": {"HELD"},
    "OUTCOME_UNKNOWN": {"RECONCILE", *ENDED},
    "SUCCEEDED": {"RECONCILE", *ENDED},
    "FAILED": {"RECONCILE", *ENDED},
    "CANCELLED": {"RECONCILE", *ENDED},
}
"""The states a reservation may be in, by the state of its invocation."""

EVENTS: Final = {
    "HELD": [["reserve"]],
    "RECONCILE": [["reserve", "unknown"]],
    "SETTLED": [["reserve", "settle"], ["reserve", "unknown", "settle"]],
    "RELEASED": [["reserve", "release"], ["reserve", "unknown", "release"]],
}
"""What the journal of each balance may say about a reservation, by its state."""


def reservation_findings(connection: Connection, namespace: str | None) -> Iterator[Finding]:
    """What does not hold between invocations, reservations and the journal."""
    legs = Children(stream(connection, _legs(namespace)), attrgetter("reservation_id"))
    for call in stream(connection, _calls(namespace)):
        entries = list(legs.of(call.id))
        yield from _check_call(call)
        if call.state is None:
            message = f"Invocation {call.id} is {call.call} and has no reservation."
            yield Finding("RESERVATION_MISSING", "invocations", call.id, message)
        else:
            yield from _check_states(call)
            yield from _check_usage(call)
            yield from _check_accounts(call, entries)
            for _, leg in groupby(entries, attrgetter("balance_id")):
                yield from _check_leg(call, list(leg))
    for again in stream(connection, _answered_again(namespace)):
        message = (
            f"Invocation {again.id} is SUCCEEDED, and so is {again.first} before it, for round {again.round} "
            f"of turn {again.turn_id}; a round has one reply."
        )
        yield Finding("ROUND_ANSWERED_TWICE", "invocations", again.id, message)


def _calls(namespace: str | None) -> Select[Any]:
    i, r, a = invocations.c, reservations.c, activities.c
    query = (
        select(
            i.id,
            i.namespace,
            i.attempt,
            i.state.label("call"),
            i.input_tokens,
            i.output_tokens,
            i.cost,
            a.namespace.label("activity_namespace"),
            a.state.label("activity"),
            a.attempt.label("last_attempt"),
            r.namespace.label("reservation_namespace"),
            r.account,
            r.state,
            r.reason,
            r.decision_id,
            *[r[f"{kind}_{name}"] for kind in ("reserved", "actual") for name in DIMENSIONS],
        )
        .outerjoin(reservations, r.id == i.id)
        .outerjoin(activities, a.id == i.activity_id)
        .order_by(i.id)
    )
    return query if namespace is None else query.where(i.namespace == namespace)


def _legs(namespace: str | None) -> Select[Any]:
    query = (
        select(journal, accounts.c.namespace, accounts.c.path, balances.c.period_start, balances.c.period_end)
        .join(invocations, invocations.c.id == journal.c.reservation_id)
        .join(balances, balances.c.id == journal.c.balance_id)
        .join(accounts, accounts.c.id == balances.c.account_id)
        .order_by(invocations.c.id, journal.c.balance_id, journal.c.seq)
    )
    return query if namespace is None else query.where(invocations.c.namespace == namespace)


def _answered_again(namespace: str | None) -> Select[Any]:
    """Replies for rounds that had one, with the first of them."""
    before = invocations.alias("before")
    i, b = invocations.c, before.c
    query = (
        select(i.id, i.turn_id, i.round, func.min(b.id).label("first"))
        .join(before, (b.turn_id == i.turn_id) & (b.round == i.round) & (b.id < i.id))
        .where(i.state == "SUCCEEDED", b.state == "SUCCEEDED")
        .group_by(i.id, i.turn_id, i.round)
        .order_by(i.id)
    )
    return query if namespace is None else query.where(i.namespace == namespace)


def _check_call(call: Row[Any]) -> Iterator[Finding]:
    if call.activity is None:
        return
    if not 1 <= call.attempt <= call.last_attempt:
        message = f"Invocation {call.id} belongs to attempt {call.attempt} of {call.last_attempt} attempts."
        yield Finding("ATTEMPT_UNKNOWN", "invocations", call.id, message)
    if call.call == "STARTED" and call.activity == "COMPLETED":
        message = f"Invocation {call.id} is STARTED, but its activity is COMPLETED and nobody will end it."
        yield Finding("LEFT_OPEN", "invocations", call.id, message)
    if call.activity_namespace != call.namespace:
        message = (
            f"Invocation {call.id} is in namespace {call.namespace!r}, "
            f"its activity in {call.activity_namespace!r}."
        )
        yield Finding("NAMESPACE_DIFFERS", "invocations", call.id, message)


def _check_states(call: Row[Any]) -> Iterator[Finding]:
    if call.state not in STATES[call.call]:
        message = f"Invocation {call.id} is {call.call}, its reservation {call.state}."
        yield Finding("STATES_DIFFER", "invocations", call.id, message)
    ended = call.call not in ("STARTED", "OUTCOME_UNKNOWN")
    if ended and call.state == "RECONCILE" and call.reason != "USAGE_MISSING":
        message = (
            f"Invocation {call.id} is {call.call}, yet its reservation is left to reconcile for "
            f"{call.reason}; only USAGE_MISSING may be."
        )
        yield Finding("STATES_DIFFER", "invocations", call.id, message)
    if call.call == "OUTCOME_UNKNOWN" and call.state in ENDED and call.decision_id is None:
        message = f"Invocation {call.id} is OUTCOME_UNKNOWN and its hold is {call.state} without a decision."
        yield Finding("DECISION_MISSING", "reservations", call.id, message)
    if call.reservation_namespace != call.namespace:
        message = (
            f"Reservation {call.id} is in namespace {call.reservation_namespace!r}, "
            f"its invocation in {call.namespace!r}."
        )
        yield Finding("NAMESPACE_DIFFERS", "reservations", call.id, message)


def _check_usage(call: Row[Any]) -> Iterator[Finding]:
    wanted: dict[str, int | None] = {}
    if call.state == "SETTLED":
        wanted["model_calls"] = 1
        if call.input_tokens is not None and call.output_tokens is not None:
            wanted["input_tokens"] = call.input_tokens
            wanted["output_tokens"] = call.output_tokens
            wanted["total_tokens"] = call.input_tokens + call.output_tokens
        if call.cost is not None:
            wanted["cost"] = call.cost
    for name in DIMENSIONS:
        actual = getattr(call, f"actual_{name}")
        if (actual is None) == (call.state == "SETTLED"):
            message = f"Reservation {call.id} is {call.state} with actual_{name} {actual}."
        elif name in wanted and actual != wanted[name]:
            message = f"Reservation {call.id} settled {actual} {name}, its invocation used {wanted[name]}."
        else:
            continue
        yield Finding("ACTUAL_DIFFERS", "reservations", call.id, message)


def _check_accounts(call: Row[Any], entries: list[Row[Any]]) -> Iterator[Finding]:
    touched = {entry.balance_id: (entry.namespace, entry.path) for entry in entries}
    found = sorted(touched.values())
    wanted = sorted({(call.reservation_namespace, path) for path in _chains(call.account)})
    if found != wanted:
        odd = [pair for pair in wanted if pair not in found] or [pair for pair in found if pair not in wanted]
        where = f"for example {odd[0][1]!r} of namespace {odd[0][0]!r}" if odd else "one of them twice"
        message = (
            f"Reservation {call.id} is on account {call.account!r}, which makes {len(wanted)} balances; the "
            f"journal has it on {len(found)}, {where} differs."
        )
        yield Finding("ACCOUNTS_DIFFER", "reservations", call.id, message)


def _chains(account: str) -> Iterator[str]:
    for leaf in account.split("\n"):
        steps = leaf.split("/")
        for depth in range(1, len(steps) + 1):
            yield "/".join(steps[:depth])


def _check_leg(call: Row[Any], entries: list[Row[Any]]) -> Iterator[Finding]:
    """What one balance's journal says about a reservation."""
    first, events = entries[0], [entry.event for entry in entries]
    if events not in EVENTS[call.state]:
        message = (
            f"Reservation {call.id} is {call.state}, but the journal of account {first.path!r} says "
            f"{', '.join(events)}."
        )
        yield Finding("EVENTS_DIFFER", "journal", _id(first), message)
        return
    if "unknown" in events and call.state in ENDED and call.decision_id is None:
        message = f"Reservation {call.id} was unknown and is {call.state} without a decision."
        yield Finding("DECISION_MISSING", "reservations", call.id, message)
    if first.at < first.period_start or (first.period_end is not None and first.at >= first.period_end):
        message = f"Journal row {_id(first)} reserved at {first.at}, outside the period of its balance."
        yield Finding("PERIOD_DIFFERS", "journal", _id(first), message)
    for number, entry in enumerate(entries):
        yield from _check_amounts(call, entry, was_unknown="unknown" in events[:number])


def _check_amounts(call: Row[Any], entry: Row[Any], *, was_unknown: bool) -> Iterator[Finding]:
    reserved, none = read_amounts(call, "reserved"), Amounts()
    gone = reserved.negated()
    wanted = {
        "settled": read_amounts(call, "actual") if entry.event == "settle" else none,
        "held": reserved if entry.event == "reserve" else none if was_unknown else gone,
        "unknown": reserved if entry.event == "unknown" else gone if was_unknown else none,
    }
    for kind, amounts in wanted.items():
        for name, amount in zip(DIMENSIONS, amounts, strict=True):
            found = getattr(entry, f"{kind}_{name}")
            if found != amount:
                message = (
                    f"Journal row {_id(entry)} ({entry.event} of {call.id}) changes {kind} {name} by "
                    f"{found}; the reservation makes that {amount}."
                )
                yield Finding("AMOUNTS_DIFFER", "journal", _id(entry), message)


def _id(row: Row[Any]) -> str:
    return f"{row.balance_id}/{row.seq}"
