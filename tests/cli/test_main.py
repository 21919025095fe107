"""What all commands share: help, exit codes, where the ledger is, and that mistakes make no tracebacks."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from sqlalchemy import CheckConstraint, Table
from typer.testing import CliRunner

from memoflow import __version__
from memoflow.cli._app import app
from memoflow.ledger import schema
from tests.cli._run import Cli
from tests.ledger._calls import open_ledger

GROUPS = {
    "approvals": ["list", "show", "approve", "deny"],
    "db": ["upgrade", "check", "roles"],
    "budget": ["put", "show", "list", "history", "close", "reopen", "allow-unpriced"],
    "runs": ["list", "show"],
    "invocations": ["list", "show"],
    "effects": ["list", "show"],
    "reconcile": [
        "list",
        "show",
        "settle",
        "release",
        "happened",
        "did-not-happen",
        "write-off",
        "auto",
    ],
    "audit": ["chain", "check", "export", "run"],
    "demo": ["audit"],
    "gateway": ["inspections", "keys"],
    "gateway keys": ["create", "list", "show", "revoke"],
    "inspect": ["policy", "report", "test"],
}
READS = [
    ["db", "check"],
    ["budget", "show", "x"],
    ["budget", "list"],
    ["budget", "history", "x"],
    ["runs", "list"],
    ["runs", "show", "w", "r"],
    ["invocations", "list"],
    ["invocations", "show", "x"],
    ["effects", "list"],
    ["effects", "show", "x"],
    ["reconcile", "list"],
    ["reconcile", "show", "x"],
    ["gateway", "inspections"],
    ["gateway", "inspections", "x"],
    ["gateway", "keys", "list"],
    ["gateway", "keys", "show", "x"],
    ["report"],
    ["verify"],
]


def run(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``memoflow`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "memoflow.cli", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )


def commands() -> dict[str, list[str]]:
    """The commands there are, by group."""
    return dict(_groups(typer.main.get_command(app)))


def _groups(group: Any, *above: str) -> Iterator[tuple[str, list[str]]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield " ".join((*above, name)), list(command.commands)
            yield from _groups(command, *above, name)


def test_every_command_is_there() -> None:
    """The groups and commands that the documentation names, and no others."""
    assert {name: sorted(found) for name, found in commands().items()} == {
        name: sorted(wanted) for name, wanted in GROUPS.items()
    }
    root: Any = typer.main.get_command(app)
    assert sorted(set(root.commands) - set(GROUPS)) == ["purge", "report", "verify"]


@pytest.mark.parametrize(
    "command", [[*group.split(), name] for group, names in GROUPS.items() for name in names]
)
def test_every_command_explains_itself(command: list[str]) -> None:
    """--help says what it does, and every option says what it is for."""
    result = CliRunner().invoke(app, [*command, "--help"], prog_name="memoflow", terminal_width=500)
    assert result.exit_code == 0
    assert f"Usage: memoflow {' '.join(command)}" in result.stdout
    options = [line.split("  ", 2) for line in result.stdout.splitlines() if line.startswith("  --")]
    assert options
    assert [line for line in options if len(line) < 3 or not line[2].strip()] == []


def test_every_read_can_print_json() -> None:
    """--json is on every command that only looks."""
    root: Any = typer.main.get_command(app)
    for read in READS:
        command, words = root, list(read)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        assert "--json" in [option for parameter in command.params for option in parameter.opts]


def test_the_version_is_told() -> None:
    """Without opening anything."""
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"memoflow {__version__}\n")


@pytest.mark.parametrize(
    "args",
    [
        ["nonsense"],
        ["budget", "nonsense"],
        ["budget", "show"],
        ["budget", "put", "acme", "--total-tokens", "many"],
        ["budget", "put", "acme", "--total-tokens", "-1"],
        ["invocations", "list", "--limit", "0"],
        ["invocations", "list", "--older-than", "soon"],
        ["invocations", "list", "--older-than", "٣d"],
        ["invocations", "list", "--after", "page-2"],
        ["invocations", "list", "--workflow", ""],
        ["invocations", "show", "\udcff"],
        ["runs", "list", "--account", "acme"],
        ["budget", "show", "acme//support"],
        ["budget", "list", "--under", "/"],
        ["reconcile", "release", "id", "--reason", "x"],
        ["reconcile", "did-not-happen", "id", "--reason", "x"],
        ["reconcile", "settle", "id"],
        ["reconcile", "write-off", "--older-than", "30", "--reason", "x"],
    ],
)
def test_wrong_usage_is_exit_code_2(sqlite_url: str, args: list[str]) -> None:
    """It is told on standard error, with where help is."""
    result = Cli(sqlite_url)(*args)
    assert result.code == 2
    assert result.out == ""
    assert "--help" in result.err


@pytest.mark.parametrize(
    ("group", "table"),
    [("runs", schema.activities), ("invocations", schema.invocations), ("effects", schema.effects)],
)
def test_a_state_is_one_that_there_is(sqlite_url: str, group: str, table: Table) -> None:
    """Exactly the states that the ledger can hold, in any case; another word is told which there are."""
    (known,) = [one for one in table.constraints if one.name == f"ck_{table.name}_state_known"]
    assert isinstance(known, CheckConstraint)
    states = re.findall(r"'(\w+)'", str(known.sqltext))
    cli = Cli(sqlite_url)
    for state in states:
        cli.ok(group, "list", "--state", state.lower())
    result = cli(group, "list", "--state", "DOEN")
    assert (result.code, result.out) == (2, "")
    assert f"'DOEN' is not one of {', '.join(states)}." in result.err


def test_a_namespace_that_cannot_be_is_wrong_usage(sqlite_url: str) -> None:
    """As an option; in the environment it is a setting that is not valid."""
    result = Cli(sqlite_url, "a\nb")("budget", "list")
    assert result.code == 2
    assert "--namespace" in result.err


def test_a_command_without_a_ledger_says_how_to_name_one() -> None:
    """That is wrong usage, not a refusal."""
    result = Cli("")("budget", "list", database=False)
    assert result.code == 2
    assert "MEMOFLOW_DATABASE_URL" in result.err


def test_the_environment_names_ledger_and_namespace(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And an option wins over it."""
    with open_ledger(sqlite_url) as ledger:
        ledger.put("here")
        ledger.put("there", namespace="other")
    monkeypatch.setenv("MEMOFLOW_DATABASE_URL", sqlite_url)
    monkeypatch.setenv("MEMOFLOW_NAMESPACE", "tests")
    cli = Cli("")
    assert cli.ok("budget", "list", "--json", database=False).json["items"][0]["path"] == "here"
    other = cli.ok("budget", "list", "--json", "--namespace", "other", database=False)
    assert other.json["items"][0]["path"] == "there"


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("sqlite:///{tmp}/none.db", "none.db' does not exist"),
        ("sqlite:///{tmp}/no/directory.db", "does not exist"),
        ("sqlite:///{tmp}/text.db", "SQLITE_NOTADB"),
        ("sqlite:///{tmp}/empty.db", "memoflow db upgrade"),
        ("sqlite://", "plain file"),
        ("mysql://host/db", "not supported"),
        ("not a url", "database URL cannot be"),
        ("postgresql://nobody@127.0.0.1:1/none", "could not be reached"),
    ],
)
def test_a_ledger_that_cannot_be_used_is_a_sentence(tmp_path: Path, url: str, word: str) -> None:
    """Exit code 1, one line on standard error, no traceback, and no file is created."""
    (tmp_path / "text.db").write_text("hello " * 500)
    (tmp_path / "empty.db").touch()
    result = Cli(url.format(tmp=tmp_path))("budget", "list")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("memoflow: ")
    assert result.err.count("\n") == 1
    assert word in result.err
    assert not (tmp_path / "none.db").exists()


