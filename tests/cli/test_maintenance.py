"""``memoflow db``, ``verify``, ``purge`` and ``demo``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memoflow.budget import Budget
from memoflow.ledger import schema as s
from memoflow.ledger.activities import CompleteActivity
from memoflow.ledger.migrate import HEAD
from tests.cli._run import Cli
from tests.ledger._calls import ask, identity, open_ledger, output
from tests.ledger._support import connect


def test_a_schema_is_brought_up_and_checked(empty_database_url: str) -> None:
    """Before: exit code 1 and what to do. After: exit code 0. Both are JSON too."""
    cli = Cli("")
    where = ("--database", empty_database_url)
    before = cli("db", "check", *where, database=False)
    assert (before.code, "db upgrade" in before.out) == (1, True)
    assert cli("db", "check", "--json", *where, database=False).json == {
        "found": None,
        "needed": HEAD,
        "current": False,
    }
    assert HEAD in cli.ok("db", "upgrade", *where, database=False).out
    assert cli.ok("db", "check", "--json", *where, database=False).json["current"] is True
    assert HEAD in cli.ok("db", "check", *where, database=False).out


def test_roles_are_printed_as_sql() -> None:
    """Names can be chosen; a name that is no identifier is refused."""
    cli = Cli("")
    out = cli.ok("db", "roles", "--worker", "w1", database=False).out
    assert "CREATE ROLE w1" in out
    assert "CREATE ROLE memoflow_operator" in out
    assert cli("db", "roles", "--worker", "x; DROP", database=False).code == 2
    assert cli("db", "roles", "--worker", "same", "--reader", "same", database=False).code == 2


def test_verify_is_quiet_about_a_sound_ledger(database_url: str) -> None:
    """One sentence and exit code 0."""
    with open_ledger(database_url) as ledger:
        ledger.put("acme", Budget(total_tokens=100))
        fence = ledger.claim()
        ledger.settle(fence, ledger.start(fence, ask(total_tokens=10)), 1, 2)
    cli = Cli(database_url)
    assert cli.ok("verify").out.startswith("Everything agrees")
    assert cli.ok("verify", "--json").json == {"items": [], "next": None}


@pytest.mark.parametrize("named", [True, False])
def test_verify_names_what_differs(sqlite_url: str, named: bool) -> None:
    """In every namespace unless one is named; exit code 1."""
    with open_ledger(sqlite_url) as ledger:
        ledger.put("acme", Budget(total_tokens=100), namespace="other")
    with connect(sqlite_url) as connection:
        connection.exec_driver_sql("UPDATE balances SET seq = 1, settled_total_tokens = 5")
    cli = Cli(sqlite_url)
    where = ("--database", sqlite_url, *(("--namespace", "other") if named else ()))
    result = cli("verify", *where, database=False)
    assert result.code == 1
    assert "balances" in result.out
    items = cli("verify", "--json", *where, database=False).json["items"]
    assert {"code", "table", "id", "message"} == set(items[0])
    assert cli.ok("verify", "--namespace", "tests", "--database", sqlite_url, database=False)


def test_purging_erases_what_has_expired_only(database_url: str) -> None:
    """By the database's clock, in one namespace; the digest stays."""
    with open_ledger(database_url) as ledger:
        ledger.now = 1_600_000_000_000_000
        rows: list[Any] = []
        for days in (1, None):
            fence = ledger.claim(identity(f"a{days}"))
            kept = output(fence.activity_id, "output")
            retained = replace(kept, retain_us=None if days is None else days * 86_400_000_000)
            ledger.do(CompleteActivity(fence, "sha256:output", retained))
            rows.append(kept.owner_id)
        cli = Cli(database_url)
        assert Cli(database_url, "other").ok("purge").out == "Erased 0 expired outputs.\n"
        assert cli.ok("purge").out == "Erased 1 expired outputs.\n"
        assert cli.ok("purge").out == "Erased 0 expired outputs.\n"
        left = {row.owner_id: row.ciphertext is not None for row in ledger.rows(s.outputs)}
        assert left == {rows[0]: False, rows[1]: True}


@pytest.mark.parametrize("args", [("--live",), ("--model", "m")])
def test_a_live_demo_needs_a_model_and_only_that_one_does(args: tuple[str, ...]) -> None:
    """A half of it is wrong usage."""
    assert Cli("")("demo", *args, database=False).code == 2


@pytest.mark.parametrize("code", [0, 1])
def test_the_demo_ends_with_its_own_exit_code(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its claims are its own tests' matter; here only that options arrive and the code leaves."""
    seen: dict[str, Any] = {}

    def main(**options: Any) -> int:
        seen.update(options)
        return code

    monkeypatch.setattr("memoflow.demo.main", main)
    assert Cli("")("demo", "--live", "--model", "m", database=False).code == code
    assert seen == {"live": True, "model": "m", "keep": None}
