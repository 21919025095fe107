"""``memoflow gateway``: its virtual keys, and how it is started."""

from __future__ import annotations

import json
import re

import pytest

from memoflow.ledger.inspections import InspectionRow, RecordInspections
from tests.cli._run import Cli
from tests.ledger._calls import ask, identity, open_ledger


@pytest.fixture
def cli(sqlite_url: str) -> Cli:
    """The command line on a ledger with one account."""
    cli = Cli(sqlite_url)
    cli.ok("budget", "put", "app", "--model-calls", "5")
    return cli


def test_a_key_is_printed_once(cli: Cli) -> None:
    """`create` prints it, and nothing else ever does."""
    made = cli.ok("gateway", "keys", "create", "web", "--account", "app", "--actor", "ops")
    (key,) = re.findall(r"^mfk_[A-Za-z0-9_-]{43}$", made.out, re.MULTILINE)
    listed = cli.ok("gateway", "keys", "list", "--json").json["items"]
    (only,) = listed
    shown = cli.ok("gateway", "keys", "show", only["id"])
    everything = f"{listed} {shown.out} {cli.ok('gateway', 'keys', 'list').out}"
    assert key not in everything
    assert only["hint"] == key[-4:]
    assert (only["account"], only["models"], only["actor"]) == ("app", ["*"], "ops")


def test_what_a_key_is_for(cli: Cli) -> None:
    """Models, endpoints, its output and its time are kept as they were given."""
    options = ("--model", "gpt-5*", "--model", "claude-*", "--endpoint", "messages", "--output-tokens", "900")
    made = cli.ok(
        "gateway", "keys", "create", "web", "--account", "app", *options, "--expires-in", "30d", "--json"
    ).json
    assert made["key"].startswith("mfk_")
    assert (made["models"], made["endpoints"], made["output_tokens"]) == (
        ["gpt-5*", "claude-*"],
        ["messages"],
        900,
    )
    shown = cli.ok("gateway", "keys", "show", made["id"], "--json").json
    assert shown["expires_at"] > shown["created_at"]
    assert "key" not in shown


def test_a_revoked_key_stays_and_says_who_and_why(cli: Cli) -> None:
    """Revoking is for good; a second time changes nothing."""
    made = cli.ok("gateway", "keys", "create", "web", "--account", "app", "--json").json
    cli.ok("gateway", "keys", "revoke", made["id"], "--reason", "it leaked", "--actor", "ops")
    cli.ok("gateway", "keys", "revoke", made["id"], "--reason", "again", "--actor", "other")
    shown = cli.ok("gateway", "keys", "show", made["id"], "--json").json
    assert (shown["revoked_by"], shown["revoked_because"]) == ("ops", "it leaked")
    assert "REVOKED" in cli.ok("gateway", "keys", "list").out


def test_what_the_ledger_refuses_is_1_and_what_cannot_be_is_2(cli: Cli) -> None:
    """Exit codes are those of all commands."""
    assert cli("gateway", "keys", "create", "web", "--account", "nobody").code == 1
    assert cli("gateway", "keys", "show", "nothing").code == 1
    assert cli("gateway", "keys", "revoke", "nothing", "--reason", "x").code == 1
    assert cli("gateway", "keys", "create", "web", "--account", "app", "--endpoint", "audio").code == 2
    assert cli("gateway", "keys", "create", "web", "--account", "app", "--model", "a*b").code == 2
    assert cli("gateway", "keys", "create", "web").code == 2
    assert "Make one with" in cli.ok("gateway", "keys", "list", "--account", "other").out


def test_what_inspection_decided_is_shown(cli: Cli) -> None:
    """Each decision with its rule; the records hold no text, so they are printed as they are."""
    with open_ledger(cli.url) as ledger:
        call = ledger.unknown(ask(), "app", who=identity(namespace="tests"))
        assert "decided nothing" in cli.ok("gateway", "inspections", call).out
        record = json.dumps({"event": "tool_call", "tool": "send_mail"})
        row = InspectionRow("enforce", "deny", "refuse", "no-mail", record)
        ledger.do(RecordInspections("tests", call, (row,)))
        other = ledger.unknown(ask(), "app", who=identity("other", namespace="tests"))
        allowed = InspectionRow("shadow", "allow", "run", None, record)
        ledger.do(RecordInspections("tests", other, (row, allowed)))
    shown = cli.ok("gateway", "inspections", call)
    assert shown.lines[1] == ["tool_call", "send_mail", "deny", "refuse", "enforce", "no-mail"]
    assert cli.ok("gateway", "inspections", call, "--json").json["items"] == [json.loads(record)]
    summed = cli.ok("gateway", "inspections")
    assert summed.lines[1:] == [
        ["deny", "refuse", "enforce", "no-mail", "2", "2"],
        ["allow", "run", "shadow", "1", "1"],
    ]
    first = cli.ok("gateway", "inspections", "--json").json["items"][0]
    assert (first["rule"], first["decisions"], first["invocations"]) == ("no-mail", 2, 2)


def test_the_gateway_says_what_it_lacks(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a provider's key it does not start, and a wrong option is wrong usage."""
    assert cli("gateway", "--on-disconnect", "wait").code == 2
    assert cli("gateway", "--price", "gpt").code == 2
    assert cli("gateway", "--workers", "2").code == 1
