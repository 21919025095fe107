"""``memoflow approvals``: calls that wait for a person, and decisions on them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, cast
from uuid import UUID

import typer

from memoflow.approvals import ApprovalCase, ApprovalDecision, ApprovalInfo
from memoflow.cli._open import open_ledger
from memoflow.cli._options import (
    Actor,
    After,
    AsJson,
    DatabaseUrl,
    Limit,
    Namespace,
    RequiredReason,
    actor_name,
    age,
    choice_option,
    name_argument,
)
from memoflow.cli._pages import page_json, say_next
from memoflow.cli._screen import say, show_fields, show_json, show_table
from memoflow.cli._text import moment
from memoflow.identity import tool_label
from memoflow.ledger.approval_queries import STATES
from memoflow.turn.judging import Judgement

__all__ = ["app", "approve", "deny", "list_", "show"]

app = typer.Typer(help="Tool calls that wait for a person, and decisions on them.", no_args_is_help=True)

RequestId = Annotated[str, name_argument("id", "The approval request.", metavar="REQUEST")]
State = Annotated[str, choice_option("Those in this state:", *STATES, "any")]


@app.command("list")
def list_(
    state: State = "pending",
    limit: Limit = 50,
    after: After = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """List approval requests, newest first; those that wait for a decision, unless asked for others."""
    with open_ledger(database, namespace) as ledger:
        page = ledger.approvals().list(
            cast(Any, None if state == "any" else state), limit=limit, after=_cursor(after)
        )
    if json:
        show_json(page_json(page))
        return
    headers = ("REQUEST", "STATE", "TOOL", "REQUESTER", "RUN", "ACTIVITY", "ASKED", "UNTIL")
    empty = "Nothing waits for a decision." if state == "pending" else "No approval requests."
    show_table(headers, [_row(item) for item in page.items], empty=empty)
    say_next(page)


def _cursor(after: UUID | None) -> str | None:
    return None if after is None else str(after)


def _row(item: ApprovalInfo) -> tuple[object, ...]:
    return (
        item.id,
        item.state,
        _tool(item),
        item.requester,
        f"{item.workflow_id}/{item.run_id}",
        item.activity_id,
        moment(item.created_at),
        moment(item.approval_expires_at if item.state == "approved" else item.expires_at),
    )


def _tool(item: ApprovalInfo) -> str:
    return f"{tool_label(item.tool_namespace, item.tool_name)} {item.tool_version}"


@app.command()
def show(
    request: RequestId, database: DatabaseUrl = None, namespace: Namespace = None, json: AsJson = False
) -> None:
    """Show one request, with the plain arguments of its call if their key is configured here."""
    with open_ledger(database, namespace) as ledger:
        case = ledger.approvals().show(request)
    if json:
        show_json(case)
    else:
        show_fields(_fields(case))


def _fields(case: ApprovalCase) -> Iterator[tuple[str, object]]:
    item = case.request
    yield "request", item.id
    yield "state", item.state
    yield "tool", f"{_tool(item)} ({item.effect_class})"
    yield "arguments", case.arguments if case.withheld is None else f"(not shown) {case.withheld}"
    yield "arguments digest", item.arguments_digest
    yield "why", _why(item)
    yield "requester", item.requester
    yield "run", f"{item.workflow_id}/{item.run_id}"
    yield "activity", item.activity_id
    yield "call", f"round {item.round}, ordinal {item.ordinal} of invocation {item.invocation_id}"
    yield "asked", moment(item.created_at)
    yield "lapses", moment(item.expires_at)
    yield "decided", "" if item.verdict is None else f"{item.verdict} by {item.approver}"
    yield "reason", item.reason
    yield "decided at", moment(item.decided_at)
    yield "good until", moment(item.approval_expires_at)
    yield "used", moment(item.used_at)
    yield "effect", item.effect_state


def _why(item: ApprovalInfo) -> str:
    """Who has something to say about the call, and by which codes."""
    rulings = [one for one in Judgement.parse(item.judgement).rulings if one.said != "permit"]
    return "; ".join(f"{one.judge}: {' '.join(one.codes)}" for one in rulings)


@app.command()
def approve(
    request: RequestId,
    reason: RequiredReason,
    expires_in: Annotated[
        timedelta, typer.Option(metavar="AGE", help="For how long it may be used.", parser=age)
    ] = "1d",  # type: ignore[assignment]
    actor: Actor = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Allow one call, once. It runs when its activity is run again."""
    with open_ledger(database, namespace) as ledger:
        decision = ledger.approvals().approve(
            request, approver=actor_name(actor), reason=reason, expires_in=expires_in
        )
    _say_decision(decision, json=json)


@app.command()
def deny(
    request: RequestId,
    reason: RequiredReason,
    tell_model: Annotated[bool, typer.Option("--tell-model", help="Let the model read the reason.")] = False,
    actor: Actor = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Refuse one call. The model is told so when the activity is run again."""
    with open_ledger(database, namespace) as ledger:
        decision = ledger.approvals().deny(
            request, approver=actor_name(actor), reason=reason, tell_model=tell_model
        )
    _say_decision(decision, json=json)


def _say_decision(decision: ApprovalDecision, *, json: bool) -> None:
    if json:
        show_json(decision)
        return
    until = "" if decision.expires_at is None else f", good until {moment(decision.expires_at)}"
    say(f"Request {decision.id}: {decision.verdict} by {decision.approver}{until}. Run its activity again.")
