"""Judges: asked about every call before it may begin; the strongest verdict wins, and is kept."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from memoflow import (
    ApprovalRequired,
    ConfigurationError,
    InvalidRequest,
    NeedsApproval,
    OutcomeUnknown,
    Permit,
    ProposedCall,
    Refuse,
)
from memoflow.testing import call, calls, text, usage
from memoflow.turn import Bench as JudgeBench
from memoflow.turn import Judgement, Ruling
from tests._apis import APIS
from tests.turn._asks import loop, stream
from tests.turn._stopping import stopping
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld, World

LOOPS = {"whole": loop, "streamed": stream}
Verdict = Permit | NeedsApproval | Refuse
CALL = calls(call("f", {"n": 1}), usage=usage(10, 5))
DONE = text("Done.", usage=usage(20, 6))


@dataclass
class Rule:
    """A judge that says what it is given, and remembers what it was asked."""

    says: Callable[[ProposedCall], Any]
    id: str = "rule"
    policy_digest: str = "sha256:policy"
    asked: list[ProposedCall] = field(default_factory=list)

    def judge(self, call: ProposedCall) -> Any:
        self.asked.append(call)
        return self.says(call)


def always(verdict: Any, id: str = "rule") -> Rule:
    """A judge that always says the same."""
    return Rule(lambda call: verdict, id)


def broken(error: BaseException, id: str = "rule") -> Rule:
    """A judge that raises."""

    def say(call: ProposedCall) -> Any:
        raise error

    return Rule(say, id)


def outputs(w: World) -> list[Any]:
    """What the last request handed back."""
    return [json.loads(output) for _, output, _ in w.api.told(w.provider.requests[-1].json)]


# Verdicts


def test_a_permitted_call_runs(world: MakeWorld) -> None:
    """Its verdict is kept: who said so, by which policy, with which codes."""
    bench, rule = Bench(), always(Permit(("SEEN",)))
    w = world(CALL, DONE, judges=[rule])
    assert w.text(w.ask(loop(bench.make("f")))) == "Done."
    (effect,) = w.effects()
    assert json.loads(effect.judgement or "") == [["rule", "sha256:policy", "permit", ["SEEN"]]]
    assert bench.ran == [("f", 1)]


@pytest.mark.parametrize("api", APIS, ids=str)
@pytest.mark.parametrize("kind", LOOPS)
def test_a_refused_call_is_not_run(world: MakeWorld, api: Any, kind: str) -> None:
    """It is DENIED in the settlement, charges no tool call, and the model is told the findings."""
    bench = Bench()
    w = world(CALL, DONE, judges=[always(Refuse(("R1", "R2")))], api=api)
    (result,) = w.ask(LOOPS[kind](bench.make("f"))).result.tool_results
    assert (result.state, bench.ran, w.states()) == ("DENIED", [], [("DENIED", "JUDGED", 1)])
    ((_, output, failed),) = api.told(w.provider.requests[-1].json)
    told = json.loads(output)
    assert (told["status"], failed) == ("causal_review_required", api.name == "messages")
    assert told["findings"] == [{"judge": "rule", "code": "R1"}, {"judge": "rule", "code": "R2"}]
    assert w.balance()[0].tool_calls == 0
    assert w.ask(LOOPS[kind](bench.make("f"))).result.tool_results[0].output == output


def test_a_judge_can_ask_for_a_person(world: MakeWorld) -> None:
    """As a tool's own declaration does; once allowed, the call runs and the judge is not asked again."""
    bench, rule = Bench(), always(NeedsApproval(("RISKY",)))
    w = world(CALL, DONE, judges=[rule])
    error = w.ask(loop(bench.make("f"))).raised(ApprovalRequired)
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    assert w.text(w.ask(loop(bench.make("f")))) == "Done."
    assert (len(rule.asked), bench.ran) == (1, [("f", 1)])


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ([Permit(), Permit()], "DONE"),
        ([Permit(), NeedsApproval()], "AWAITING_APPROVAL"),
        ([NeedsApproval(), Permit()], "AWAITING_APPROVAL"),
        ([NeedsApproval(), Refuse()], "DENIED"),
        ([Refuse(), Permit()], "DENIED"),
    ],
)
def test_the_strongest_verdict_wins(world: MakeWorld, said: list[Verdict], state: str) -> None:
    """In whatever order; what each said is kept."""
    judges = [always(verdict, f"judge-{n}") for n, verdict in enumerate(said)]
    w = world(CALL, DONE, judges=judges)
    w.ask(loop(Bench().make("f")))
    (effect,) = w.effects()
    assert effect.state == state
    assert len(json.loads(effect.judgement or "")) == 2


