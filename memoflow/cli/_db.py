"""``memoflow db``: the schema and its roles."""

from __future__ import annotations

from typing import Annotated

import typer

from memoflow.cli._open import database_url
from memoflow.cli._options import AsJson, DatabaseUrl, usage
from memoflow.cli._screen import say, show_json
from memoflow.errors import SchemaOutdated
from memoflow.ledger import migrate
from memoflow.ledger.roles import OPERATOR, READER, WORKER, roles_sql
from memoflow.settings import MemoflowSettings

__all__ = ["app", "check", "roles", "upgrade"]

app = typer.Typer(help="The ledger's schema and database roles.", no_args_is_help=True)


@app.command()
def upgrade(database: DatabaseUrl = None) -> None:
    """Bring the ledger to the schema this version needs; safe to run from many places at once."""
    revision = migrate.upgrade(database_url(database, MemoflowSettings()))
    say(f"The ledger is at revision {revision}.")


@app.command()
def check(database: DatabaseUrl = None, json: AsJson = False) -> None:
    """Tell whether the ledger has the schema this version needs. Exit code 1 if not. Changes nothing."""
    state = migrate.check(database_url(database, MemoflowSettings()))
    if json:
        show_json({"found": state.found, "needed": state.needed, "current": state.current})
    else:
        say(_finding(state))
    raise typer.Exit(0 if state.current else 1)


def _finding(state: migrate.SchemaState) -> str:
    try:
        state.require()
    except SchemaOutdated as finding:
        return str(finding)
    return f"The ledger is at revision {state.found}, which is the one needed."


@app.command()
def roles(
    schema: Annotated[str, typer.Option(metavar="NAME", help="Where the ledger's tables are.")] = "public",
    worker: Annotated[str, typer.Option(metavar="NAME", help="The role that runs activities.")] = WORKER,
    operator: Annotated[str, typer.Option(metavar="NAME", help="The role that decides.")] = OPERATOR,
    reader: Annotated[str, typer.Option(metavar="NAME", help="The role that only reads.")] = READER,
) -> None:
    """Print the SQL that gives workers, operators and readers exactly what they need (PostgreSQL).

    Pipe it to psql -v ON_ERROR_STOP=1 as a superuser, or as an owner with CREATEROLE; then GRANT the roles.
    """
    with usage():
        sql = roles_sql(schema=schema, worker=worker, operator=operator, reader=reader)
    typer.echo(sql, nl=False)
