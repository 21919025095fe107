"""``memoflow report``."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from memoflow.budget import Amounts, Budget, Money
from memoflow.ledger.effects import EffectResult, FinishEffects
from memoflow.ledger.invocations import TokenUse
from memoflow.ledger.queries import Filter
from memoflow.ledger.spending import spending
from memoflow.ledger.unknowns import exposures
from tests.cli._run import Cli
from tests.ledger._calls import LEASE, NAMESPACE, SECOND, Ledger, ask, effect, identity, open_ledger

DAY = 86_400 * SECOND
NEW_YEAR = 4_102_444_800 * SECOND
"""2100-01-01 00:00 UTC."""


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """Two days of spending on three accounts, in two currencies, with two models and a tool."""
    with open_ledger(database_url) as opened:
        # So late that no lease is over by the database's own clock, which is what the command line looks at.
        opened.now = NEW_YEAR
        opened.put("acme", Budget(total_tokens=10_000, cost=Money.of(9)))
        opened.put("acme/sub")
        opened.put("euro", Budget(cost=Money.of(9, "EUR")))
        fence = opened.claim()
        spend(
            opened, fence, "acme/sub", "small", reserved=100, used=(30, 20), measured=25, cost=1_500_000_000
        )
        first = spend(
            opened, fence, "acme", "small", reserved=50, used=(10, 5), measured=40, cost=500_000_000
        )
        run_tools(opened, fence, first)
        opened.now += DAY
        unknown = opened.start(fence, ask(total_tokens=70, cost=7), "acme/sub", model="large")
        opened.lose_reply(fence, unknown)
        spend(
            opened,
            fence,
            "euro",
            "small",
            reserved=9,
            used=(1, 1),
            measured=1,
            cost=250_000_000,
            currency="EUR",
        )
        yield opened


def spend(
    ledger: Ledger,
    fence: Any,
    account: str,
    model: str,
    *,
    reserved: int,
    used: tuple[int, int],
    measured: int,
    cost: int,
    currency: str = "USD",
) -> str:
    """An invocation that was settled."""
    wanted = replace(ask(total_tokens=reserved, cost=cost), currency=currency)
    id = ledger.start(fence, wanted, account, model=model, input_measured=measured)
    read, written = used
    ledger.settle(
        fence,
        id,
        usage=TokenUse(read, 0, 0, written, 0, cost),
        actual=Amounts(read + written, read, written, 1, 0, cost),
    )
    return id


def run_tools(ledger: Ledger, fence: Any, invocation: str) -> None:
    """Three executions of one tool: done, failed and open, by an invocation of their own."""
    id = ledger.start(fence, ask(total_tokens=1), "acme", model="large")
    states = [effect(id, n) for n in range(3)]
    ledger.settle(fence, id, 0, 0, effects=tuple(states))
    ledger.do(
        FinishEffects(
            fence,
            (
                EffectResult(states[0].id, "DONE", result_digest="sha256:r", result_bytes=1),
                EffectResult(states[1].id, "FAILED", reason="KNOWN_FAILURE"),
            ),
        )
    )


@pytest.fixture
def cli(ledger: Ledger, database_url: str) -> Cli:
    """The command line on it."""
    return Cli(database_url)


def rows(cli: Cli, *args: str) -> dict[tuple[str, str | None], Any]:
    """The groups of a report by key and currency."""
    return {(item["key"], item["currency"]): item for item in cli.ok("report", "--json", *args).json["items"]}


def test_an_account_includes_those_below_it(cli: Cli) -> None:
    """As its limits do; costs are decimals in the account's own currency."""
    found = rows(cli)
    assert list(found) == [("acme", "USD"), ("acme/sub", "USD"), ("euro", "EUR")]
    acme = found["acme", "USD"]
    assert (acme["invocations"], acme["settled"], acme["unknown"]) == (4, 3, 1)
    assert (acme["actual"]["total_tokens"], acme["reserved"]["total_tokens"]) == (65, 151)
    assert acme["actual"]["cost"] == "2"
    assert found["acme/sub", "USD"]["actual"]["cost"] == "1.5"
    assert found["euro", "EUR"]["actual"]["cost"] == "0.25"


def test_what_was_measured_stands_beside_what_was_counted(cli: Cli) -> None:
    """And how often the provider counted more."""
    found = rows(cli, "--by", "basis")
    usd = found["bound", "USD"]
    assert (usd["measured"], usd["counted"], usd["exceeded"]) == (25 + 40 + 10, 30 + 10, 1)


