"""``memoflow inspect report``: what inspection decided on the calls in a ledger."""

from __future__ import annotations

from typing import Annotated, Any

from memoflow.cli._open import open_ledger
from memoflow.cli._options import (
    Activity,
    AsJson,
    DatabaseUrl,
    Model,
    Namespace,
    NewerThan,
    OlderThan,
    Run,
    Workflow,
    name_option,
)
from memoflow.cli._pages import wanted
from memoflow.cli._screen import say, show_json, show_table
from memoflow.identity import tool_label
from memoflow.inspection.report import InspectionReport, summed
from memoflow.ledger.queries import Filter, every_effect

__all__ = ["report"]

_RULES = ("RULE", "VERDICT", "CALLS", "TOOLS")
_TOOLS = ("TOOL", "CALLS", "ASKED", "DENIED", "NOT INSPECTED", "RATE")


def report(
    tool: Annotated[str | None, name_option("tool", "Only calls of this tool.", metavar="NAME")] = None,
    workflow: Workflow = None,
    run: Run = None,
    activity: Activity = None,
    model: Model = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Show how often calls are interrupted, or would be, and by which rules.

    In shadow mode nothing is: what is counted is what enforcing would do. Counted are the tool calls of
    runtimes; what a gateway decided tells `memoflow gateway inspections`.
    """
    with open_ledger(database, namespace) as ledger:
        only = wanted(
            ledger,
            older_than,
            newer_than,
            tool=tool,
            workflow_id=workflow,
            run_id=run,
            activity_id=activity,
            model=model,
            limit=1_000,
        )
        found = ledger.read(_summed, only)
    if json:
        show_json(found)
    else:
        _show(found)


def _summed(connection: Any, namespace: str, only: Filter) -> InspectionReport:
    return summed(every_effect(connection, namespace, only))


def _show(found: InspectionReport) -> None:
    shadow = f", {found.shadow} of them in shadow mode" if found.shadow else ""
    say(f"{found.calls} calls were judged{shadow}; {found.unjudged} were not.")
    say(
        f"{found.asked + found.denied} were or would be interrupted (rate {found.rate}): {found.asked} asked "
        f"about, {found.denied} denied. {found.not_inspected} could not be inspected."
    )
    if found.rules:
        rows = ((one.rule or "(none)", one.verdict, one.calls, one.tools) for one in found.rules)
        show_table(_RULES, rows, empty="")
    if found.tools:
        show_table(_TOOLS, map(_tool_row, found.tools), empty="")


def _tool_row(one: Any) -> tuple[object, ...]:
    return (
        tool_label(one.tool_namespace, one.tool_name),
        one.calls,
        one.asked,
        one.denied,
        one.not_inspected,
        one.rate,
    )
