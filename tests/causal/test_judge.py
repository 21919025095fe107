"""The causal gate: a call that the rules do not permit never runs, and one that a person may allow waits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memoflow import (
    ApprovalInvalid,
    ApprovalRequired,
    ApproverNotAllowed,
    Budget,
    Digester,
    KeyRing,
    Runtime,
    tool,
)
from memoflow.causal import ActionClass, StrictRules
from memoflow.causal.classes import ClassRule
from memoflow.causal.compat.config import CustomRule
from memoflow.causal.gate import CausalJudge
from memoflow.testing import call, calls, text
from tests._apis import APIS
from tests.turn import _worlds
from tests.turn._asks import loop, run
from tests.turn._worlds import MakeWorld, World

ledger, make_world, mode, world = _worlds.ledger, _worlds.make_world, _worlds.mode, _worlds.world

EGRESS = ClassRule(
    action_class=ActionClass.DATA_EGRESS, tool="send", arguments=(("to", "*@elsewhere.example"),)
)
RULES = StrictRules(classes=(EGRESS,))
MISSING = "MEMOFLOW-CAUSAL-APPROVAL_MISSING"


class Sender:
    """A tool that sends, and what it sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

        @tool(version="v1", effect="at_most_once")
        def send(to: str) -> str:
            """Send."""
            self.sent.append(to)
            return "sent"

        self.tool = send


def judged(world: MakeWorld, *script: Any, rules: StrictRules = RULES, **options: Any) -> World:
    """A world whose runtime judges by rules; its ledger is shared with that of the judge."""
    w = world(*script, **options)
    return w.again(judges=[CausalJudge(w.rt.ledger.database, rules, Digester())])


@pytest.mark.parametrize("api", APIS, ids=str)
def test_a_call_whose_arguments_need_an_approval_waits_for_one(world: MakeWorld, api: Any) -> None:
    """A rule about arguments parks the call; an approval lets exactly that run, and the audit is content."""
    sender = Sender()
    w = judged(world, call("send", {"to": "bob@elsewhere.example"}), text("done"), api=api)
    error = w.ask(loop(sender.tool)).raised(ApprovalRequired)
    assert (sender.sent, w.effects()[0].state) == ([], "AWAITING_APPROVAL")
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    assert w.text(w.ask(loop(sender.tool), complete=True)) == "done"
    assert sender.sent == ["bob@elsewhere.example"]
    assert w.rt.audit.check(workflow_id="w", run_id="r", rules=RULES).findings == ()


def test_a_call_that_the_rules_permit_runs_at_once(world: MakeWorld) -> None:
    """The same tool with other arguments is of no such class; and a read never is."""
    sender = Sender()
    w = judged(world, call("send", {"to": "bob@here.example"}), text("done"))
    assert w.text(w.ask(loop(sender.tool), complete=True)) == "done"
    assert sender.sent == ["bob@here.example"]


@pytest.mark.parametrize("api", APIS, ids=str)
def test_a_call_of_a_cause_that_nobody_knows_is_refused(world: MakeWorld, api: Any) -> None:
    """No approval would make its ancestry whole: it is denied, and the model is told why, by codes."""
    sender = Sender()
    w = judged(world, call("send", {"to": "bob@here.example"}), text("done"), api=api)
    scope = w.rt.run(workflow_id="w", run_id="r", cause="nowhere")
    got = w.ask(loop(sender.tool), within=scope, complete=True)
    assert w.text(got) == "done"
    assert (sender.sent, w.effects()[0].state) == ([], "DENIED")
    (answer,) = api.told(w.provider.requests[-1].json)
    told = json.loads(answer[1])
    assert told["status"] == "causal_review_required"
    assert [finding["code"] for finding in told["findings"]] == ["MEMOFLOW-CAUSAL-INVALID_ANCESTOR"]
    assert answer[2] is (api.name == "messages")
    assert "elsewhere" not in answer[1]


def test_a_sibling_that_is_permitted_runs(world: MakeWorld) -> None:
    """Calls of one reply are judged one by one."""
    sender = Sender()
    both = calls(call("send", {"to": "a@here.example"}), call("send", {"to": "b@elsewhere.example"}))
    w = judged(world, both, text("done"))
    error = w.ask(loop(sender.tool)).raised(ApprovalRequired)
    assert (sender.sent, len(error.requests)) == (["a@here.example"], 1)


def test_the_verdict_of_a_recorded_call_is_kept(world: MakeWorld) -> None:
    """A replay goes by what was judged then, though the rules have changed; nothing is judged twice."""
    sender = Sender()
    w = judged(world, call("send", {"to": "bob@elsewhere.example"}), text("done"))
    error = w.ask(loop(sender.tool)).raised(ApprovalRequired)
    lax = w.again(judges=[CausalJudge(w.rt.ledger.database, StrictRules(), Digester())])
    assert lax.ask(loop(sender.tool)).raised(ApprovalRequired).requests == error.requests
    assert sender.sent == []


