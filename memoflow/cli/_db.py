"""``memoflow db``: the schema and its roles."""

from __future__ import annotations

from typing import Annotated

import typer

from memoflow.cli._open import database_url
from memoflow.cli._options import AsJson, DatabaseUrl
from memoflow.cli._screen import say, show_json
from memoflow.settings import MemoflowSettings

__all__ = ["app", "check", "roles", "upgrade"]

app = typer.Typer(help="The ledger's schema and database roles.", no_args_is_help=True)


@app.command()
def upgrade(database: DatabaseUrl = None) -> None:
    """Bring the ledger to the schema this version needs; safe to run from many places at once."""
    from memoflow.ledger import migrate

    revision = migrate.upgrade(database_url(database, MemoflowSettings()))
    say(f"The ledger is at revision {revision}.")


@app.command()
def check(database: DatabaseUrl = None, json: AsJson = False) -> None:
    """Tell whether the ledger has the schema this version needs. Exit code 1 if not. Changes nothing."""
    from memoflow.ledger import migrate

    state = migrate.check(database_url(database, MemoflowSettings()))
    if json:
        show_json({"found": state.found, "needed": state.needed, "current": state.current})
    elif state.current:
        say(f"The ledger is at revision {state.found}, which is the one needed.")
    else:
        found = state.found or "none"
        say(f"The ledger is at revision {found}, and {state.needed} is needed: run `memoflow db upgrade`.")
    raise typer.Exit(0 if state.current else 1)


@app.command()
def roles(
    schema: Annotated[str, typer.Option(help="Where the ledger's tables are.")] = "public",
    worker: Annotated[str, typer.Option(help="The role that runs activities.")] = "memoflow_worker",
    operator: Annotated[str, typer.Option(help="The role that decides.")] = "memoflow_operator",
    reader: Annotated[str, typer.Option(help="The role that only reads.")] = "memoflow_reader",
) -> None:
    """Print the SQL that gives workers, operators and readers exactly what they need (PostgreSQL)."""
    from memoflow.ledger.roles import roles_sql

    typer.echo(roles_sql(schema=schema, worker=worker, operator=operator, reader=reader), nl=False)
