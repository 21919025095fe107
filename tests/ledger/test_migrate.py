"""Migrations: what they make, races of first starts, crashes in the middle, and refusals."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    LargeBinary,
    Text,
    inspect,
    text,
)

from memoflow.errors import ConfigurationError, LedgerUnavailable, SchemaOutdated
from memoflow.ledger import guards, migrate
from memoflow.ledger.schema import metadata
from tests.ledger._support import connect


def tables_of(url: str) -> list[str]:
    """The names of a database's tables."""
    with connect(url) as connection:
        return sorted(inspect(connection).get_table_names())


def test_upgrade_brings_an_empty_database_to_the_needed_revision(empty_database_url: str) -> None:
    """An empty database is at no revision; afterwards it is current, and doing it again changes nothing."""
    assert migrate.check(empty_database_url) == migrate.SchemaState(None, migrate.HEAD)
    assert migrate.upgrade(empty_database_url) == migrate.HEAD
    assert migrate.check(empty_database_url).current
    before = tables_of(empty_database_url)
    assert migrate.upgrade(empty_database_url) == migrate.HEAD
    assert tables_of(empty_database_url) == before == sorted([*metadata.tables, migrate.VERSION_TABLE])


def test_migrated_database_equals_the_metadata(database_url: str) -> None:
    """Alembic finds nothing to change between a migrated database and the schema module."""
    with connect(database_url) as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": True,
                "compare_server_default": True,
                "version_table": migrate.VERSION_TABLE,
            },
        )
        assert compare_metadata(context, metadata) == []


def reflect(connection: Connection) -> dict[str, Any]:
    """Everything the database knows about its tables, comparable."""
    inspector = inspect(connection)
    found: dict[str, Any] = {}
    for table in metadata.tables:
        columns = [{**c, "type": str(c["type"])} for c in inspector.get_columns(table)]
        found[table] = {
            "columns": columns,
            "primary": inspector.get_pk_constraint(table),
            "foreign": sorted(map(repr, inspector.get_foreign_keys(table))),
            "unique": sorted(map(repr, inspector.get_unique_constraints(table))),
            "checks": sorted(map(repr, inspector.get_check_constraints(table))),
            "indexes": sorted(map(_index, inspector.get_indexes(table))),
        }
    return found


def _index(index: Any) -> str:
    # The condition of a partial index is an object that has no equality.
    options = {name: str(value) for name, value in index.get("dialect_options", {}).items()}
    return repr({**index, "dialect_options": options})


def test_migrated_tables_are_those_that_the_metadata_creates(empty_database_url: str) -> None:
    """Columns, defaults, keys, CHECK constraints and partial indexes are as `create_all` makes them."""
    with connect(empty_database_url) as connection:
        metadata.create_all(connection)
        wanted = reflect(connection)
        metadata.drop_all(connection)
    migrate.upgrade(empty_database_url)
    with connect(empty_database_url) as connection:
        assert reflect(connection) == wanted
    assert all(wanted[table]["checks"] for table in ("accounts", "balances", "reservations"))


def test_every_column_is_an_integer_text_or_bytes() -> None:
    """No column is a float, a decimal or a date: amounts and times are integers (field case 50)."""
    allowed = (BigInteger, Integer, Text, LargeBinary)
    columns = [column for table in metadata.tables.values() for column in table.columns]
    assert [str(column) for column in columns if not isinstance(column.type, allowed)] == []
    times = [column for column in columns if column.name == "at" or column.name.endswith("_at")]
    assert times
    assert all(isinstance(column.type, BigInteger) for column in times)


def test_revisions_written_down_are_those_of_the_scripts() -> None:
    """The list of revisions that a start relies on is alembic's own chain, with one head."""
    config = Config()
    config.set_main_option("script_location", str(migrate.scripts()))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [migrate.HEAD]
    assert tuple(s.revision for s in reversed(list(scripts.walk_revisions()))) == migrate.REVISIONS


def test_an_application_may_keep_its_own_alembic_version(empty_database_url: str) -> None:
    """A version table of another alembic in the same database is neither read nor changed."""
    with connect(empty_database_url) as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num TEXT)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('theirs')"))
    migrate.upgrade(empty_database_url)
    with connect(empty_database_url) as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == [
            "theirs"
        ]


# From one revision to the next


