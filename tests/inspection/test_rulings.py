"""Decisions as words that are kept, and a report of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memoflow import Permit, Refuse
from memoflow.inspection import Event, Inspector, ToolCall
from memoflow.inspection.policy_file import read_policy
from memoflow.inspection.report import share, summed
from memoflow.inspection.rulings import JUDGE_ID, code_of, kept_of, notes_of, word
from memoflow.ledger.queries import EffectInfo
from memoflow.turn import Judgement, Ruling
from tests.inspection._events import bash, judged, result

ODD = "reine Frage: «darf das?» " + "x" * 150


def policy(action: str, name: str = "a-rule") -> Any:
    """One rule that always holds."""
    return read_policy({"agent_policies": [{"name": name, "when": {}, "action": action}]})


@pytest.mark.parametrize("mode", ["shadow", "enforce"])
@pytest.mark.parametrize("action", ["allow", "ask", "deny"])
def test_what_is_kept_is_read_back(mode: Any, action: Any) -> None:
    """Verdict, rule, and whether it was meant."""
    decision = judged(bash("ls"), inspector=Inspector(policy(action), mode=mode))
    kept = kept_of(Ruling(JUDGE_ID, decision.policy, "permit", (code_of(decision),)))
    assert (kept.verdict, kept.rule, kept.shadow) == (action, "a-rule", mode == "shadow")
    assert (kept.inspected, kept.policy) == (True, decision.policy)


@pytest.mark.parametrize("mode", ["shadow", "enforce"])
@pytest.mark.parametrize(("tool", "verdict"), [("send_email", "deny"), ("read_page", "allow")])
def test_what_was_not_inspected_is_read_back_as_that(mode: Any, tool: str, verdict: str) -> None:
    """Whatever the verdict of its class was, and also where the judge itself failed."""
    session = Inspector(mode=mode).session()
    decision = session.uninspected(Event("s", 1, ToolCall(tool, {})), ValueError("x"))
    kept = kept_of(Ruling(JUDGE_ID, "d", "permit", (code_of(decision),)))
    assert (kept.inspected, kept.verdict, kept.rule, kept.shadow) == (False, verdict, None, mode == "shadow")
    failed = kept_of(Ruling(JUDGE_ID, "", "refuse", ("JUDGE_FAILED",)))
    assert (failed.inspected, failed.verdict) == (False, "deny")


@pytest.mark.parametrize("name", ["not_inspected", "shadow:deny", "default", ODD, "a:b", "ε", "a b", "a-b"])
def test_any_name_of_a_rule_is_a_word(name: str) -> None:
    """A verdict takes it, and it is read as the rule that it names, not as something else."""
    decision = judged(bash("ls"), inspector=Inspector(policy("deny", name), mode="enforce"))
    code = code_of(decision)
    Refuse((code,), notes_of(decision, hosts=True, latency_us=1))
    kept = kept_of(Ruling(JUDGE_ID, "d", "refuse", (code,)))
    assert (kept.inspected, kept.verdict, kept.rule) == (True, "deny", word(name))


def test_two_names_stay_two() -> None:
    """Where a name had to be changed or cut, its digest stands behind it."""
    names = [ODD, ODD + "y", "a b", "a-b", "a.b", "a+b"]
    assert len({word(name) for name in names}) == len(names)


def test_notes_have_no_text_and_no_more_than_fit() -> None:
    """However much was found."""
    texts = [f"AKIA{n:016d} https://h{n}.evil.example/ {n}@b.example" for n in range(80)]
    decision = judged(result(texts[0]), ToolCall("http_post", {"url": " ".join(texts)}))
    many = replace(decision, matched=tuple(f"rule {n}" for n in range(100)))
    notes = notes_of(many, hosts=True, latency_us=5)
    Permit(notes=notes)
    assert "AKIA" not in " ".join(notes_of(decision, hosts=False, latency_us=5))
    assert {"engine:1", "latency_us:5", "action:network", "hosts:80"} <= set(notes)


def effect(**fields: Any) -> EffectInfo:
    """An effect of a ledger."""
    judgement = Judgement((Ruling(JUDGE_ID, "d", "permit", ("shadow:deny:r",)),)).text()
    usual: dict[str, Any] = dict.fromkeys(EffectInfo.__slots__, "x")
    usual |= {"ordinal": 0, "execution": 1, "state": "DONE", "judgement": judgement}
    return EffectInfo(**{**usual, **fields})


def test_a_call_counts_once_however_often_it_ran() -> None:
    """By its last execution; what no executor would have run counts nowhere."""
    again = [effect(execution=2), effect(execution=1, judgement=None), effect(ordinal=1, execution=1)]
    found = summed([*again, effect(state="REFUSED", ordinal=2), effect(state="PROVIDER_SIDE", ordinal=-1)])
    assert (found.calls, found.denied, found.unjudged, found.shadow) == (2, 2, 0, 2)


@pytest.mark.parametrize(("part", "whole", "said"), [(0, 0, "0.0000"), (1, 3, "0.3333"), (5, 5, "1.0000")])
def test_a_rate_is_a_decimal(part: int, whole: int, said: str) -> None:
    """With four places, by whole numbers alone."""
    assert share(part, whole) == said
