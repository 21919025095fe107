"""``memoflow effects``: executions of tool calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from memoflow.cli._open import open_ledger
from memoflow.cli._options import (
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
    name_option,
)
from memoflow.cli._pages import page_json, say_next, wanted
from memoflow.cli._screen import show_fields, show_json, show_table
from memoflow.cli._text import moment
from memoflow.errors import NotFound
from memoflow.identity import tool_label
from memoflow.ledger.queries import EffectInfo, find_effect, list_effects

__all__ = ["app", "effect_fields", "list_", "show", "tool_text"]

app = typer.Typer(help="Executions of tool calls.", no_args_is_help=True)

State = Annotated[
    str | None,
    choice_option(
        "Only those in this state:",
        "AWAITING_APPROVAL",
        "STARTED",
        "DONE",
        "FAILED",
        "REFUSED",
        "DENIED",
        "OUTCOME_UNKNOWN",
        "SUPERSEDED",
        "PROVIDER_SIDE",
    ),
]


@app.command("list")
def list_(
    state: State = None,
    tool: Annotated[str | None, name_option("tool", "Only those of this tool.", metavar="NAME")] = None,
    invocation: Annotated[
        str | None, name_option("invocation", "Only those asked for by this invocation.")
    ] = None,
    workflow: Workflow = None,
    run: Run = None,
    activity: Activity = None,
    model: Model = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Limit = 50,
    after: After = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """List tool effects, newest first."""
    with open_ledger(database, namespace) as ledger:
        only = wanted(
            ledger,
            older_than,
            newer_than,
            state=state,
            tool=tool,
            invocation_id=invocation,
            workflow_id=workflow,
            run_id=run,
            activity_id=activity,
            model=model,
            limit=limit,
            after=after,
        )
        page = ledger.read(list_effects, only)
    if json:
        show_json(page_json(page))
        return
    headers = ("ID", "STATE", "REASON", "TOOL", "CLASS", "CALL", "RUN", "ACTIVITY", "STARTED")
    show_table(headers, [_row(item) for item in page.items], empty="No effects.")
    say_next(page)


def _row(item: EffectInfo) -> tuple[object, ...]:
    return (
        item.id,
        item.state,
        item.reason,
        tool_text(item),
        item.effect_class,
        f"{item.round}.{item.ordinal}.{item.execution}",
        f"{item.workflow_id}/{item.run_id}",
        f"{item.activity_id}#{item.attempt}",
        moment(item.started_at),
    )


def tool_text(item: EffectInfo) -> str:
    """The identity of a tool for people."""
    return f"{tool_label(item.tool_namespace, item.tool_name)} {item.tool_version}".rstrip()


@app.command()
def show(
    id: Annotated[str, name_argument("id", "The effect.", metavar="ID")],
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Show one tool effect."""
    with open_ledger(database, namespace) as ledger:
        found = ledger.read(find_effect, id)
        if found is None:
            raise NotFound(what="effect", id=id, namespace=ledger.namespace)
    if json:
        show_json(found)
    else:
        show_fields(effect_fields(found))


def effect_fields(item: EffectInfo) -> Iterator[tuple[str, object]]:
    """What there is to say about an effect, line by line."""
    yield "effect", item.id
    yield "state", item.state if item.reason is None else f"{item.state} ({item.reason})"
    yield "tool", f"{tool_text(item)} ({item.effect_class}, {item.kind})"
    yield "run", f"{item.workflow_id}/{item.run_id}"
    yield "activity", f"{item.activity_id}, attempt {item.attempt}"
    yield "call", f"{item.call_id} (round {item.round}, ordinal {item.ordinal}, execution {item.execution})"
    yield "invocation", item.invocation_id
    yield "idempotency key", item.idempotency_key
    yield "started", moment(item.started_at)
    yield "finished", moment(item.finished_at)
    yield "error", item.error_type
    yield "arguments digest", item.arguments_digest
    yield "result digest", item.result_digest
    yield "result bytes", item.result_bytes
    yield "decision", item.decision_id
    yield "judgement", item.judgement