def test_a_tool_that_declares_approval_waits_whatever_judges_permit(world: MakeWorld) -> None:
    """The declaration is a judge like others; none can take it back."""
    w = world(calls(call("pay", {"n": 1})), DONE, judges=[always(Permit())])
    w.ask(loop(Bench().asking())).raised(ApprovalRequired)
    (effect,) = w.effects()
    assert [ruling[:3:2] for ruling in json.loads(effect.judgement or "")] == [
        ["memoflow.approval", "approval"],
        ["rule", "permit"],
    ]


def test_siblings_are_judged_by_themselves(world: MakeWorld) -> None:
    """One that is refused keeps no other from running."""
    bench = Bench()
    rule = Rule(lambda call: Refuse(("ODD",)) if call.arguments["n"] % 2 else Permit())
    w = world(calls(*[call("f", {"n": n}) for n in (1, 2, 3)]), DONE, judges=[rule])
    result = w.ask(loop(bench.make("f"))).result
    assert [one.state for one in result.tool_results] == ["DENIED", "DONE", "DENIED"]
    assert (bench.ran, w.balance()[0].tool_calls) == ([("f", 2)], 1)


# What a judge is given


def test_a_judge_sees_the_call_and_the_conversation(world: MakeWorld) -> None:
    """Tool, canonical arguments, identity, requester, the request, and every round so far."""
    bench, rule = Bench(), always(Permit())
    w = world(calls(call("f", '{ "n" : 1 }')), calls(call("f", {"n": 2})), DONE, judges=[rule])
    tool = bench.make("f")
    w.ask(loop(tool), requester="user:7").result  # noqa: B018
    first, second = rule.asked
    assert (first.tool, first.arguments_json, first.arguments) == (tool, b'{"n":1}', {"n": 1})
    assert (first.requester, first.identity.run_id, first.kind) == ("user:7", "r", "function")
    assert (first.round, first.ordinal, second.round) == (0, 0, 1)
    assert (first.provider, first.api, first.model) == ("openai", "responses", "gpt-test")
    assert first.request["input"] == second.request["input"] == "Hello"
    assert first.idempotency_key == bench.keys[0]
    assert first.history == ()
    (exchange,) = second.history
    assert exchange.reply == first.reply
    assert [json.loads(result.output) for result in exchange.results] == [{"n": 1}]


def test_a_restored_conversation_is_the_same(world: MakeWorld) -> None:
    """A judge that is asked in a later attempt sees the rounds that were restored."""
    bench, rule = Bench(), always(Permit())
    failing = bench.failing("g", ValueError("x"), effect="read_only")
    w = world(CALL, calls(call("g", {"n": 2})), DONE, judges=[rule])
    w.ask(loop(bench.make("f"), failing)).raised(ValueError)
    later = always(Permit(), "later")
    other = w.again(judges=[rule, later])
    other.ask(loop(bench.make("f"), failing)).raised(ValueError)
    (asked,) = later.asked
    assert (asked.tool.name, len(asked.history)) == ("g", 1)
    assert asked.history[0].reply == rule.asked[0].reply
    assert [one.restored for one in asked.history[0].results] == [True]


def test_no_payload_is_in_a_repr(world: MakeWorld) -> None:
    """What a judge is given shows neither arguments nor conversation where it is printed."""
    rule = always(Permit())
    w = world(calls(call("f", {"n": 4711})), DONE, judges=[rule])
    w.ask(loop(Bench().make("f"))).result  # noqa: B018
    assert "4711" not in repr(rule.asked[0])
    assert "Hello" not in repr(rule.asked[0])