def test_a_bad_setting_is_a_sentence(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not repeat the value."""
    monkeypatch.setenv("MEMOFLOW_OUTPUT_KEYS", "k1:secret-but-too-short")
    result = Cli(sqlite_url)("budget", "list")
    assert result.code == 1
    assert "MEMOFLOW_OUTPUT_KEYS" in result.err
    assert "secret" not in result.err


@pytest.mark.parametrize("args", [read for read in READS if "x" in read or "w" in read])
def test_what_is_not_there_is_exit_code_1(sqlite_url: str, args: list[str]) -> None:
    """A sentence that says what is missing, on standard error."""
    result = Cli(sqlite_url)(*args)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("memoflow: ")


@pytest.mark.parametrize("args", READS)
def test_empty_ledgers_read_well(database_url: str, args: list[str]) -> None:
    """Every read works on a fresh database of each kind, as text and as JSON."""
    cli = Cli(database_url)
    if args in (["db", "check"], ["verify"], ["report"]) or args[1] == "list":
        with_where = args != ["db", "check"]
        where = [] if with_where else ["--database", database_url]
        assert cli.ok(*args, *where, database=with_where).out.strip()
        assert isinstance(cli.ok(*args, "--json", *where, database=with_where).json, dict)


def test_a_process_of_its_own_ends_with_the_codes(sqlite_url: str) -> None:
    """The installed entry point: 0, 1 and 2, sentences on standard error."""
    fine = run("budget", "list", MEMOFLOW_DATABASE_URL=sqlite_url)
    refused = run("budget", "show", "acme", MEMOFLOW_DATABASE_URL=sqlite_url)
    wrong = run("budget")
    assert (fine.returncode, refused.returncode, wrong.returncode) == (0, 1, 2)
    assert "Traceback" not in refused.stderr
    assert "does not exist" in refused.stderr


def test_reading_imports_no_provider_sdk() -> None:
    """A command line that only looks starts without the SDK."""
    code = "import sys, memoflow.cli; print('openai' in sys.modules, 'alembic' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False"]


def test_a_pipe_that_closes_is_no_traceback(sqlite_url: str) -> None:
    """`memoflow … | head` ends quietly."""
    with open_ledger(sqlite_url) as ledger:
        ledger.put("acme")
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(
        [sys.executable, "-m", "memoflow.cli", "budget", "list", "--database", sqlite_url],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(writing)
        _, err = process.communicate(timeout=60)
    assert "Traceback" not in err


def test_a_terminal_gets_colours_and_unfolded_rows(sqlite_url: str) -> None:
    """An id is in one piece however narrow the terminal, so that it can be copied."""
    path = "acme-with-a-rather-long-name-for-an-account-" + "x" * 80
    with open_ledger(sqlite_url) as ledger:
        ledger.put(path)
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "40"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "memoflow.cli", "budget", "list"),
            *("--database", sqlite_url, "--namespace", "tests"),
        ],
        stdout=child,
        env=environment,
    )
    os.close(child)
    with process, os.fdopen(parent, "rb") as terminal:
        shown = b""
        while chunk := _read(terminal.fileno()):
            shown += chunk
    assert path.encode() in shown
    assert b"\x1b[1mACCOUNT" in shown


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        # Linux reports the end of a pseudo-terminal as an input error.
        return b""
