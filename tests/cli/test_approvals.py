"""``memoflow approvals``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from memoflow import ApprovalRequired, Budget, Digester, KeyRing, Runtime, tool
from memoflow.ledger.verify import verify
from memoflow.openai import OpenAIResponses
from memoflow.testing import SimulatedProvider, call, calls, text
from tests.cli._run import Cli

BUDGET = Budget(total_tokens=5_000, tool_calls=1)
WHY = ("--reason", "checked the order", "--actor", "ann")
REQUEST = {"model": "any", "input": "Refund it."}


@dataclass
class Desk:
    """An activity whose tool has to be allowed, on one database."""

    runtime: Runtime
    cli: Cli
    ran: list[int] = field(default_factory=list)
    said: str = ""

    def work(self) -> str:
        """Run the activity, or come back to it."""
        script = [calls(call("refund", {"cents": 82})), text("Refunded."), text("Refunded.")]
        llm = OpenAIResponses(SimulatedProvider(script if not self.said else script[1:]).client())
        self.said = "asked"

        @tool(version="v1", effect="at_most_once", approval="human")
        def refund(cents: int) -> int:
            """Refund an order."""
            self.ran.append(cents)
            return cents

        @self.runtime.activity(version="v1", budget="acme")
        def answer() -> str:
            further = {"continuation_budgets": [BUDGET], "replay_key": "turn", "budget": BUDGET}
            result = llm.run_with_tools(REQUEST, [refund], **further)  # type: ignore[arg-type]
            return str(result.response.output_text)

        return answer.run(workflow_id="ticket-42", run_id="1")

    def request(self) -> str:
        """The id of what waits."""
        with pytest.raises(ApprovalRequired) as caught:
            self.work()
        return caught.value.requests[0].id


@pytest.fixture
def desk(sqlite_url: str) -> Iterator[Desk]:
    """A fresh one; when the test is over, every fact in its ledger must hold."""
    with Runtime.open(sqlite_url, namespace="tests") as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=100_000))
        yield Desk(runtime, Cli(sqlite_url))
        assert runtime.ledger.database.read(verify) == []


def test_what_waits_is_listed(desk: Desk) -> None:
    """With its tool, who asks and which run; other states on demand."""
    assert desk.cli.ok("approvals", "list").out == "Nothing waits for a decision.\n"
    id = desk.request()
    out = desk.cli.ok("approvals", "list").out
    for part in (id, "pending", "refund v1", "agent:answer", "ticket-42/1"):
        assert part in out
    (item,) = desk.cli.ok("approvals", "list", "--json").json["items"]
    assert (item["id"], item["state"], item["tool_name"], item["shared"]) == (id, "pending", "refund", False)
    assert item["created_at"].endswith("Z")
    desk.cli.ok("approvals", "deny", id, *WHY)
    assert desk.cli.ok("approvals", "list", "--json").json["items"] == []
    assert desk.cli.ok("approvals", "list", "--state", "denied", "--json").json["items"][0]["id"] == id
    assert desk.cli.ok("approvals", "list", "--state", "any", "--json").json["items"][0]["id"] == id
    assert desk.cli("approvals", "list", "--state", "odd").code == 2


def test_the_approver_sees_what_would_run(desk: Desk) -> None:
    """The plain arguments come out of the recorded reply, by the operator's key; nothing else has them."""
    id = desk.request()
    out = desk.cli.ok("approvals", "show", id).out
    assert '{"cents":82}' in out
    assert "memoflow.approval: DECLARED" in out
    case = desk.cli.ok("approvals", "show", id, "--json").json
    assert (case["arguments"], case["withheld"]) == ('{"cents":82}', None)
    assert case["request"]["arguments_digest"] == Digester().bytes(b'{"cents":82}')


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("MEMOFLOW_OUTPUT_KEYS", lambda: KeyRing.generate().export(), "not on the key ring"),
        ("MEMOFLOW_DIGEST_KEY", lambda: "d1:" + "A" * 24, "MEMOFLOW_DIGEST_KEY"),
    ],
)
def test_who_does_not_hold_the_key_sees_digests(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, setting: str, value: Callable[[], str], said: str
) -> None:
    """And a sentence that says what is missing; the digest is what an approval is bound to."""
    id = desk.request()
    monkeypatch.setenv(setting, value())
    case = desk.cli.ok("approvals", "show", id, "--json").json
    assert case["arguments"] is None
    assert said in case["withheld"]
    out = desk.cli.ok("approvals", "show", id).out
    assert "(not shown)" in out
    assert "cents" not in out
    assert case["request"]["arguments_digest"] in out