def test_an_older_ledger_keeps_its_rows(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was recorded under the first revision is there after the last, with every column as it was."""
    with monkeypatch.context() as before:
        before.setattr(migrate, "HEAD", "0001")
        before.setattr(guards, "install", lambda connection: None)
        migrate.upgrade(empty_database_url)
    old = {"effects": OLD_EFFECT, "attempts": OLD_ATTEMPT}
    with connect(empty_database_url) as connection:
        for statement in OLD_ROWS:
            connection.execute(text(statement))
        for table, row in old.items():
            names, values = ", ".join(row), ", ".join(f":{name}" for name in row)
            connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({values})"), row)
    assert not migrate.check(empty_database_url).current
    assert migrate.upgrade(empty_database_url) == migrate.HEAD
    with connect(empty_database_url) as connection:
        for table, row in old.items():
            found = connection.execute(text(f"SELECT * FROM {table}")).mappings().one()
            assert {name: found[name] for name in row} == row
        assert guards.missing(connection) == []
        connection.execute(text("UPDATE effects SET state = 'DONE', result_digest = 'x' WHERE id = 'e'"))


OLD_ROWS = [
    "INSERT INTO activities (id, namespace, workflow_id, run_id, activity_id, activity_type, "
    "activity_version, input_digest, state, attempt, lease_expires_at, created_at) "
    "VALUES ('a', 'n', 'w', 'r', 'a', 't', 'v', 'd', 'RUNNING', 1, 1, 1)",
    "INSERT INTO invocations (id, namespace, activity_id, attempt, round, provider, api, model, "
    "request_digest, input_basis, state, started_at) "
    "VALUES ('i', 'n', 'a', 1, 0, 'p', 'x', 'm', 'd', 'none', 'SUCCEEDED', 1)",
]
OLD_ATTEMPT: dict[str, Any] = {
    "id": "a/1",
    "activity_id": "a",
    "number": 1,
    "worker": "w",
    "state": "RUNNING",
    "error_type": "E",
    "claimed_at": 7,
    "ended_at": 8,
}
OLD_EFFECT: dict[str, Any] = {
    "id": "e",
    "namespace": "n",
    "activity_id": "a",
    "attempt": 1,
    "invocation_id": "i",
    "ordinal": 2,
    "execution": 3,
    "call_id": "c",
    "kind": "function",
    "tool_namespace": "tn",
    "tool_name": "t",
    "tool_version": "v1",
    "effect_class": "idempotent",
    "idempotency_key": "k",
    "arguments_digest": "d",
    "state": "STARTED",
    "reason": "why",
    "result_digest": "rd",
    "result_bytes": 9,
    "error_type": "E",
    "decision_id": "dd",
    "started_at": 5,
    "finished_at": 6,
}


# Crashes


KILLED_AT_THE_END = """
import os, signal, sys
from memoflow.ledger import guards, migrate
install = guards.install
def crash(connection):
    install(connection)
    os.kill(os.getpid(), signal.SIGKILL)
guards.install = crash
migrate.upgrade(sys.argv[1])
"""


def test_a_killed_upgrade_leaves_nothing_half(empty_database_url: str) -> None:
    """SIGKILL between the last statement and the commit leaves an empty database that can be upgraded."""
    command = [sys.executable, "-c", KILLED_AT_THE_END, empty_database_url]
    done = subprocess.run(command, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert tables_of(empty_database_url) == []
    assert migrate.check(empty_database_url).found is None
    assert migrate.upgrade(empty_database_url) == migrate.HEAD


def test_a_failed_upgrade_leaves_nothing_half(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception after the last statement takes every table back, on SQLite too."""

    def fail(connection: Connection) -> None:
        raise RuntimeError("disk on fire")

    monkeypatch.setattr(guards, "install", fail)
    with pytest.raises(RuntimeError, match="disk on fire"):
        migrate.upgrade(empty_database_url)
    assert tables_of(empty_database_url) == []


# Refusals


def test_a_database_with_tables_of_others_is_left_alone(empty_database_url: str) -> None:
    """A table of the same name that is not ours is a refusal, and nothing of ours is left beside it."""
    with connect(empty_database_url) as connection:
        connection.execute(text("CREATE TABLE journal (note TEXT)"))
    with pytest.raises(ConfigurationError, match="nothing was changed"):
        migrate.upgrade(empty_database_url)
    assert tables_of(empty_database_url) == ["journal"]


def test_a_later_schema_is_refused(database_url: str) -> None:
    """A revision this version does not know is named, with what to do, and not touched."""
    with connect(database_url) as connection:
        connection.execute(text(f"UPDATE {migrate.VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(ConfigurationError, match=r"9999.*Install the version that wrote it"):
        migrate.upgrade(database_url)
    assert migrate.check(database_url).found == "9999"


def test_require_current_refuses_another_revision(database_url: str) -> None:
    """A database at another revision is refused with both revisions; the current one passes."""
    with connect(database_url) as connection:
        migrate.require_current(connection)
        connection.execute(text(f"UPDATE {migrate.VERSION_TABLE} SET version_num = '0000'"))
        with pytest.raises(SchemaOutdated) as caught:
            migrate.require_current(connection)
    assert (caught.value.found, caught.value.needed) == ("0000", migrate.HEAD)


def test_require_current_refuses_an_empty_database(empty_database_url: str) -> None:
    """A database that was never migrated is refused, and the connection stays usable."""
    with connect(empty_database_url) as connection:
        with pytest.raises(SchemaOutdated) as caught:
            migrate.require_current(connection)
        assert caught.value.found is None
        assert connection.execute(text("SELECT 1")).scalar_one() == 1


def test_check_creates_no_file(empty_sqlite_url: str) -> None:
    """Looking at a database that is not there does not make one."""
    assert migrate.check(empty_sqlite_url).found is None
    assert not Path(str(migrate.parse_url(empty_sqlite_url).database)).exists()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite://", "plain file"),
        ("sqlite:///:memory:", "plain file"),
        ("sqlite:///ledger.db?mode=ro", "no options"),
        ("sqlite:////nowhere/at/all/ledger.db", "'/nowhere/at/all' does not exist"),
        ("mysql://user:geheim@host/db", "mysql"),
        ("not a url geheim", "cannot be parsed"),
    ],
)
@pytest.mark.parametrize("call", [migrate.upgrade, migrate.check])
def test_a_url_that_cannot_work_is_refused(url: str, says: str, call: Any) -> None:
    """A URL of no use is a configuration error that says what to write, and repeats no password."""
    with pytest.raises(ConfigurationError, match=says) as caught:
        call(url)
    assert "geheim" not in str(caught.value)


def test_a_file_that_is_no_database_is_refused(empty_sqlite_url: str) -> None:
    """A file of another kind is a configuration error, and stays what it is."""
    path = Path(str(migrate.parse_url(empty_sqlite_url).database))
    path.write_text("a diary, " * 100)
    with pytest.raises(ConfigurationError, match="SQLITE_NOTADB"):
        migrate.upgrade(empty_sqlite_url)
    assert path.read_text() == "a diary, " * 100


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psycopg a PostgreSQL URL says what to install."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'memoflow-runtime\[postgres\]'"):
        migrate.upgrade("postgresql://localhost/nothing")