# Replay


def test_a_replay_uses_the_verdict_that_is_kept(world: MakeWorld) -> None:
    """A judge that has changed its mind is not asked again: what was denied stays denied."""
    bench = Bench()
    w = world(CALL, DONE, judges=[always(Refuse(("R1",)))])
    first = w.ask(loop(bench.make("f"))).result.tool_results[0].output
    mild = always(Permit())
    other = w.again(judges=[mild])
    (result,) = other.ask(loop(bench.make("f"))).result.tool_results
    assert (result.state, result.output, mild.asked, bench.ran) == ("DENIED", first, [], [])


def test_a_kept_permit_holds_for_what_runs_again(world: MakeWorld) -> None:
    """A further execution of a permitted call is not judged anew by the same judge."""
    bench, rule = Bench(), always(Permit())
    failing = bench.failing("f", ValueError("x"), effect="idempotent")
    w = world(CALL, DONE, judges=[rule])
    w.ask(loop(failing)).raised(ValueError)
    w.ask(loop(failing)).raised(ValueError)
    assert (len(rule.asked), len(bench.ran)) == (1, 2)
    assert len({effect.judgement for effect in w.effects()}) == 1


def test_a_judge_that_came_later_is_heard_about_what_has_not_begun(world: MakeWorld) -> None:
    """A waiting call that was allowed, and that a new judge refuses, is denied, and uses no approval."""
    bench = Bench()
    w = world(calls(call("pay", {"n": 1})), DONE)
    error = w.ask(loop(bench.asking())).raised(ApprovalRequired)
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    other = w.again(judges=[always(Refuse(("NEW",)), "new")])
    (result,) = other.ask(loop(bench.asking())).result.tool_results
    assert (result.state, bench.ran, w.states()) == ("DENIED", [], [("DENIED", "JUDGED", 1)])
    assert outputs(other)[0]["findings"] == [{"judge": "new", "code": "NEW"}]
    assert w.rt.approvals.show(error.requests[0].id).request.used_at is None
    assert w.ask(loop(bench.asking())).result.tool_results[0].output == result.output


def test_a_judge_that_came_later_does_not_hide_an_unknown(world: MakeWorld) -> None:
    """What may have happened is not told to the model as denied."""
    bench = Bench()
    failing = bench.failing("f", ValueError("x"), effect="idempotent")
    w = world(CALL, DONE)
    w.ask(loop(failing)).raised(ValueError)
    other = w.again(judges=[always(Refuse())])
    other.ask(loop(failing)).raised(OutcomeUnknown)
    assert w.states() == [("OUTCOME_UNKNOWN", "TOOL_ERROR", 1)]


# Judges that fail


@pytest.mark.parametrize("effect", ["read_only", "idempotent", "at_most_once"])
@pytest.mark.parametrize(
    "rule",
    [
        lambda: broken(ValueError("the secret text")),
        lambda: always("permit"),
        lambda: always(None),
        lambda: Rule(lambda call: Refuse(("has a blank",))),
        lambda: Rule(lambda call: Permit(), policy_digest=""),
    ],
    ids=["raises", "text", "nothing", "bad code", "no digest"],
)
def test_a_judge_that_fails_refuses_what_does_more_than_read(
    world: MakeWorld, effect: Any, rule: Callable[[], Rule], caplog: pytest.LogCaptureFixture
) -> None:
    """It is recorded, and its text is nowhere."""
    bench = Bench()
    w = world(CALL, DONE, judges=[rule()])
    (result,) = w.ask(loop(bench.make("f", effect=effect))).result.tool_results
    assert result.state == ("DONE" if effect == "read_only" else "DENIED")
    assert len(bench.ran) == (effect == "read_only")
    (ruling,) = json.loads(w.effects()[0].judgement or "")
    assert (ruling[0], ruling[3]) == ("rule", ["JUDGE_FAILED"])
    assert "could not judge" in caplog.text
    assert "secret" not in caplog.text + (w.effects()[0].judgement or "")


