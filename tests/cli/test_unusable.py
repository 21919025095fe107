"""Every command on every kind of ledger that cannot be used: a sentence, exit code 1, and no traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from memoflow.cli._app import app
from tests.cli._run import Cli
from tests.ledger._support import connect

WHY = ("--reason", "why", "--actor", "ann")
COMMANDS: list[tuple[str, ...]] = [
    ("db", "check"),
    ("db", "upgrade"),
    ("budget", "put", "acme", "--unlimited"),
    ("budget", "show", "acme"),
    ("budget", "list"),
    ("budget", "history", "acme"),
    ("budget", "close", "acme", *WHY),
    ("budget", "reopen", "acme", *WHY),
    ("budget", "allow-unpriced", "model", *WHY),
    ("runs", "list"),
    ("runs", "show", "w", "r"),
    ("invocations", "list", "--newer-than", "1h"),
    ("invocations", "show", "id"),
    ("effects", "list"),
    ("effects", "show", "id"),
    ("reconcile", "list"),
    ("reconcile", "show", "id"),
    ("reconcile", "settle", "id", *WHY),
    ("reconcile", "release", "id", "--evidence", "x", *WHY),
    ("reconcile", "happened", "id", *WHY),
    ("reconcile", "did-not-happen", "id", "--evidence", "x", *WHY),
    ("reconcile", "write-off", "--older-than", "1d", *WHY),
    ("reconcile", "auto"),
    ("approvals", "list"),
    ("approvals", "show", "id"),
    ("approvals", "approve", "id", *WHY),
    ("approvals", "deny", "id", *WHY),
    ("gateway",),
    ("gateway", "inspections"),
    ("gateway", "inspections", "id"),
    ("gateway", "keys", "create", "web", "--account", "acme", "--actor", "ann"),
    ("gateway", "keys", "list"),
    ("gateway", "keys", "show", "id"),
    ("gateway", "keys", "revoke", "id", *WHY),
    ("audit", "run", "w"),
    ("audit", "export", "w"),
    ("inspect", "report"),
    ("report",),
    ("report", "--by", "tool"),
    ("verify",),
    ("purge",),
]
WITHOUT_A_LEDGER = {
    ("audit", "chain"),
    ("audit", "check"),
    ("db", "roles"),
    ("demo",),
    ("demo", "audit"),
    ("inspect", "policy"),
    ("inspect", "test"),
}


def every_command() -> set[tuple[str, ...]]:
    """The names of all commands; a group that does something by itself is one, too."""
    return set(_commands(typer.main.get_command(app)))


def _commands(group: Any) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        inner = hasattr(command, "commands")
        if not inner or command.invoke_without_command:
            yield (name,)
        if inner:
            yield from ((name, *more) for more in _commands(command))


def named(args: tuple[str, ...]) -> tuple[str, ...]:
    """The command in a line: the longest that it begins with."""
    return max((one for one in every_command() if args[: len(one)] == one), key=len)


def test_no_command_is_left_out() -> None:
    """What is tried below are all commands that open a ledger."""
    assert {named(args) for args in COMMANDS} | WITHOUT_A_LEDGER == every_command()


def refusal(url: str, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> str:
    """The one line with which a command ends with exit code 1."""
    monkeypatch.setenv("MEMOFLOW_DATABASE_URL", url)
    # Exceptions that are not the end of the command pass through, and fail the test.
    result = Cli("")(*args, database=False)
    assert result.code == 1, (args, result)
    said = result.err or result.out
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("sqlite:///{tmp}/nowhere/x.db", "nowhere' does not exist"),
        ("sqlite:///{tmp}", "is a directory"),
        ("sqlite:///{tmp}/text.db", "SQLITE_NOTADB"),
        ("sqlite:///{tmp}/" + "n" * 300, "SQLITE_CANTOPEN"),
        ("sqlite:///{tmp}/a%00b", "plain file"),
        ("postgresql://nobody@127.0.0.1:1/none", "could not be reached"),
    ],
)
def test_what_is_no_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, word: str, args: tuple[str, ...]
) -> None:
    """Nothing is created."""
    (tmp_path / "text.db").write_text("hello " * 500)
    assert word in refusal(url.format(tmp=tmp_path), args, monkeypatch)
    assert [path.name for path in tmp_path.iterdir()] == ["text.db"]


@pytest.mark.parametrize("args", [one for one in COMMANDS if one != ("db", "upgrade")], ids=" ".join)
def test_a_file_that_is_not_there(
    empty_sqlite_url: str, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    """It is named whole, with both of the steps that may help."""
    said = refusal(empty_sqlite_url, args, monkeypatch)
    path = empty_sqlite_url.removeprefix("sqlite:///")
    assert f"the file '{path}' does not exist" in said
    assert "Correct the database URL, or create the ledger with `memoflow db upgrade`" in said
    assert not Path(path).exists()


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_a_later_schema(sqlite_url: str, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]) -> None:
    """Upgrading cannot help, so that is not what is said."""
    with connect(sqlite_url) as connection:
        connection.exec_driver_sql("UPDATE memoflow_revision SET version_num = '9999'")
    said = refusal(sqlite_url, args, monkeypatch)
    assert "9999" in said
    assert "Install the version that wrote it, or a later one" in said
    assert "upgrade" not in said


# The gateway looks into no table before somebody asks it.
READING = [one for one in COMMANDS if one[0] != "db" and one != ("gateway",)]


@pytest.mark.parametrize("args", READING, ids=" ".join)
def test_tables_that_are_gone(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    """What the schema's revision promises and the database does not have is no traceback either."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with connect(sqlite_url) as connection:
        tables = ("effects", "outputs", "invocations", "activities", "accounts", "decisions")
        for table in (*tables, "virtual_keys", "inspections"):
            connection.exec_driver_sql(f"ALTER TABLE {table} RENAME TO gone_{table}")
    assert "cannot be used as they are (OperationalError, SQLITE_ERROR)" in refusal(
        sqlite_url, args, monkeypatch
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter any directory")
def test_a_directory_that_may_not_be_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's code tells."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    for args in COMMANDS:
        assert "SQLITE_CANTOPEN" in refusal(f"sqlite:///{closed / 'x.db'}", args, monkeypatch)
