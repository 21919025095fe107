"""``memoflow audit run`` and ``export``: the causal log that a ledger is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

import typer

from memoflow.cli._audit import PRINTERS, Format, Profile, Rules, WithFormat
from memoflow.cli._open import open_ledger
from memoflow.cli._options import DatabaseUrl, Namespace, name_argument, usage
from memoflow.cli._screen import say

__all__ = ["export", "run"]

Workflow = Annotated[str, name_argument("workflow", "The workflow id.", metavar="WORKFLOW")]
Run = Annotated[
    str | None, name_argument("run", "The run id; all runs of the workflow if left out.", metavar="RUN")
]


def run(
    workflow: Workflow,
    run: Run = None,
    config: Rules = None,
    format: WithFormat = Format.TEXT,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
) -> None:
    """Audit a run by what the ledger says about it. Exit code 1 if anything fails; warnings do not."""
    from memoflow.causal.config import load_strict
    from memoflow.causal.ledger import ledger_rules
    from memoflow.causal.reports import Subject
    from memoflow.causal.strict import audit_strict

    with usage("'--config'"):
        rules = ledger_rules(load_strict(config) if config else None)
    subject = Subject(workflow if run is None else f"{workflow}/{run}")
    with (
        open_ledger(database, namespace) as ledger,
        ledger.auditor().records(workflow_id=workflow, run_id=run) as records,
    ):
        result = audit_strict(subject.passing(enumerate(records, start=1)), rules)
    PRINTERS[format](result, subject, Profile.STRICT)
    raise typer.Exit(0 if result.passed else 1)


def export(
    workflow: Workflow,
    run: Run = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write; standard output if left out.")
    ] = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
) -> None:
    """Write the causal records of a run as JSON Lines, for `memoflow audit check` or anybody else."""
    from memoflow.causal.jsonl import write_jsonl

    with (
        open_ledger(database, namespace) as ledger,
        ledger.auditor().records(workflow_id=workflow, run_id=run) as records,
        _written_to(out) as file,
    ):
        written = write_jsonl(records, file)
    if out is not None:
        say(f"{written} records written.")


@contextmanager
def _written_to(out: Path | None) -> Iterator[IO[bytes]]:
    """A new file, once it is known that there is something to write into it; or standard output."""
    if out is None:
        yield sys.stdout.buffer
        return
    try:
        file = out.open("xb")
    except OSError as error:
        why = f"{str(out)!r} cannot be created ({error.strerror})."
        raise typer.BadParameter(why, param_hint="'--out'") from None
    with file:
        yield file
