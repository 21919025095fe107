"""``memoflow runs``, ``invocations`` and ``effects``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from memoflow.budget import Budget, Money
from memoflow.ledger.dialect import database_now
from memoflow.ledger.effects import EffectResult, FinishEffects
from memoflow.ledger.invocations import TokenUse
from tests.cli._run import Cli
from tests.ledger._calls import SECOND, Ledger, ask, bound, effect, identity, open_ledger


class Recorded:
    """A run with one activity: an invocation that succeeded with a tool effect, and one that is unknown."""

    def __init__(self, ledger: Ledger) -> None:
        ledger.put("acme", Budget(total_tokens=1_000, cost=Money.of(1)))
        ledger.put("acme/sub")
        fence = ledger.claim()
        self.good = ledger.start(
            fence, ask(total_tokens=30, cost=5_000), "acme/sub", binding=bound(), metadata='{"customer":7}'
        )
        new = effect(self.good)
        self.effect = new.id
        ledger.settle(fence, self.good, usage=TokenUse(12, 3, 0, 8, 2, 1_250_000), effects=(new,))
        done = EffectResult(new.id, "DONE", result_digest="sha256:result", result_bytes=9)
        ledger.do(FinishEffects(fence, (done,)))
        ledger.now += SECOND
        self.bad = ledger.start(fence, ask(total_tokens=40), "acme", model="model-2")
        ledger.lose_reply(fence, self.bad)
        ledger.end(fence)
        ledger.now += SECOND
        ledger.claim()
        other = ledger.claim(identity("other", run_id="run-2"))
        ledger.end(other, "CANCELLED")


@pytest.fixture
def cli(sqlite_url: str) -> Cli:
    """A ledger with records."""
    return Cli(sqlite_url)


@pytest.fixture
def recorded(cli: Cli) -> Iterator[Recorded]:
    """What is in it."""
    with open_ledger(cli.url) as ledger:
        yield Recorded(ledger)


def test_invocations_are_listed_newest_first(cli: Cli, recorded: Recorded) -> None:
    """As rows for people and as records for programs."""
    items = cli.ok("invocations", "list", "--json").json["items"]
    assert [item["id"] for item in items] == [recorded.bad, recorded.good]
    rows = cli.ok("invocations", "list").out.splitlines()
    assert len(rows) == 3
    assert recorded.bad in rows[1]
    assert "OUTCOME_UNKNOWN" in rows[1]
    assert "12+8" in rows[2]
    assert "0.00125 USD" in rows[2]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--state", "SUCCEEDED"], ["good"]),
        (["--model", "model-2"], ["bad"]),
        (["--account", "acme/sub"], ["good"]),
        (["--account", "acme"], ["bad", "good"]),
        (["--account", "acm"], []),
        (["--workflow", "workflow-1", "--run", "run-1", "--activity", "answer"], ["bad", "good"]),
        (["--run", "run-2"], []),
    ],
)
def test_invocations_can_be_filtered(
    cli: Cli, recorded: Recorded, options: list[str], found: list[str]
) -> None:
    """Filters are joined by "and"."""
    items = cli.ok("invocations", "list", "--json", *options).json["items"]
    assert [item["id"] for item in items] == [getattr(recorded, name) for name in found]


def test_ages_count_back_from_the_ledger_s_clock(cli: Cli) -> None:
    """Older and newer than the same age are complements."""
    with open_ledger(cli.url) as ledger:
        ledger.put("acme")
        now = ledger.database.read(database_now)
        ledger.now = now - 2 * 3600 * SECOND
        fence = ledger.claim()
        old = ledger.start(fence, ask())
        ledger.now = now
        new = ledger.start(fence, ask())

    def ids(*options: str) -> list[str]:
        return [item["id"] for item in cli.ok("invocations", "list", "--json", *options).json["items"]]

    assert ids("--older-than", "1h") == [old]
    assert ids("--newer-than", "1h") == [new]
    assert ids("--newer-than", "3h") == [new, old]
    assert ids("--older-than", "1h", "--newer-than", "90m") == []


def test_a_long_list_comes_in_pages(cli: Cli, recorded: Recorded) -> None:
    """The cursor is in the JSON, and told on standard error beside a table."""
    first = cli.ok("invocations", "list", "--limit", "1", "--json").json
    assert (len(first["items"]), first["next"]) == (1, recorded.bad)
    second = cli.ok("invocations", "list", "--limit", "1", "--after", first["next"], "--json").json
    assert ([item["id"] for item in second["items"]], second["next"]) == ([recorded.good], None)
    assert f"--after {recorded.bad}" in cli.ok("invocations", "list", "--limit", "1").err


def test_one_invocation_is_shown_whole(cli: Cli, recorded: Recorded) -> None:
    """The JSON has every column under its documented name; the text has them in words."""
    shown: dict[str, Any] = cli.ok("invocations", "show", recorded.good, "--json").json
    amounts = dict.fromkeys(("input_tokens", "output_tokens", "tool_calls", "wall_clock_ms"), 0)
    assert shown == {
        "id": recorded.good,
        "workflow_id": "workflow-1",
        "run_id": "run-1",
        "activity_id": "answer",
        "activity_type": "answer",
        "attempt": 1,
        "replay_key": "turn",
        "round": 0,
        "provider": "openai",
        "api": "responses",
        "model": "model-1",
        "reply_model": None,
        "service_tier": None,
        "state": "SUCCEEDED",
        "reason": None,
        "finish_reason": "stop",
        "http_status": None,
        "error_code": None,
        "error_type": None,
        "request_digest": "sha256:request",
        "response_digest": "sha256:reply",
        "input_basis": "bound",
        "input_measured": 10,
        "output_cap": None,
        "price_version": None,
        "metadata": {"customer": 7},
        "input_tokens": 12,
        "cached_input_tokens": 3,
        "cache_write_tokens": 0,
        "output_tokens": 8,
        "reasoning_tokens": 2,
        "cost": "0.00125",
        "currency": "USD",
        "started_at": "2027-01-15T08:00:00.000000Z",
        "finished_at": "2027-01-15T08:00:00.000000Z",
        "accounts": ["acme/sub"],
        "reservation_state": "SETTLED",
        "reservation_reason": None,
        "reserved": {"total_tokens": 30, "model_calls": 1, "cost": "0.000005", **amounts},
        "actual": {"total_tokens": 0, "model_calls": 1, "cost": "0", **amounts},
        "resolved_at": "2027-01-15T08:00:00.000000Z",
        "decision_id": None,
        "retrievable": False,
    }
    text = cli.ok("invocations", "show", recorded.good).out
    assert "12 input, 8 output, 3 cached, 2 reasoning" in text
    assert "turn, round 0" in text
    assert "total_tokens 30, model_calls 1, cost 0.000005 USD" in text


def test_effects_are_listed_and_shown(cli: Cli, recorded: Recorded) -> None:
    """With the call they answer: round, ordinal and execution."""
    (item,) = cli.ok("effects", "list", "--tool", "refund", "--json").json["items"]
    assert item == {
        "id": recorded.effect,
        "workflow_id": "workflow-1",
        "run_id": "run-1",
        "activity_id": "answer",
        "invocation_id": recorded.good,
        "attempt": 1,
        "round": 0,
        "ordinal": 0,
        "execution": 1,
        "call_id": "call_0",
        "kind": "function",
        "tool_namespace": "",
        "tool_name": "refund",
        "tool_version": "v1",
        "effect_class": "at_most_once",
        "idempotency_key": f"mf1_{recorded.good}_0",
        "arguments_digest": "sha256:arguments",
        "state": "DONE",
        "reason": None,
        "result_digest": "sha256:result",
        "result_bytes": 9,
        "error_type": None,
        "decision_id": None,
        "started_at": "2027-01-15T08:00:00.000000Z",
        "finished_at": "2027-01-15T08:00:00.000000Z",
        "judgement": None,
    }
    assert cli.ok("effects", "show", recorded.effect, "--json").json == item
    assert "refund v1 (at_most_once, function)" in cli.ok("effects", "show", recorded.effect).out
    assert "0.0.1" in cli.ok("effects", "list").out
    assert cli.ok("effects", "list", "--state", "FAILED").out == "No effects.\n"


def test_runs_are_listed_with_their_progress(cli: Cli, recorded: Recorded) -> None:
    """Newest first."""
    items = cli.ok("runs", "list", "--json").json["items"]
    assert [item["run_id"] for item in items] == ["run-2", "run-1"]
    assert items[1] == {
        "workflow_id": "workflow-1",
        "run_id": "run-1",
        "activities": 1,
        "completed": 0,
        "running": 1,
        "attempts": 2,
        "created_at": "2027-01-15T08:00:00.000000Z",
        "last_created_at": "2027-01-15T08:00:00.000000Z",
    }
    assert ["workflow-1", "run-1", "0/1", "1", "2", "2027-01-15T08:00:00Z"] in cli.ok("runs", "list").lines
    free = cli.ok("runs", "list", "--state", "FREE", "--json").json["items"]
    assert [item["run_id"] for item in free] == ["run-2"]


def test_a_run_shows_every_attempt(cli: Cli, recorded: Recorded) -> None:
    """Who tried, how it ended, and what is running now."""
    shown = cli.ok("runs", "show", "workflow-1", "run-1", "--json").json
    (activity,) = shown["activities"]
    assert (activity["state"], activity["lease_over"]) == ("RUNNING", False)
    assert [(one["number"], one["state"], one["error_type"]) for one in activity["attempts"]] == [
        (1, "FAILED", "OutcomeUnknown"),
        (2, "RUNNING", None),
    ]
    text = cli.ok("runs", "show", "workflow-1", "run-1").out
    assert "FAILED (OutcomeUnknown)" in text
    assert len(text.splitlines()) == 3
