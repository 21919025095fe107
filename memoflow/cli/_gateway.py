"""``memoflow gateway``: serving it, and its virtual keys."""

from __future__ import annotations

import logging
from datetime import timedelta
from json import loads
from pathlib import Path
from typing import Annotated, Any

import typer

from memoflow.cli._open import database_url, open_ledger
from memoflow.cli._options import (
    Actor,
    AsJson,
    DatabaseUrl,
    Namespace,
    RequiredReason,
    actor_name,
    age,
    amount,
    name_argument,
    path_option,
    usage,
)
from memoflow.cli._screen import say, show_fields, show_json, show_table
from memoflow.cli._text import moment, plain
from memoflow.errors import NotFound
from memoflow.ledger.inspections import InspectionCount, count_inspections, list_inspections
from memoflow.ledger.queries import find_invocation
from memoflow.ledger.virtual_keys import RevokeVirtualKey, VirtualKey, list_virtual_keys, read_virtual_key
from memoflow.settings import MemoflowSettings

__all__ = ["app", "create", "inspections", "list_", "revoke", "serve", "show"]

app = typer.Typer(invoke_without_command=True)
keys = typer.Typer(help="Virtual keys of the gateway.", no_args_is_help=True)
app.add_typer(keys, name="keys")


@app.callback()
def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where to listen; 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="Where to listen; 8484.")] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes; more than 1 on PostgreSQL.")
    ] = None,
    output_tokens: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Output cap where a request names none; 4096.")
    ] = None,
    on_disconnect: Annotated[
        str | None, typer.Option(metavar="POLICY", help="drain or cancel the reply of a client that left.")
    ] = None,
    inspection: Annotated[
        str | None, typer.Option(metavar="MODE", help="Inspect tool calls: off, shadow or enforce.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The policy to inspect by; the shipped one.")
    ] = None,
    genai_prices: Annotated[
        bool, typer.Option("--genai-prices", help="Price with the genai-prices tables.")
    ] = False,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL=IN,OUT", help="A price per million tokens; may be repeated."),
    ] = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
) -> None:
    """Serve the APIs of OpenAI and Anthropic with budgets and records.

    Programs are pointed at it by their base URL, with a virtual key that `keys create` makes. Upstream keys
    are MEMOFLOW_GATEWAY_OPENAI_KEY and MEMOFLOW_GATEWAY_ANTHROPIC_KEY, or the files named in …_KEY_FILE. All
    settings can be given as MEMOFLOW_GATEWAY_….
    """
    if context.invoked_subcommand is not None:
        return
    from memoflow.gateway import GatewaySettings, serve

    given: dict[str, Any] = {
        "host": host,
        "port": port,
        "workers": workers,
        "output_tokens": output_tokens,
        "on_disconnect": on_disconnect,
        "inspection": inspection,
        "inspection_policy": policy,
        "genai_prices": genai_prices or None,
        "prices": dict(_price(text) for text in price) if price else None,
    }
    with usage():
        settings = GatewaySettings(**{name: value for name, value in given.items() if value is not None})
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    serve(database_url(database, MemoflowSettings()), namespace, settings)


def _price(text: str) -> tuple[str, tuple[str, ...]]:
    model, equals, amounts = text.rpartition("=")
    if not equals or not model:
        raise typer.BadParameter(
            "A price is MODEL=IN,OUT[,CACHED[,WRITE]], for example gpt-5-mini=0.25,2.00."
        )
    return model, tuple(amounts.split(","))