def test_spending_by_model_and_day(cli: Cli) -> None:
    """Days are those of UTC."""
    models = rows(cli, "--by", "model")
    assert models["large", "USD"]["unknown"] == 1
    assert models["small", "EUR"]["actual"]["output_tokens"] == 1
    days = rows(cli, "--by", "day")
    assert [key for key, _ in days] == ["2100-01-01", "2100-01-02", "2100-01-02"]
    assert days["2100-01-01", "USD"]["actual"]["cost"] == "2"


def test_exposure_is_what_the_queue_says(cli: Cli, ledger: Ledger) -> None:
    """An attempt that is lost, and that nobody has noticed yet, is unknown in both."""
    fence = ledger.claim(identity("other"))
    ledger.start(fence, ask(total_tokens=5), "acme")
    assert rows(cli)["acme", "USD"]["exposure"]["total_tokens"] == 70
    ledger.now += LEASE
    items = ledger.read(lambda c: spending(c, NAMESPACE, ledger.now, "account", Filter()))
    queue = ledger.read(lambda c: exposures(c, NAMESPACE, ledger.now))
    assert {item.key: (item.unknown, item.exposure) for item in items if item.unknown} == {
        one.account: (one.invocations, one.amounts) for one in queue
    }
    assert {item.key: item.exposure.total_tokens for item in items if item.unknown} == {
        "acme": 75,
        "acme/sub": 70,
    }


def test_tools_by_what_became_of_their_executions(cli: Cli) -> None:
    """One row for each version of a tool."""
    report = cli.ok("report", "--by", "tool", "--json").json
    assert (report["by"], report["next"]) == ("tool", None)
    assert report["items"] == [
        {
            "tool_namespace": "",
            "tool_name": "refund",
            "tool_version": "v1",
            "executions": 3,
            "done": 1,
            "failed": 1,
            "refused": 0,
            "denied": 0,
            "waiting": 0,
            "unknown": 0,
        }
    ]
    assert "refund  v1       3           1     1" in cli.ok("report", "--by", "tool").out


def test_a_report_is_narrowed(cli: Cli) -> None:
    """To an account and those below it, never with a part of an ancestor's sums; to a model; to a time."""
    assert [key for key, _ in rows(cli, "--account", "acme/sub")] == ["acme/sub"]
    assert [key for key, _ in rows(cli, "--by", "model", "--account", "acme/sub")] == ["large", "small"]
    assert [key for key, _ in rows(cli, "--model", "large")] == ["acme", "acme/sub"]
    assert rows(cli, "--older-than", "99999d") == {}
    assert cli.ok("report", "--by", "tool", "--account", "euro", "--json").json["items"] == []
    assert cli.ok("report", "--by", "tool", "--model", "small", "--json").json["items"] == []


def test_a_report_for_people(cli: Cli) -> None:
    """One row for each group, with what unknowns hold."""
    lines = cli.ok("report").out.splitlines()
    assert lines[0].split()[:3] == ["ACCOUNT", "CALLS", "SETTLED"]
    assert lines[1].split()[:7] == ["acme", "4", "3", "65", "151", "2", "USD"]
    assert lines[1].endswith("total_tokens 70, model_calls 1, cost 0.000000007 USD")
    assert cli.ok("report", "--older-than", "99999d").out == "Nothing was called.\n"
    assert cli.ok("report", "--by", "tool", "--older-than", "99999d").out == "No tool was run.\n"


@pytest.mark.parametrize("by", ["account", "tool"])
def test_csv_has_what_json_has(cli: Cli, by: str) -> None:
    """Amounts are a column for each dimension; without rows there are the headers."""
    items = cli.ok("report", "--by", by, "--json").json["items"]
    read = list(csv.DictReader(io.StringIO(cli.ok("report", "--by", by, "--csv").out)))
    assert len(read) == len(items) > 0
    for line, item in zip(read, items, strict=True):
        flat = {}
        for name, value in item.items():
            if isinstance(value, dict):
                flat.update({f"{name}_{dimension}": str(amount) for dimension, amount in value.items()})
            else:
                flat[name] = "" if value is None else str(value)
        assert line == flat
    empty = cli.ok("report", "--by", by, "--csv", "--older-than", "99999d").out
    assert empty == cli.ok("report", "--by", by, "--csv").out.splitlines(keepends=True)[0]


def test_wrong_words_are_wrong_usage(cli: Cli) -> None:
    """With the words there are."""
    result = cli("report", "--by", "week")
    assert result.code == 2
    assert "'week' is not one of account, model, tool, day, basis" in result.err
    assert cli("report", "--json", "--csv").code == 2