@pytest.mark.parametrize("mode", ["sync"])
def test_a_call_is_judged_by_what_began_it_elsewhere(world: MakeWorld) -> None:
    """The line is followed into other runs: what a person approved there permits nothing here."""
    sender, w = (
        Sender(),
        judged(world, call("outer", {}), call("send", {"to": "b@elsewhere.example"}), text("done")),
    )
    seen: list[Any] = []

    @tool(version="v1", effect="read_only", approval="human")
    def outer() -> str:
        """Ask another agent."""
        scope = w.rt.run(workflow_id="other", run_id="o")
        seen.append(w.ask(loop(sender.tool), within=scope, activity="inner"))
        return "asked"

    error = w.ask(loop(outer)).raised(ApprovalRequired)
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    w.ask(loop(outer))
    assert seen[0].raised(ApprovalRequired).requests[0].tool == "send"
    assert sender.sent == []


def test_a_judge_needs_a_replay_key(world: MakeWorld) -> None:
    """Nothing could be resumed without one; nothing was reserved or sent."""
    w = judged(world, text("done"))
    assert "replay_key" in str(
        w.ask(run(replay_key=None)).error or w.ask(loop(Sender().tool, replay_key=None)).error
    )


@pytest.mark.parametrize(
    "codes",
    [["not to be read"], ["\u00e9" * 200], [""], [f"NO-{n}" for n in range(40)]],
    ids=["blank", "long", "none", "many"],
)
def test_no_code_of_a_rule_breaks_the_judge(world: MakeWorld, codes: list[str]) -> None:
    """Whatever a configuration calls its rules, and however many fail: a read that they forbid is refused."""
    read: list[int] = []

    @tool(version="v1", effect="read_only")
    def look() -> None:
        """Look."""
        read.append(1)

    forbidden = [
        CustomRule(id="r", code=code, trigger_class=ActionClass.READ, require_prefix="nobody:")
        for code in codes
    ]
    w = judged(world, call("look", {}), text("done"), rules=StrictRules(custom_rules=tuple(forbidden)))
    w.ask(loop(look), complete=True)
    (effect,) = w.effects()
    ((_, digest, said, kept),) = json.loads(effect.judgement or "")
    assert (read, effect.state, said) == ([], "DENIED", "refuse")
    assert digest
    assert 1 <= len(kept) <= 32


def test_only_those_whom_the_rules_name_can_approve(world: MakeWorld) -> None:
    """The call waits for one of them; others are refused when they decide, and where they could, not used."""
    sender = Sender()
    rules = StrictRules(classes=(EGRESS,), approvers={"human_approval:": ("human:ann", "human:bob")})
    w = judged(world, call("send", {"to": "bob@elsewhere.example"}), text("done"), rules=rules)
    (request,) = w.ask(loop(sender.tool)).raised(ApprovalRequired).requests
    for decide in (w.rt.approvals.approve, w.rt.approvals.deny):
        with pytest.raises(ApproverNotAllowed, match="by 'eve'"):
            decide(request.id, approver="eve", reason="fine")
    w.rt.approvals.approve(request.id, approver="ann", reason="fine")
    w.ask(loop(sender.tool), complete=True)
    assert sender.sent == ["bob@elsewhere.example"]
    assert w.rt.audit.check(workflow_id="w", run_id="r", rules=rules).findings == ()


def test_an_approval_by_somebody_whom_the_rules_do_not_name_begins_nothing(world: MakeWorld) -> None:
    """Also where it was recorded by a program that knows no rules, or knew others."""
    sender = Sender()
    rules = StrictRules(classes=(EGRESS,), approvers={"human_approval:": ("human:ann",)})
    w = judged(world, call("send", {"to": "bob@elsewhere.example"}), text("done"), rules=rules)
    (request,) = w.ask(loop(sender.tool)).raised(ApprovalRequired).requests
    w.again().rt.approvals.approve(request.id, approver="eve", reason="fine")
    assert w.ask(loop(sender.tool)).raised(ApprovalInvalid).component == "approver"
    assert (sender.sent, w.effects()[0].state) == ([], "AWAITING_APPROVAL")


def test_what_nobody_may_approve_does_not_wait(world: MakeWorld) -> None:
    """Rules without approvers of a ledger's approvals refuse what would need one."""
    sender = Sender()
    rules = StrictRules(classes=(EGRESS,), approvers={})
    w = judged(world, call("send", {"to": "bob@elsewhere.example"}), text("done"), rules=rules)
    w.ask(loop(sender.tool), complete=True)
    assert (sender.sent, w.effects()[0].state) == ([], "DENIED")


def test_the_policy_digest_says_what_was_judged_by() -> None:
    """Equal rules have one digest, others another."""
    database: Any = None
    one = CausalJudge(database, RULES, Digester())
    same = CausalJudge(database, StrictRules(classes=(EGRESS,)), Digester(b"k" * 32, "k1"))
    other = CausalJudge(database, StrictRules(), Digester())
    assert one.policy_digest == same.policy_digest != other.policy_digest
    assert one.policy_digest.startswith("sha256:")


def test_a_runtime_takes_its_rules_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By argument or by setting; a file that holds no rules is refused before anything is opened for work."""
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"strict": {"classes": [{"class": "DATA_EGRESS", "tool": "send"}]}}))
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    keys = KeyRing.generate()
    with Runtime.open(url, keys=keys) as rt:
        assert not rt.bench
    with Runtime.open(url, keys=keys, audit_rules=rules) as rt:
        assert rt.bench
    monkeypatch.setenv("MEMOFLOW_AUDIT_RULES", str(rules))
    with Runtime.open(url, keys=keys) as rt:
        assert rt.bench
        rt.budgets.put("acme", Budget(total_tokens=1))
