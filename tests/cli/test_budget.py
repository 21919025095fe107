"""``memoflow budget``."""

from __future__ import annotations

import getpass

import pytest

from memoflow.budget import Budget, Money
from tests.cli._run import Cli
from tests.ledger._calls import ask, open_ledger

BLANK = {
    "total_tokens": 0,
    "input_tokens": 0,
    "output_tokens": 0,
    "model_calls": 0,
    "tool_calls": 0,
    "cost": "0",
    "wall_clock_ms": 0,
}


@pytest.fixture
def cli(sqlite_url: str) -> Cli:
    """A fresh ledger."""
    return Cli(sqlite_url)


def test_put_creates_an_account_and_shows_it(database_url: str) -> None:
    """Every limit has an option; the JSON is the documented shape."""
    cli = Cli(database_url)
    shown = cli.ok(
        *("budget", "put", "acme", "--total-tokens", "1000", "--input-tokens", "900", "--json"),
        *("--output-tokens", "800", "--model-calls", "7", "--tool-calls", "6", "--wall-clock-ms", "5"),
        *("--cost", "2.50", "--currency", "EUR", "--soft", "total_tokens=500", "--soft", "cost=1.25"),
        *("--period", "none", "--time-zone", "Europe/Berlin", "--actor", "ann", "--reason", "start"),
        "--strict-input",
    )
    assert shown.json == {
        "namespace": "tests",
        "path": "acme",
        "state": "OPEN",
        "period": "none",
        "time_zone": "Europe/Berlin",
        "currency": "EUR",
        "policy_version": 1,
        "hard": {
            "total_tokens": 1000,
            "input_tokens": 900,
            "output_tokens": 800,
            "model_calls": 7,
            "tool_calls": 6,
            "cost": "2.5",
            "wall_clock_ms": 5,
        },
        "soft": {"total_tokens": 500, "cost": "1.25"},
        "period_start": "1970-01-01T00:00:00.000000Z",
        "period_end": None,
        "settled": BLANK,
        "held": BLANK,
        "unknown": BLANK,
        "strict_input": True,
        "used": BLANK,
        "over_limit": [],
        "alerts": [],
    }
    assert cli.ok("budget", "show", "acme", "--json").json == shown.json


def test_history_tells_who_changed_what_and_why(cli: Cli) -> None:
    """The actor is the user of the shell unless one is named."""
    cli.ok("budget", "put", "acme", "--total-tokens", "10", "--reason", "start")
    cli.ok("budget", "put", "acme", "--cost", "2.5", "--soft", "model-calls=3", "--actor", "ann")
    cli.ok("budget", "close", "acme", "--reason", "moved", "--actor", "bob")
    cli.ok("budget", "reopen", "acme", "--reason", "back", "--actor", "bob")
    items = cli.ok("budget", "history", "acme", "--json").json["items"]
    assert [(one["version"], one["state"], one["actor"], one["reason"]) for one in items] == [
        (1, "OPEN", getpass.getuser(), "start"),
        (2, "OPEN", "ann", ""),
        (3, "CLOSED", "bob", "moved"),
        (4, "OPEN", "bob", "back"),
    ]
    assert (items[0]["hard"], items[1]["hard"], items[1]["soft"]) == (
        {"total_tokens": 10},
        {"cost": "2.5"},
        {"model_calls": 3},
    )
    text = cli.ok("budget", "history", "acme").out
    assert "total_tokens 10" in text
    assert "cost 2.5" in text


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ([], "--unlimited"),
        (["--unlimited", "--total-tokens", "5"], "--unlimited"),
        (["--unlimited", "--soft", "tokens=5"], "DIMENSION=AMOUNT"),
        (["--unlimited", "--soft", "total_tokens"], "DIMENSION=AMOUNT"),
        (["--unlimited", "--soft", "total_tokens=many"], "whole number"),
        (["--unlimited", "--soft", "total_tokens=-1"], "whole number"),
        (["--cost", "much"], "decimal number"),
        (["--cost", "1,5"], "'0.25'"),
        (["--cost", "1", "--currency", "euro"], "three capital letters"),
        (["--total-tokens", "5", "--currency", "euro"], "three capital letters"),
        (["--total-tokens", "1000000000000001"], "1000000000000000"),
        (["--unlimited", "--soft", f"total_tokens={'9' * 5000}"], "whole number"),
        (["--unlimited", "--soft", "cost=1,5"], "'0.25'"),
        (["--total-tokens", "5", "--soft", "total_tokens=6"], "soft limit of total_tokens, 6"),
        (["--total-tokens", "5", "--period", "year"], "one of none, hour, day, week, month, not 'year'"),
        (["--total-tokens", "5", "--time-zone", "Mars"], "Europe/Berlin"),
        (["--total-tokens", "5", "--reason", "a\nb"], "control characters"),
    ],
)
def test_limits_that_make_no_sense_are_refused(cli: Cli, args: list[str], word: str) -> None:
    """What is wrong in any ledger is wrong usage; nothing is created."""
    result = cli("budget", "put", "acme", *args)
    assert (result.code, result.out) == (2, "")
    assert word in result.err
    assert cli.ok("budget", "list", "--json").json == {"items": [], "next": None}


