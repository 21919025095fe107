"""The commands put together, and what becomes of an error."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from memoflow import __version__
from memoflow.cli import (
    _approvals,
    _audit,
    _audit_run,
    _budget,
    _db,
    _effects,
    _gateway,
    _inspect,
    _inspect_report,
    _invocations,
    _maintenance,
    _reconcile,
    _report,
    _runs,
)
from memoflow.cli._options import AsJson
from memoflow.cli._text import clean
from memoflow.errors import MemoflowError
from memoflow.ledger.dialect import DATABASE_ERRORS, forbidden

__all__ = ["app", "demo", "demo_audit", "memoflow"]


class _Sentences(TyperGroup):
    """Turns a refusal into its sentence on standard error and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MemoflowError as error:
            sentence = str(error)
        except DATABASE_ERRORS as error:
            sentence = _database_sentence(error)
        typer.echo(f"memoflow: {clean(sentence)}", err=True)
        raise typer.Exit(1)


def _database_sentence(error: BaseException) -> str:
    """What the ledger did not classify: a file that is damaged, or rights that a role does not have."""
    if forbidden(error):
        return (
            "The database role may not do this; nothing was changed. Use a role that may: "
            "`memoflow db roles` prints what each of them may do."
        )
    cause = getattr(error, "orig", error)
    code = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or "no code"
    return (
        f"The ledger's tables cannot be used as they are ({type(cause).__name__}, {code}): the database is "
        "damaged, or its schema was changed by hand. Restore a backup."
    )


app = typer.Typer(
    cls=_Sentences,
    help="Budgeted, recorded, safely retried model calls: budgets, records and decisions.",
    no_args_is_help=True,
    add_completion=False,
    # Plain help and plain tracebacks: no frame may show the value of a variable.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for name, module in (
    ("db", _db),
    ("budget", _budget),
    ("runs", _runs),
    ("invocations", _invocations),
    ("effects", _effects),
    ("reconcile", _reconcile),
    ("approvals", _approvals),
    ("audit", _audit),
    ("gateway", _gateway),
    ("inspect", _inspect),
):
    app.add_typer(module.app, name=name)
_inspect.app.command("report")(_inspect_report.report)
_audit.app.command("run")(_audit_run.run)
_audit.app.command("export")(_audit_run.export)
app.command("report")(_report.report)
app.command("verify")(_maintenance.verify)
app.command("purge")(_maintenance.purge)


_demo = typer.Typer(invoke_without_command=True)
app.add_typer(_demo, name="demo")


@_demo.callback()
def demo(
    ctx: typer.Context,
    live: Annotated[bool, typer.Option("--live", help="Use the real API and OPENAI_API_KEY.")] = False,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="The model to ask with --live.")] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", help="Keep its ledger in this directory, which must not exist yet."
        ),
    ] = None,
) -> None:
    """Watch a worker die and nothing be paid or done twice. Needs no key and no network."""
    if ctx.invoked_subcommand is not None:
        return
    if live != (model is not None):
        raise typer.BadParameter("--live and --model NAME go together: the one needs the other.")
    from memoflow.demo import main

    raise typer.Exit(main(live=live, model=model, keep=keep))


@_demo.command("audit")
def demo_audit(
    json: AsJson = False,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", help="Keep its logs and rules in this directory, which must not exist yet."
        ),
    ] = None,
) -> None:
    """Watch an unapproved action be found in the traces of two providers. Needs no key and no network."""
    from memoflow.demo.audit import main

    raise typer.Exit(main(as_json=json, keep=keep))


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"memoflow {__version__}")
        raise typer.Exit


@app.callback()
def memoflow(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Budgeted, recorded, safely retried model calls: budgets, records and decisions.

    The ledger is named by --database or MEMOFLOW_DATABASE_URL. Exit codes: 0 fine, 1 refused or something
    was found, 2 wrong usage.
    """
