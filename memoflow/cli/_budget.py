"""``memoflow budget``: accounts, limits and balances."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from memoflow.budget import DIMENSIONS, Budget, Money
from memoflow.cli._balances import HEADERS, account_json, balance_rows
from memoflow.cli._open import open_ledger
from memoflow.cli._options import (
    Actor,
    AsJson,
    Cost,
    Currency,
    DatabaseUrl,
    Namespace,
    Reason,
    RequiredReason,
    actor_name,
    amount,
    checked,
    money,
    name_argument,
    path_argument,
    path_option,
    usage,
    whole,
)
from memoflow.cli._screen import say, show_json, show_table
from memoflow.cli._text import moment
from memoflow.errors import InvalidBudget
from memoflow.figures import figure
from memoflow.ledger.accounts import AccountInfo, PutAccount
from memoflow.periods import check_period, check_time_zone

__all__ = ["allow_unpriced", "app", "close", "history", "list_", "put", "reopen", "show"]

app = typer.Typer(help="Accounts, their limits and what is used of them.", no_args_is_help=True)

Path = Annotated[str, path_argument("The account, for example acme/support.")]
Limit = Annotated[int | None, amount("Hard limit.")]


@app.command()
def put(
    path: Path,
    total_tokens: Limit = None,
    input_tokens: Limit = None,
    output_tokens: Limit = None,
    model_calls: Limit = None,
    tool_calls: Limit = None,
    wall_clock_ms: Limit = None,
    cost: Cost = None,
    currency: Currency = "USD",
    soft: Annotated[
        list[str] | None,
        typer.Option(metavar="DIMENSION=AMOUNT", help="A limit that only alerts; may be repeated."),
    ] = None,
    unlimited: Annotated[bool, typer.Option("--unlimited", help="Set no hard limit at all.")] = False,
    period: Annotated[
        str | None,
        typer.Option(
            metavar="PERIOD",
            help="none, hour, day, week or month; of a new account only.",
            parser=checked(check_period),
        ),
    ] = None,
    time_zone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE",
            help="Where periods begin, for example Europe/Berlin.",
            parser=checked(check_time_zone),
        ),
    ] = None,
    strict_input: Annotated[
        bool, typer.Option("--strict-input", help="Reserve upper bounds of the input, never estimates.")
    ] = False,
    actor: Actor = None,
    reason: Reason = "",
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Create an account, or replace all its limits by those given. Every change is kept with who and why."""
    given = (
        total_tokens,
        input_tokens,
        output_tokens,
        model_calls,
        tool_calls,
        money(cost, currency),
        wall_clock_ms,
    )
    if all(limit is None for limit in given) != unlimited:
        raise typer.BadParameter(
            "Name at least one limit, or say --unlimited; what is left out is not limited."
        )
    with usage("--soft"):
        alerts = Budget(**dict(_assignment(text, currency) for text in soft or []))
    wanted = partial(
        PutAccount,
        path=path,
        hard=Budget(**dict[str, Any](zip(DIMENSIONS, given, strict=True))),
        soft=alerts,
        period=period,
        time_zone=time_zone,
        actor=actor_name(actor),
        reason=reason,
        strict_input=strict_input,
    )
    with usage():
        wanted("any")
    with open_ledger(database, namespace) as ledger:
        info = ledger.record(wanted(ledger.namespace))
    _show([info], json=json, single=True)


def _assignment(text: str, currency: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or name not in DIMENSIONS:
        raise InvalidBudget(
            "A soft limit is DIMENSION=AMOUNT, for example total_tokens=8000. Dimensions are "
            f"{', '.join(DIMENSIONS)}."
        )
    if name == "cost":
        return name, Money.of(value, currency)
    return name, whole(f"The soft limit of {name}", value)


@app.command()
def show(path: Path, database: DatabaseUrl = None, namespace: Namespace = None, json: AsJson = False) -> None:
    """Show an account's limits and its balance in the current period."""
    with open_ledger(database, namespace) as ledger:
        info = ledger.budgets.show(path)
    _show([info], json=json, single=True)


@app.command("list")
def list_(
    under: Annotated[str | None, path_option("Only this account and those below it.")] = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """List accounts with their balances: # settled, = held, ? unknown."""
    with open_ledger(database, namespace) as ledger:
        infos = ledger.budgets.list(under=under)
    _show(infos, json=json)


def _show(infos: list[AccountInfo], *, json: bool, single: bool = False) -> None:
    if json:
        shown = [account_json(info) for info in infos]
        show_json(shown[0] if single else {"items": shown, "next": None})
    else:
        rows = [row for info in infos for row in balance_rows(info)]
        show_table(HEADERS, rows, empty="No accounts. Create one with `memoflow budget put`.")


@app.command()
def history(
    path: Path, database: DatabaseUrl = None, namespace: Namespace = None, json: AsJson = False
) -> None:
    """Show every version of an account's limits: what, who, when and why."""
    with open_ledger(database, namespace) as ledger:
        versions = ledger.budgets.history(path)
    if json:
        show_json({"items": versions, "next": None})
        return
    rows = [
        (
            version.version,
            moment(version.at),
            version.state,
            _limits(version.hard),
            _limits(version.soft),
            version.actor,
            version.reason,
        )
        for version in versions
    ]
    show_table(("VERSION", "AT", "STATE", "LIMITS", "SOFT", "ACTOR", "REASON"), rows, empty="")


def _limits(budget: Budget) -> str:
    given = [(name, amount) for name, amount in budget.items() if amount is not None]
    shown = [f"{name} {figure(name, amount)}" for name, amount in given]
    return ", ".join(shown) or "-"


@app.command()
def close(
    path: Path,
    reason: RequiredReason,
    actor: Actor = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
) -> None:
    """Take no new reservations on an account and those below it."""
    with open_ledger(database, namespace) as ledger:
        info = ledger.budgets.close(path, actor=actor_name(actor), reason=reason)
    say(f"Account {info.path!r} is {info.state} (version {info.policy_version}).")


@app.command()
def reopen(
    path: Path,
    reason: RequiredReason,
    actor: Actor = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
) -> None:
    """Take reservations on a closed account again."""
    with open_ledger(database, namespace) as ledger:
        info = ledger.budgets.reopen(path, actor=actor_name(actor), reason=reason)
    say(f"Account {info.path!r} is {info.state} (version {info.policy_version}).")


@app.command()
def allow_unpriced(
    model: Annotated[str, name_argument("model", "The model's name, exactly.", metavar="MODEL")],
    reason: RequiredReason,
    actor: Actor = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
) -> None:
    """Let a model without a price be called where cost is limited; its calls count as costing nothing."""
    with open_ledger(database, namespace) as ledger:
        decision = ledger.budgets.allow_unpriced(model, actor=actor_name(actor), reason=reason)
    say(f"Model {model!r} may be called without a price (decision {decision.id} of {decision.actor}).")
