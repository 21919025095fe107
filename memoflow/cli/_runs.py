"""``memoflow runs``: runs, activities and attempts."""

from __future__ import annotations

from typing import Annotated

import typer

from memoflow.cli._open import open_ledger
from memoflow.cli._options import (
    After,
    AsJson,
    DatabaseUrl,
    Limit,
    Namespace,
    NewerThan,
    OlderThan,
    Workflow,
    choice_option,
    name_argument,
)
from memoflow.cli._pages import page_json, say_next, wanted
from memoflow.cli._screen import show_json, show_table
from memoflow.cli._text import moment
from memoflow.errors import NotFound
from memoflow.ledger.runs import ActivityInfo, list_activities, list_runs

__all__ = ["app", "list_", "show"]

app = typer.Typer(help="Runs, their activities and attempts.", no_args_is_help=True)

State = Annotated[
    str | None, choice_option("Only those with an activity in this state:", "RUNNING", "FREE", "COMPLETED")
]


@app.command("list")
def list_(
    state: State = None,
    workflow: Workflow = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Limit = 50,
    after: After = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """List runs, newest first."""
    with open_ledger(database, namespace) as ledger:
        only = wanted(
            ledger, older_than, newer_than, state=state, workflow_id=workflow, limit=limit, after=after
        )
        page = ledger.read(list_runs, only)
    if json:
        show_json(page_json(page))
        return
    rows = [
        (
            run.workflow_id,
            run.run_id,
            f"{run.completed}/{run.activities}",
            run.running,
            run.attempts,
            moment(run.created_at),
        )
        for run in page.items
    ]
    headers = ("WORKFLOW", "RUN", "COMPLETED", "RUNNING", "ATTEMPTS", "CREATED")
    show_table(headers, rows, empty="No runs.")
    say_next(page)


@app.command()
def show(
    workflow: Annotated[str, name_argument("workflow", "The workflow id.", metavar="WORKFLOW")],
    run: Annotated[str, name_argument("run", "The run id.", metavar="RUN")],
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Show the activities of a run and every attempt at them."""
    with open_ledger(database, namespace) as ledger:
        activities = ledger.read(list_activities, workflow, run, ledger.now())
        if not activities:
            raise NotFound(what="run", id=f"{workflow}/{run}", namespace=ledger.namespace)
    if json:
        show_json({"workflow_id": workflow, "run_id": run, "activities": activities})
        return
    rows = [row for activity in activities for row in _rows(activity)]
    show_table(
        ("ACTIVITY", "TYPE", "STATE", "ATTEMPT", "OUTCOME", "WORKER", "CLAIMED", "ENDED"), rows, empty=""
    )


def _rows(activity: ActivityInfo) -> list[tuple[object, ...]]:
    state = f"{activity.state}, lease over" if activity.lease_over else activity.state
    head = (activity.activity_id, f"{activity.activity_type} {activity.activity_version}", state)
    rows: list[tuple[object, ...]] = []
    for attempt in activity.attempts:
        outcome = attempt.state if attempt.error_type is None else f"{attempt.state} ({attempt.error_type})"
        times = moment(attempt.claimed_at), moment(attempt.ended_at)
        rows.append((*head, attempt.number, outcome, attempt.worker, *times))
        head = ("", "", "")
    return rows