def test_a_server_that_is_away_is_unavailable(tmp_path: Path) -> None:
    """No connection is not a configuration error: it may pass."""
    with pytest.raises(LedgerUnavailable, match="could not be reached"):
        migrate.upgrade(f"postgresql://nobody@/nothing?host={tmp_path}")


def test_a_server_that_is_away_is_named() -> None:
    """With its host and port; a server has no file whose rights could be looked at."""
    with pytest.raises(LedgerUnavailable) as away:
        migrate.check("postgresql://nobody:secret@127.0.0.1:1/nothing")
    assert "at 127.0.0.1:1 could not be reached" in str(away.value)
    assert "OperationalError" in str(away.value)
    assert "that the server runs" in str(away.value)
    assert not {"file", "secret"} & set(re.findall(r"\w+", str(away.value)))


@pytest.mark.postgres
@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg"])
def test_both_spellings_of_a_postgresql_url_work(postgres_url: str, scheme: str) -> None:
    """``postgresql://`` means psycopg 3, whose name need not be written."""
    assert migrate.check(f"{scheme}:{postgres_url.partition(':')[2]}").current


# Where the scripts are


def test_scripts_of_the_installed_package_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed, the scripts lie inside the package; in a checkout beside it; nowhere is a refusal."""
    monkeypatch.setattr(migrate, "__file__", str(tmp_path / "memoflow" / "ledger" / "migrate.py"))
    with pytest.raises(ConfigurationError, match="Install memoflow-runtime again"):
        migrate.scripts()
    for directory in (tmp_path / "migrations", tmp_path / "memoflow" / "migrations"):
        directory.mkdir(parents=True)
        (directory / "env.py").touch()
        assert migrate.scripts() == directory


def test_alembic_alone_runs_nothing(empty_sqlite_url: str) -> None:
    """The scripts refuse a run past the lock."""
    from alembic import command

    config = Config()
    config.set_main_option("script_location", str(migrate.scripts()))
    config.set_main_option("sqlalchemy.url", empty_sqlite_url)
    with pytest.raises(RuntimeError, match="memoflow db upgrade"):
        command.upgrade(config, "head")


def test_downgrade_is_refused(database_url: str) -> None:
    """A ledger is not taken back to an older schema."""
    from alembic import command

    config = Config()
    config.set_main_option("script_location", str(migrate.scripts()))
    with connect(database_url) as connection:
        config.attributes["connection"] = connection
        with pytest.raises(NotImplementedError, match="Restore a backup"):
            command.downgrade(config, "base")
        connection.rollback()
    assert migrate.check(database_url).current