@app.command()
def inspections(
    id: Annotated[
        str | None,
        name_argument("id", "The invocation; how often what was decided without one.", metavar="ID"),
    ] = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Show what inspection decided: about an invocation, or how often in all.

    Every call is counted, and of what was read only what a rule had something to say about.
    """
    with open_ledger(database, namespace) as ledger:
        if id is None:
            counts = ledger.read(count_inspections)
            _show_counts(counts, json=json)
            return
        if ledger.read(find_invocation, id) is None:
            raise NotFound(what="invocation", id=id, namespace=ledger.namespace)
        found = ledger.read(list_inspections, id)
    records = [loads(row.record) for row in found]
    if json:
        show_json({"items": records, "next": None})
        return
    rows = [
        (
            *(record.get("event"), record.get("tool"), row.decision, row.effect, row.mode, row.rule),
            record.get("problem"),
        )
        for row, record in zip(found, records, strict=True)
    ]
    headers = ("EVENT", "TOOL", "DECISION", "EFFECT", "MODE", "RULE", "PROBLEM")
    show_table(headers, rows, empty="Inspection decided nothing about this invocation.")


def _show_counts(counts: list[InspectionCount], *, json: bool) -> None:
    if json:
        show_json({"items": counts, "next": None})
        return
    rows = [(c.decision, c.effect, c.mode, c.rule, c.decisions, c.invocations) for c in counts]
    headers = ("DECISION", "EFFECT", "MODE", "RULE", "DECISIONS", "INVOCATIONS")
    show_table(headers, rows, empty="Inspection decided nothing here.")


Key = Annotated[str, name_argument("virtual key", "The key's id, as `keys list` shows it.", metavar="ID")]


@keys.command()
def create(
    name: Annotated[str, name_argument("name", "What the key is for, in a word.", metavar="NAME")],
    account: Annotated[str, path_option("The account that its requests are charged to.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="A model, or a beginning with *; may be repeated. All if left out."
        ),
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="An endpoint, for example messages; may be repeated. All if left out."
        ),
    ] = None,
    output_tokens: Annotated[int | None, amount("Output cap where a request names none.")] = None,
    expires_in: Annotated[
        timedelta | None, typer.Option(metavar="AGE", help="For example 12h, 30d.", parser=age)
    ] = None,
    actor: Actor = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Make a virtual key. It is printed once and kept nowhere."""
    from memoflow.gateway import new_virtual_key

    with open_ledger(database, namespace) as ledger:
        with usage():
            key, add = new_virtual_key(
                ledger.namespace,
                ledger.digester,
                name=name,
                account=account,
                models=tuple(model or ["*"]),
                endpoints=tuple(endpoint or ["*"]),
                output_tokens=output_tokens,
                expires_in=expires_in,
                actor=actor_name(actor),
            )
        made = ledger.record(add)
    if json:
        show_json({**plain(made), "key": key})
        return
    say(f"Virtual key {made.id} for account {made.account!r}. Keep it safe: it is not shown again.")
    say(key)


@keys.command("list")
def list_(
    account: Annotated[str | None, path_option("Only those of this account.")] = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """List virtual keys, oldest first."""
    with open_ledger(database, namespace) as ledger:
        found, now = ledger.read(list_virtual_keys, account), ledger.now()
    if json:
        show_json({"items": found, "next": None})
        return
    rows = [
        (key.id, key.name, f"…{key.hint}", key.account, " ".join(key.models), _state(key, now))
        for key in found
    ]
    headers = ("ID", "NAME", "KEY", "ACCOUNT", "MODELS", "STATE")
    show_table(headers, rows, empty="No virtual keys. Make one with `memoflow gateway keys create`.")


def _state(key: VirtualKey, now: int) -> str:
    if key.revoked_at is not None:
        return "REVOKED"
    return "EXPIRED" if key.expired(now) else "GOOD"


@keys.command()
def show(id: Key, database: DatabaseUrl = None, namespace: Namespace = None, json: AsJson = False) -> None:
    """Show what a virtual key is for."""
    with open_ledger(database, namespace) as ledger:
        key, now = ledger.read(read_virtual_key, id), ledger.now()
    if json:
        show_json(key)
        return
    show_fields(
        [
            ("id", key.id),
            ("name", key.name),
            ("key", f"…{key.hint}"),
            ("state", _state(key, now)),
            ("account", key.account),
            ("models", " ".join(key.models)),
            ("endpoints", " ".join(key.endpoints)),
            ("output tokens", key.output_tokens),
            ("made by", key.actor),
            ("made", moment(key.created_at)),
            ("expires", moment(key.expires_at)),
            ("revoked", moment(key.revoked_at)),
            ("revoked by", key.revoked_by),
            ("because", key.revoked_because),
        ]
    )


@keys.command()
def revoke(
    id: Key,
    reason: RequiredReason,
    actor: Actor = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
) -> None:
    """Revoke a virtual key for good; the next request with it is refused."""
    with open_ledger(database, namespace) as ledger:
        key = ledger.record(RevokeVirtualKey(ledger.namespace, id, actor_name(actor), reason))
    say(f"Virtual key {key.id} (…{key.hint}) was revoked by {key.revoked_by}.")
