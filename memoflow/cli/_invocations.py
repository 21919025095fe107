"""``memoflow invocations``: provider requests and their reservations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from memoflow.budget import Amounts
from memoflow.cli._open import open_ledger
from memoflow.cli._options import (
    Account,
    Activity,
    After,
    AsJson,
    DatabaseUrl,
    Limit,
    Model,
    Namespace,
    NewerThan,
    OlderThan,
    Run,
    Workflow,
    choice_option,
    name_argument,
)
from memoflow.cli._pages import page_json, say_next, wanted
from memoflow.cli._screen import show_fields, show_json, show_table
from memoflow.cli._text import moment
from memoflow.errors import NotFound
from memoflow.figures import figure
from memoflow.ledger.queries import InvocationInfo, find_invocation, list_invocations

__all__ = ["amounts_text", "app", "invocation_fields", "list_", "money", "show"]

app = typer.Typer(help="Provider requests with their reservations.", no_args_is_help=True)

State = Annotated[
    str | None,
    choice_option(
        "Only those in this state:", "STARTED", "SUCCEEDED", "FAILED", "CANCELLED", "OUTCOME_UNKNOWN"
    ),
]


@app.command("list")
def list_(
    state: State = None,
    workflow: Workflow = None,
    run: Run = None,
    activity: Activity = None,
    model: Model = None,
    account: Account = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Limit = 50,
    after: After = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """List invocations, newest first."""
    with open_ledger(database, namespace) as ledger:
        only = wanted(
            ledger,
            older_than,
            newer_than,
            state=state,
            workflow_id=workflow,
            run_id=run,
            activity_id=activity,
            model=model,
            account=account,
            limit=limit,
            after=after,
        )
        page = ledger.read(list_invocations, only)
    if json:
        show_json(page_json(page))
        return
    headers = ("ID", "STATE", "REASON", "BUDGET", "MODEL", "TOKENS", "COST", "RUN", "ACTIVITY", "STARTED")
    show_table(headers, [_row(item) for item in page.items], empty="No invocations.")
    say_next(page)


def _row(item: InvocationInfo) -> tuple[object, ...]:
    return (
        item.id,
        item.state,
        item.reason or item.finish_reason,
        item.reservation_state,
        item.model,
        "" if item.input_tokens is None else f"{item.input_tokens}+{item.output_tokens}",
        money(item.cost, item.currency),
        f"{item.workflow_id}/{item.run_id}",
        f"{item.activity_id}#{item.attempt}",
        moment(item.started_at),
    )


def money(amount: int | None, currency: str | None) -> str:
    """Nano-units of a currency for people; nothing for None."""
    if amount is None:
        return ""
    return figure("cost", amount, currency)


def amounts_text(amounts: Amounts | None, currency: str | None) -> str:
    """The dimensions that are not zero, for people."""
    if amounts is None:
        return ""
    shown = [
        f"{name} {figure(name, amount, currency)}" for name, amount in amounts._asdict().items() if amount
    ]
    return ", ".join(shown) or "nothing"


@app.command()
def show(
    id: Annotated[str, name_argument("id", "The invocation.", metavar="ID")],
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Show one invocation with its reservation."""
    with open_ledger(database, namespace) as ledger:
        found = ledger.read(find_invocation, id)
        if found is None:
            raise NotFound(what="invocation", id=id, namespace=ledger.namespace)
    if json:
        show_json(found)
    else:
        show_fields(invocation_fields(found))


def invocation_fields(item: InvocationInfo) -> Iterator[tuple[str, object]]:
    """What there is to say about an invocation, line by line."""
    yield "invocation", item.id
    yield "state", item.state if item.reason is None else f"{item.state} ({item.reason})"
    yield "run", f"{item.workflow_id}/{item.run_id}"
    yield "activity", f"{item.activity_id} ({item.activity_type}), attempt {item.attempt}"
    yield "replay key", None if item.replay_key is None else f"{item.replay_key}, round {item.round}"
    yield (
        "model",
        item.model if item.reply_model in (None, item.model) else f"{item.model} ({item.reply_model})",
    )
    yield "api", f"{item.provider}/{item.api}"
    yield "service tier", item.service_tier
    yield "finish reason", item.finish_reason
    yield "http status", item.http_status
    yield "error", " ".join(filter(None, (item.error_code, item.error_type)))
    yield "started", moment(item.started_at)
    yield "finished", moment(item.finished_at)
    yield "input", _input(item)
    yield "output cap", item.output_cap
    yield "usage", _usage(item)
    yield "cost", money(item.cost, item.currency)
    yield "accounts", ", ".join(item.accounts)
    yield "reservation", _reservation(item)
    yield "reserved", amounts_text(item.reserved, item.currency)
    yield "actual", amounts_text(item.actual, item.currency)
    yield "decision", item.decision_id
    yield "id of the reply kept", "yes" if item.retrievable else "no"
    yield "request digest", item.request_digest
    yield "response digest", item.response_digest
    yield "price version", item.price_version
    yield "metadata", item.metadata


def _reservation(item: InvocationInfo) -> str:
    reason = item.reservation_reason
    state = item.reservation_state if reason is None else f"{item.reservation_state} ({reason})"
    return state if item.resolved_at is None else f"{state} at {moment(item.resolved_at)}"


def _input(item: InvocationInfo) -> str:
    return item.input_basis if item.input_measured is None else f"{item.input_measured} ({item.input_basis})"


def _usage(item: InvocationInfo) -> str:
    if item.input_tokens is None:
        return ""
    parts = [f"{item.input_tokens} input", f"{item.output_tokens} output"]
    for name, tokens in (
        ("cached", item.cached_input_tokens),
        ("cache write", item.cache_write_tokens),
        ("reasoning", item.reasoning_tokens),
    ):
        if tokens:
            parts.append(f"{tokens} {name}")
    return ", ".join(parts)
