"""``memoflow inspect report``: what was decided on the calls of a ledger."""

from __future__ import annotations

from typing import Any

import pytest

from memoflow import Budget, KeyRing, Refuse, Runtime
from memoflow.inspection import Inspector, shipped_policy
from memoflow.openai import OpenAIResponses
from memoflow.testing import SimulatedProvider
from tests.cli._run import Cli
from tests.inspection._desk import ASKED, EVIL, GOOD, Desk, script
from tests.turn._asks import LOOP


@pytest.fixture
def cli(sqlite_url: str) -> Cli:
    """The command line on an empty ledger."""
    with opened(sqlite_url) as rt:
        rt.budgets.put("acme", Budget(total_tokens=10**6))
    return Cli(sqlite_url)


KEYS = KeyRing.generate()


def opened(url: str, inspector: Inspector | None = None, **options: Any) -> Runtime:
    """A runtime on that ledger."""
    return Runtime.open(url, namespace="tests", keys=KEYS, inspection=inspector, **options)


def sends(cli: Cli, to: str, run: str, inspector: Inspector | None, **options: Any) -> None:
    """One run that reads the inbox and then sends."""
    with opened(cli.url, inspector, **options) as rt, SimulatedProvider(script(to)).client() as client:
        llm = OpenAIResponses(client)

        @rt.activity(version="v1", budget="acme")
        def answer() -> None:
            further: Any = {"budget": LOOP, "continuation_budgets": [LOOP] * 3, "replay_key": "k"}
            llm.run_with_tools({"model": "m", "input": ASKED}, Desk().tools, **further)

        answer.run(workflow_id="w", run_id=run)


@pytest.fixture
def used(cli: Cli) -> Cli:
    """Five runs: one in shadow, two enforced, one that nobody inspected, one where looking failed."""
    shadow, enforcing = Inspector(), Inspector(mode="enforce")
    sends(cli, EVIL, "shadow", shadow)
    sends(cli, EVIL, "enforced", enforcing)
    sends(cli, GOOD, "good", enforcing)
    sends(cli, GOOD, "free", None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("memoflow.inspection.gate.history", lambda *_: 1 / 0)
        sends(cli, GOOD, "blind", enforcing)
    return cli


def test_interruptions_are_counted_by_rule_and_tool(used: Cli) -> None:
    """What would be in shadow mode counts like what was; and what was not inspected is told."""
    found = used.ok("inspect", "report", "--json").json
    whole = {
        "calls": 8,
        "shadow": 2,
        "unjudged": 2,
        "asked": 2,
        "denied": 1,
        "not_inspected": 2,
        "rate": "0.3750",
    }
    assert {name: found[name] for name in whole} == whole
    assert found["rules"] == [
        {"rule": "ask-tainted-argument", "verdict": "ask", "calls": 2, "tools": 1},
        {"rule": None, "verdict": "deny", "calls": 1, "tools": 1},
    ]
    assert [
        (one["tool_name"], one["calls"], one["asked"], one["denied"], one["rate"]) for one in found["tools"]
    ] == [
        ("read_inbox", 4, 0, 0, "0.0000"),
        ("send_email", 4, 2, 1, "0.7500"),
    ]
    assert found["policies"] == [{"policy": shipped_policy().digest, "calls": 8}]


def test_people_are_told_in_words(used: Cli) -> None:
    """Totals, then rules, then tools."""
    out = used.ok("inspect", "report").out
    assert "8 calls were judged, 2 of them in shadow mode; 2 were not." in out
    assert "3 were or would be interrupted (rate 0.3750): 2 asked about, 1 denied. 2 could not be" in out
    assert "ask-tainted-argument" in out


@pytest.mark.parametrize(
    ("only", "calls"),
    [
        (("--tool", "send_email"), 4),
        (("--run", "shadow"), 2),
        (("--workflow", "nobody"), 0),
        (("--model", "other"), 0),
        (("--activity", "nothing"), 0),
        (("--older-than", "1d"), 0),
        (("--newer-than", "1d"), 8),
    ],
)
def test_what_is_counted_can_be_narrowed(used: Cli, only: tuple[str, ...], calls: int) -> None:
    """By the filters of the other reads."""
    assert used.ok("inspect", "report", *only, "--json").json["calls"] == calls


def test_an_empty_ledger_has_no_interruptions(cli: Cli) -> None:
    """And no rate that divides by nothing."""
    assert "0 calls were judged; 0 were not." in cli.ok("inspect", "report").out
    assert cli.ok("inspect", "report", "--json").json["rate"] == "0.0000"


def test_other_judges_are_not_counted(cli: Cli) -> None:
    """A call that another judge refused was not inspected by that."""

    class No:
        id, policy_digest = "no", "sha256:no"

        def judge(self, call: Any) -> Refuse:
            return Refuse(("NO",))

    sends(cli, GOOD, "no", None, judges=[No()])
    found = cli.ok("inspect", "report", "--json").json
    assert (found["calls"], found["unjudged"]) == (0, 2)
