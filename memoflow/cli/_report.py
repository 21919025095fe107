"""``memoflow report``: what was spent, how good the estimates were, and what unknowns still hold."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from memoflow.budget import DIMENSIONS
from memoflow.cli._invocations import amounts_text, money
from memoflow.cli._open import open_ledger
from memoflow.cli._options import (
    Account,
    AsJson,
    DatabaseUrl,
    Model,
    Namespace,
    NewerThan,
    OlderThan,
    choice_option,
)
from memoflow.cli._pages import wanted
from memoflow.cli._screen import show_json, show_table
from memoflow.cli._text import plain
from memoflow.identity import tool_label
from memoflow.ledger.spending import Spending, ToolUse, spending, tool_use

__all__ = ["report"]

By = Annotated[str, choice_option("The rows:", "account", "model", "tool", "day", "basis", metavar="WHAT")]
SPENT = ("CALLS", "SETTLED", "TOKENS", "OF RESERVED", "COST", "INPUT", "MEASURED", "ABOVE", "UNKNOWN", "HELD")
USED = ("VERSION", "EXECUTIONS", "DONE", "FAILED", "REFUSED", "DENIED", "WAITING", "UNKNOWN")


def report(
    by: By = "account",
    account: Account = None,
    model: Model = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Show what was spent, and what unknowns hold.

    An account includes those below it, and a day is one of UTC. Beside what settled invocations used stands
    what they had reserved; beside the input that the provider counted, what was measured beforehand, and how
    often the provider counted more.
    """
    if as_csv and json:
        raise typer.BadParameter("Print either JSON or CSV: --json and --csv exclude each other.")
    with open_ledger(database, namespace) as ledger:
        only = wanted(ledger, older_than, newer_than, account=account, model=model)
        items: list[Any] = (
            ledger.read(tool_use, ledger.now(), only)
            if by == "tool"
            else ledger.read(spending, ledger.now(), by, only)
        )
    if json:
        show_json({"by": by, "items": items, "next": None})
    elif as_csv:
        _show_csv(items, ToolUse if by == "tool" else Spending)
    elif by == "tool":
        show_table(("TOOL", *USED), map(_tool_row, items), empty="No tool was run.")
    else:
        show_table((by.upper(), *SPENT), map(_row, items), empty="Nothing was called.")


def _row(item: Spending) -> tuple[object, ...]:
    return (
        item.key,
        item.invocations,
        item.settled,
        item.actual.total_tokens,
        item.reserved.total_tokens,
        "" if item.currency is None else money(item.actual.cost, item.currency),
        item.counted,
        item.measured,
        item.exceeded,
        item.unknown,
        amounts_text(item.exposure, item.currency) if item.unknown else "",
    )


def _tool_row(item: ToolUse) -> tuple[object, ...]:
    name = tool_label(item.tool_namespace, item.tool_name)
    counts = (item.executions, item.done, item.failed, item.refused, item.denied, item.waiting)
    return (name, item.tool_version, *counts, item.unknown)


def _show_csv(items: Iterable[Any], kind: type[Any]) -> None:
    """The fields of the JSON in their order, those that are amounts as one column for each dimension."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    sample = plain(kind("", None) if kind is Spending else kind("", "", "", *[0] * 7))
    writer.writerow(name for name, _ in _flat(sample))
    writer.writerows([value for _, value in _flat(plain(item))] for item in items)


def _flat(record: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from ((f"{name}_{dimension}", value[dimension]) for dimension in DIMENSIONS)
        else:
            yield name, value
