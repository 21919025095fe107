"""Calls and results that do not go together: each way has a code."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.causal.adapters import correlate, openai_responses
from memoflow.causal.codes import Code
from tests.causal.test_adapters_openai import function_call, output, traced


@pytest.mark.parametrize(
    ("items", "found"),
    [
        ([function_call("a"), output("a")], []),
        ([function_call("a")], [("r1", "CALL_UNANSWERED")]),
        ([output("a")], [("root", "RESULT_UNMATCHED")]),
        ([function_call("a"), output("b")], [("r1", "CALL_UNANSWERED"), ("r1", "RESULT_UNMATCHED")]),
        ([function_call("a"), output("a"), output("a")], [("r1", "RESULT_DUPLICATE")]),
        (
            [function_call("a"), function_call("a"), output("a")],
            [("r1", "CALL_DUPLICATE"), ("r2", "CALL_DUPLICATE")],
        ),
        (
            [function_call("a"), {**output("a"), "type": "custom_tool_call_output"}],
            [("r1", "RESULT_MISMATCHED")],
        ),
        ([function_call(""), output("a")], [("r1", "CALL_UNREADABLE"), ("r1", "RESULT_UNMATCHED")]),
        ([{**function_call("a"), "call_id": 5}], [("r1", "CALL_UNREADABLE")]),
        ([{**function_call("a"), "name": None}, output("a")], [("r1", "CALL_UNREADABLE")]),
        ([{"type": "function_call_output", "output": "x"}], [("root", "RESULT_UNMATCHED")]),
    ],
)
def test_what_does_not_go_together_is_found(
    items: list[dict[str, Any]], found: list[tuple[str, str]]
) -> None:
    """About the record of the call, or, for a result without one, about what the turn ended with."""
    tracer = traced(openai_responses.read(items))
    prefix = "MEMOFLOW-CAUSAL-"
    assert [(p.record_id, p.code.removeprefix(prefix)) for p in tracer.problems] == found


def test_a_doubtful_result_is_assigned_to_no_call() -> None:
    """Neither one of two, nor one of another kind, nor one for two calls."""
    for items in (
        [function_call("a"), output("a"), output("a")],
        [function_call("a"), function_call("a"), output("a")],
        [function_call("a"), {**output("a"), "type": "shell_call_output"}],
    ):
        pairs, _ = correlate(openai_responses.read(items))
        assert [pair.result for pair in pairs] == [None] * len(pairs)


def test_no_content_is_in_a_problem() -> None:
    """Only ids of the provider, shortened."""
    items = [function_call("x" * 500, '{"q": "SECRET"}'), output("y" * 500, "SECRET")]
    pairs, orphans = correlate(openai_responses.read(items))
    for problem in (*pairs[0].problems, *orphans):
        assert "SECRET" not in problem.message
        assert len(problem.message) < 200


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abcd")))
def test_every_call_and_result_is_accounted_for(called: list[str], answered: list[str]) -> None:
    """Exactly the ids with one call and one result are pairs; everything else is found, and nothing twice."""
    seen = openai_responses.read([*map(function_call, called), *map(output, answered)])
    pairs, orphans = correlate(seen)
    fine = {id for id in called if called.count(id) == answered.count(id) == 1}
    assert {pair.call.call_id for pair in pairs if pair.result and not pair.problems} == fine
    assert [pair.call.call_id for pair in pairs] == called
    assert len(orphans) == len(set(answered) - set(called))
    assert all(problem.code == Code.RESULT_UNMATCHED for problem in orphans)