def test_an_approved_call_runs_when_its_activity_does(desk: Desk) -> None:
    """Approving runs nothing by itself; the decision tells until when it is good."""
    id = desk.request()
    out = desk.cli.ok("approvals", "approve", id, "--expires-in", "2h", *WHY).out
    assert "approved by ann, good until" in out
    assert desk.ran == []
    assert desk.work() == "Refunded."
    assert desk.ran == [82]
    assert desk.cli.ok("approvals", "show", id, "--json").json["request"]["state"] == "used"


def test_a_denied_call_is_not_run(desk: Desk) -> None:
    """The model is told, with the reason where the approver wants it."""
    id = desk.request()
    decision = desk.cli.ok("approvals", "deny", id, "--tell-model", "--json", *WHY).json
    assert (decision["verdict"], decision["approver"], decision["shared"]) == ("denied", "ann", True)
    assert decision["expires_at"] is None
    assert desk.work() == "Refunded."
    assert desk.ran == []


def test_decisions_are_idempotent_and_conflicts_are_refused(desk: Desk) -> None:
    """The same again ends with 0, another with 1 and a sentence."""
    id = desk.request()
    first = desk.cli.ok("approvals", "approve", id, "--json", *WHY).json
    assert desk.cli.ok("approvals", "approve", id, "--json", *WHY).json == first
    refused = desk.cli("approvals", "deny", id, *WHY)
    assert (refused.code, "already approved by 'ann'" in refused.err) == (1, True)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("approve", "ID", "--reason", "x", "--actor", "agent:answer"), 1, "who may not decide"),
        (("approve", "nothing", *WHY), 1, "no approval request 'nothing'"),
        (("show", "nothing"), 1, "no approval request 'nothing'"),
        (("approve", "ID", "--actor", "ann"), 2, "--reason"),
        (("approve", "ID", "--expires-in", "soon", *WHY), 2, "whole number"),
        (("approve", "ID", "--expires-in", "0s", *WHY), 1, "more than none"),
    ],
)
def test_what_cannot_be_is_refused(desk: Desk, args: tuple[str, ...], code: int, said: str) -> None:
    """1 where the ledger refuses, 2 where the usage is wrong, with a sentence each time."""
    id = desk.request()
    done = desk.cli("approvals", *[id if arg == "ID" else arg for arg in args])
    assert (done.code, said in done.err) == (code, True), done.err


def test_states_are_shown_where_effects_and_runs_are(desk: Desk) -> None:
    """AWAITING_APPROVAL, DENIED and PARKED are words of the other lists, too."""
    id = desk.request()
    found = desk.cli.ok("effects", "list", "--state", "awaiting_approval", "--json").json["items"]
    assert [item["id"] for item in found] == [id]
    assert found[0]["judgement"][0][0] == "memoflow.approval"
    assert "PARKED (ApprovalRequired)" in desk.cli.ok("runs", "show", "ticket-42", "1").out
    (row,) = desk.cli.ok("report", "--by", "tool", "--json").json["items"]
    assert (row["waiting"], row["denied"], row["done"]) == (1, 0, 0)
    desk.cli.ok("approvals", "deny", id, *WHY)
    desk.work()
    (row,) = desk.cli.ok("report", "--by", "tool", "--json").json["items"]
    assert (row["waiting"], row["denied"]) == (0, 1)
    assert desk.cli.ok("effects", "list", "--state", "denied").out.count(id) == 1
    assert "tool_namespace" in desk.cli.ok("report", "--by", "tool", "--csv").out


def test_only_those_whom_the_rules_name_decide(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules that workers judge by also say whose decisions count; they are read from the same setting."""
    id = desk.request()
    rules = tmp_path / "rules.json"
    rules.write_text('{"strict": {"approvers": {"human_approval:": ["human:bob"]}}}')
    monkeypatch.setenv("MEMOFLOW_AUDIT_RULES", str(rules))
    refused = desk.cli("approvals", "approve", id, *WHY)
    assert (refused.code, "cannot be decided by 'ann'" in refused.err) == (1, True)
    desk.cli.ok("approvals", "approve", id, "--reason", "checked", "--actor", "bob")