def test_a_stop_while_judging_settles_the_reply_and_begins_nothing(world: MakeWorld) -> None:
    """The reply was paid: it is recorded with its calls left open, and the next attempt goes on."""
    bench, stops = Bench(), []

    def say(call: ProposedCall) -> Permit:
        if stops:
            stops.pop()()
        return Permit()

    w = world(CALL, DONE, judges=[Rule(say)])
    with stopping(w) as stop:
        stops.append(stop)
        got = w.ask(loop(bench.make("f")))
    assert isinstance(got.error, asyncio.CancelledError if w.is_async else KeyboardInterrupt)
    assert (bench.ran, w.states()) == ([], [])
    assert (w.invocation.state, w.invocation.reservation_state) == ("SUCCEEDED", "SETTLED")
    assert w.balance()[0].tool_calls == 1
    assert w.text(w.ask(loop(bench.make("f")))) == "Done."
    assert (bench.ran, w.sent, w.balance()[0].tool_calls) == ([("f", 1)], 2, 1)


# Judges themselves


def test_a_judge_is_asked_where_it_blocks_no_event_loop(make_world: MakeWorld) -> None:
    """In an async call it runs on another thread."""
    threads: list[int] = []
    rule = Rule(lambda call: threads.append(threading.get_ident()) or Permit())
    w = make_world("async", CALL, DONE, judges=[rule])
    w.ask(loop(Bench().make("f"))).result  # noqa: B018
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("judges", "said"),
    [
        ([object()], "no judge"),
        ([always(Permit(), "")], "1 to 64"),
        ([always(Permit(), "x" * 65)], "1 to 64"),
        ([always(Permit()), always(Refuse())], "'rule'"),
        ([always(Permit(), "memoflow.approval")], "'memoflow.approval'"),
    ],
)
def test_what_is_no_judge_is_refused_when_the_runtime_opens(judges: list[Any], said: str) -> None:
    """With a sentence that says what a judge has."""
    with pytest.raises(ConfigurationError, match=said):
        JudgeBench(judges)


@pytest.mark.parametrize("words", ["R1", ("a b",), ("",), (1,), ("é",), ("x" * 129,), ("R",) * 33])
@pytest.mark.parametrize("kind", [Permit, NeedsApproval, Refuse])
@pytest.mark.parametrize("name", ["codes", "notes"])
def test_codes_and_notes_are_plain_words(kind: Any, words: Any, name: str) -> None:
    """They are kept in the clear, so nothing else fits into them."""
    with pytest.raises(InvalidRequest, match=name):
        kind(**{name: words})


def test_a_judgement_is_kept_without_loss() -> None:
    """What is stored is what was said, in order."""
    judgement = Judgement(
        (Ruling("a", "sha256:1", "permit", ()), Ruling("b", "sha256:2", "refuse", ("X", "Y")))
    )
    assert Judgement.parse(judgement.text()) == judgement
    assert (Judgement().text(), Judgement.parse(None)) == (None, Judgement())
    assert (judgement.said, judgement.findings) == ("refuse", (("b", "X"), ("b", "Y")))


def test_notes_are_kept_and_not_told(world: MakeWorld) -> None:
    """What a judge notes for those who look later is with the effect, and not in what the model reads."""
    w = world(CALL, DONE, judges=[always(Refuse(("R1",), ("seen:twice",)))])
    w.ask(loop(Bench().make("f"))).result  # noqa: B018
    (ruling,) = json.loads(w.effects()[0].judgement or "")
    assert ruling == ["rule", "sha256:policy", "refuse", ["R1"], ["seen:twice"]]
    assert "seen" not in json.dumps(outputs(w))
    assert Judgement.parse(json.dumps([ruling])).rulings[0].notes == ("seen:twice",)


def test_a_judge_sees_what_else_may_run(world: MakeWorld) -> None:
    """What a result may be believed is known of the tool that gave it."""
    rule = always(Permit())
    tools = [Bench().make("f"), Bench().make("g")]
    world(CALL, DONE, judges=[rule]).ask(loop(*tools)).result  # noqa: B018
    assert list(rule.asked[0].toolset) == tools