def test_removing_all_limits_has_to_be_said(cli: Cli) -> None:
    """A forgotten option does not make an account unlimited."""
    cli.ok("budget", "put", "acme", "--total-tokens", "10")
    assert cli("budget", "put", "acme").code == 2
    assert cli.ok("budget", "put", "acme", "--unlimited", "--json").json["hard"] == {}


def test_a_list_shows_balances_as_bars(cli: Cli) -> None:
    """Settled, held and unknown, dimension by dimension, with what is noteworthy."""
    with open_ledger(cli.url) as ledger:
        ledger.put("acme", Budget(total_tokens=100, cost=Money.of(1)), soft=Budget(total_tokens=40))
        ledger.put("acme/sub", Budget(model_calls=1))
        fence = ledger.claim()
        settled = ledger.start(fence, ask(total_tokens=20, cost=250_000_000), "acme")
        ledger.settle(fence, settled, 12, 8)
        unknown = ledger.start(fence, ask(total_tokens=30), "acme/sub")
        ledger.lose_reply(fence, unknown)
    out = cli.ok("budget", "list").out
    assert out.splitlines()[0].split() == [
        *("ACCOUNT", "PERIOD", "DIMENSION", "SETTLED", "HELD", "UNKNOWN", "LIMIT", "USE", "NOTES")
    ]
    rows = [" ".join(line.split()) for line in out.splitlines()[1:]]
    assert rows[0] == "acme none total_tokens 20 0 30 100 [####??????..........] 50% above soft 40"
    assert "cost 0 USD 0 USD 0 USD 1 USD [....................] 0%" in rows
    assert "acme/sub none total_tokens 0 0 30 -" in rows
    assert "model_calls 0 0 1 1 [????????????????????] 100%" in rows


def test_what_is_over_its_limit_or_closed_is_said(cli: Cli) -> None:
    """Both stop all calls, so both are in the notes."""
    with open_ledger(cli.url) as ledger:
        ledger.put("acme", Budget(total_tokens=10))
        fence = ledger.claim()
        ledger.settle(fence, ledger.start(fence, ask(total_tokens=10)), 20, 5)
    cli.ok("budget", "close", "acme", "--reason", "enough")
    out = cli.ok("budget", "show", "acme").out
    assert "CLOSED, OVER LIMIT" in out
    assert "250%" in out
    assert cli.ok("budget", "show", "acme", "--json").json["over_limit"] == ["total_tokens"]


def test_a_period_is_shown_with_its_end_and_zone(cli: Cli) -> None:
    """A reader sees when the limit resets."""
    cli.ok("budget", "put", "acme", "--total-tokens", "1", "--period", "day", "--time-zone", "Asia/Tokyo")
    out = cli.ok("budget", "show", "acme").out
    assert "day (Asia/Tokyo) to 2" in out
    assert "T15:00:00Z" in out


def test_a_list_can_be_narrowed_to_a_branch(cli: Cli) -> None:
    """One account and those below it."""
    for path in ("a", "a/b", "c"):
        cli.ok("budget", "put", path, "--unlimited")
    items = cli.ok("budget", "list", "--under", "a", "--json").json["items"]
    assert [item["path"] for item in items] == ["a", "a/b"]


def test_an_override_for_an_unpriced_model_is_recorded(cli: Cli) -> None:
    """With a reason, which is required."""
    assert cli("budget", "allow-unpriced", "model-x").code == 2
    out = cli.ok("budget", "allow-unpriced", "model-x", "--reason", "preview", "--actor", "ann").out
    assert "'model-x' may be called without a price" in out
    assert "of ann" in out
