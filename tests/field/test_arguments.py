"""Cases about the arguments of tool calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memoflow import InvalidRequest, tool
from memoflow.canonical import Digester
from memoflow.testing import call, calls, incomplete, text
from memoflow.tools import BoundArguments
from tests.field.conftest import REQUEST, Field

RAN: list[Any] = []


@tool(version="v1", effect="read_only")
def list_ports() -> list[int]:
    """List open ports."""
    RAN.append("list_ports")
    return [80]


@tool(version="v1", effect="read_only")
def lookup(a: int) -> int:
    """Look something up."""
    RAN.append(a)
    return a


@tool(version="v1", effect="read_only")
def scale(x: float) -> float:
    """Scale."""
    RAN.append(x)
    return x


@tool(version="v1", effect="at_most_once")
def pay(amount: int) -> str:
    """Pay."""
    RAN.append(amount)
    return "paid"


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Each case counts from zero."""
    RAN.clear()


@pytest.mark.parametrize("blank", ["", " \n"])
def test_case_01_blank_arguments_mean_none(case: Field, blank: str) -> None:
    """Blank arguments are `{}`: a tool without parameters runs, one that needs some is told so."""
    played = case.play(
        [calls(call("list_ports", blank), call("lookup", blank)), text("ok")], [list_ports, lookup]
    )
    assert RAN == ["list_ports"]
    assert "INVALID_ARGUMENTS" in played.outputs[1]
    bound, empty = list_ports.bind(blank), list_ports.bind("{}")
    assert isinstance(bound, BoundArguments)
    assert isinstance(empty, BoundArguments)
    assert bound.digest(Digester()) == empty.digest(Digester())


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
def test_case_02_nothing_runs_in_a_turn_that_was_cut_short(case: Field, reason: Any) -> None:
    """No call of an incomplete turn runs, not even a complete one; the turn is settled and returned."""
    whole = call("pay", {"amount": 5}, status="completed")
    cut = call("pay", '{"amount": 5', status="incomplete")
    played = case.play([incomplete(whole, cut, reason=reason)], [pay])
    assert played.result is not None
    assert RAN == []
    assert played.result.response.incomplete_details is not None
    assert played.result.response.incomplete_details.reason == reason
    assert played.wire == 1
    assert case.invocations[0].reservation_state == "SETTLED"
    assert case.account.settled.total_tokens == played.provider.billed.total


def test_case_04_a_bad_call_is_refused_alone(case: Field) -> None:
    """Malformed, non-object and doubly encoded arguments are refused, not repaired; the sibling runs."""
    bad = ['{"q": oops"}', "null", "[1]", json.dumps('{"a":1}')]
    script = [calls(*[call("lookup", text) for text in bad], call("lookup", {"a": 1})), text("ok")]
    played = case.play(script, [lookup])
    assert RAN == [1]
    assert [("INVALID_ARGUMENTS" in output) for output in played.outputs] == [True] * 4 + [False]
    assert all("oops" not in output for output in played.outputs)
    assert [effect.state for effect in case.effects] == ["REFUSED"] * 4 + ["DONE"]
    assert [item.reservation_state for item in case.invocations] == ["SETTLED", "SETTLED"]


def test_case_06_numbers_without_a_value(case: Field) -> None:
    """NaN and overflow are refused in arguments; a result that holds one is done and told."""

    @tool(version="v1", effect="at_most_once")
    def score() -> dict[str, float]:
        """Score."""
        RAN.append("score")
        return {"score": float("nan")}

    bad = [call("scale", '{"x": NaN}'), call("scale", '{"x": 1e400}'), call("score")]
    played = case.play([calls(*bad), text("ok")], [scale, score], run="r")
    assert RAN == ["score"]
    assert [effect.state for effect in case.effects] == ["REFUSED", "REFUSED", "DONE"]
    assert case.effects[2].reason == "RESULT_NOT_ENCODABLE"
    assert "RESULT_NOT_ENCODABLE" in played.outputs[2]


def test_case_08_text_that_cannot_be_sent_or_stored(case: Field) -> None:
    """A lone surrogate is refused before anything is reserved; NUL in a result is carried."""

    @tool(version="v1", effect="read_only")
    def nul() -> str:
        """Return a NUL."""
        return "a\0b"

    refused = case.play([text("never")], request={**REQUEST, "input": "\ud83d"})
    assert isinstance(refused.error, InvalidRequest)
    assert refused.wire == 0
    assert case.invocations == []
    argument = case.play([calls(call("lookup", '{"a":"\\ud83d"}')), text("ok")], [lookup])
    assert "INVALID_ARGUMENTS" in argument.outputs[0]
    carried = case.play([calls(call("nul")), text("ok")], [nul])
    assert carried.error is None
    assert carried.outputs == ["a\0b"]
    assert RAN == []
