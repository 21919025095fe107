"""Cases about the arguments of tool calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memoflow import InvalidRequest, OutcomeUnknown, ProviderRejected, tool
from memoflow.testing import call, calls, incomplete, status, stops, text
from memoflow.tools import BoundArguments
from tests.field._faces import CHAT, FACES, MESSAGES
from tests.field.conftest import Field

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


@tool(version="v1", effect="read_only")
def name(s: str) -> str:
    """Name something."""
    RAN.append(s)
    return s


@tool(version="v1", effect="at_most_once")
def pay(amount: int) -> str:
    """Pay."""
    RAN.append(amount)
    return "paid"


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Each case counts from zero."""
    RAN.clear()


def test_case_01_blank_arguments_mean_none(each: Field, stream: bool) -> None:
    """Blank arguments are `{}`: a tool without parameters runs, one that needs some is told so."""
    blanks = ["", " \n", "\t"]
    wanted = [one for blank in blanks for one in (call("list_ports", blank), call("lookup", blank))]
    played = each.play([calls(*wanted), text("ok")], [list_ports, lookup], stream=stream)
    assert RAN == ["list_ports"] * 3
    assert ["INVALID_ARGUMENTS" in output for output in played.outputs] == [False, True] * 3
    empty = list_ports.bind("{}")
    assert isinstance(empty, BoundArguments)
    digest = empty.digest(each.runtime.digester)
    assert [effect.arguments_digest for effect in each.effects[::2]] == [digest] * 3


def test_case_02_nothing_runs_in_a_turn_that_was_cut_short(each: Field, stream: bool) -> None:
    """No call of an incomplete turn runs, not even a complete one; the turn is settled and returned."""
    whole = call("pay", {"amount": 5}, status="completed")
    cut = call("pay", '{"amount": 5', status="incomplete")
    billed = 0
    for reason in ("max_output_tokens", "content_filter"):
        played = each.play([incomplete(whole, cut, reason=reason)], [pay], stream=stream)
        assert RAN == []
        assert played.wire == 1
        billed += played.provider.billed.total
        assert played.result is not None
        assert played.result.finish_reason not in ("stop", "tool_calls")
    assert {item.reservation_state for item in each.invocations} == {"SETTLED"}
    assert each.account.settled.total_tokens == billed


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
def test_case_02_the_reason_of_a_cut_turn_is_told(case: Field, reason: Any) -> None:
    """The response is the caller's, with the provider's own reason in it."""
    played = case.play([incomplete(call("pay", {"amount": 5}), reason=reason)], [pay])
    assert played.result is not None
    assert played.result.response.incomplete_details.reason == reason


@pytest.mark.parametrize("face", [CHAT, MESSAGES], ids=str)
def test_case_02_a_whole_turn_of_cut_input_is_refused_alone(case: Field, stream: bool, face: Any) -> None:
    """A provider that cuts and says that all is well is not believed: a prefix of JSON is not JSON."""
    script = [calls(call("pay", '{"amount": 5'), call("lookup", {"a": 1})), text("ok")]
    played = case.play(script, [pay, lookup], stream=stream, face=face)
    assert RAN == [1]
    assert "INVALID_ARGUMENTS" in played.outputs[0]


def test_case_04_a_bad_call_is_refused_alone(each: Field, stream: bool) -> None:
    """Malformed, non-object and doubly encoded arguments are refused, not repaired; the sibling runs."""
    bad = ['{"q": oops"}', "null", "[1]", json.dumps('{"a":1}'), "5", '{"a":1}{"a":1}']
    script = [calls(*[call("lookup", text) for text in bad], call("lookup", {"a": 1})), text("ok")]
    played = each.play(script, [lookup], stream=stream)
    assert RAN == [1]
    assert [("INVALID_ARGUMENTS" in output) for output in played.outputs] == [True] * 6 + [False]
    assert all("oops" not in output and len(output) < 500 for output in played.outputs)
    assert [effect.state for effect in each.effects] == ["REFUSED"] * 6 + ["DONE"]
    assert [item.reservation_state for item in each.invocations] == ["SETTLED", "SETTLED"]
    assert [told for _, told in each.face.answered(played.sent[1])] == played.outputs


def test_case_04_malformed_and_no_object_are_told_apart(each: Field, stream: bool) -> None:
    """The model learns which of the two it was; "truncated" is said of neither."""
    played = each.play([calls(call("lookup", "{oops"), call("lookup", "[1]")), "ok"], [lookup], stream=stream)
    malformed, no_object = (output.lower() for output in played.outputs)
    assert "object" not in malformed or "json" in malformed
    assert "object" in no_object
    assert malformed != no_object
    assert not any("truncated" in output for output in (malformed, no_object))


def test_case_06_numbers_without_a_value_in_arguments(each: Field) -> None:
    """They are refused, overflow too, which is no constant that a parser could be told to refuse."""
    bad = ['{"x": NaN}', '{"x": Infinity}', '{"x": -Infinity}', '{"x": 1e400}', '{"x": -1e400}']
    script = [calls(*[call("scale", one) for one in bad], call("scale", {"x": 1.5})), text("ok")]
    played = each.play(script, [scale], stream=True)
    assert ["INVALID_ARGUMENTS" in output for output in played.outputs] == [True] * 5 + [False]
    assert RAN == [1.5]
    assert [effect.state for effect in each.effects] == ["REFUSED"] * 5 + ["DONE"]


def test_case_06_numbers_without_a_value_in_results(each: Field) -> None:
    """A result that holds one is done and told, and never a reason to run again."""

    @tool(version="v1", effect="at_most_once")
    def score() -> dict[str, float]:
        """Score."""
        RAN.append("score")
        return {"score": float("nan")}

    played = each.play([calls(call("score")), text("ok")], [score])
    assert RAN == ["score"]
    assert [(effect.state, effect.reason) for effect in each.effects] == [("DONE", "RESULT_NOT_ENCODABLE")]
    assert "RESULT_NOT_ENCODABLE" in played.outputs[0]


def test_case_08_requests_that_cannot_be_sent(each: Field) -> None:
    """What the SDK could not encode is refused before anything is reserved, and is no connection error."""
    odd: list[Any] = ["\ud83d", float("nan"), float("inf")]
    for request in [*map(each.face.asking, odd), *(each.face.asking(metadata={"x": one}) for one in odd)]:
        refused = each.play([text("never")], request=request)
        assert isinstance(refused.error, InvalidRequest)
        assert refused.wire == 0
    assert each.invocations == []


def test_case_08_arguments_with_a_lone_surrogate(each: Field) -> None:
    """They have no digest and could not be sent back, so the call is refused; a pair is a character."""
    odd = ['{"s":"\\ud83d"}', '{"s":"\\udc00\\ud83d"}', '{"\\ud83d":1}']
    script = [calls(*[call("name", one) for one in [*odd, '{"s":"\\ud83d\\ude00"}']]), text("ok")]
    played = each.play(script, [name], stream=True)
    assert ["INVALID_ARGUMENTS" in output for output in played.outputs] == [True] * 3 + [False]
    assert RAN == ["\U0001f600"]


@pytest.mark.parametrize("bad", ['{"s":"\\ud83d"}', '{"s": 1e400}', '{"s": NaN}'])
def test_case_08_a_whole_message_that_holds_them(case: Field, bad: str) -> None:
    """Input is a part of the body of a whole message: such a body is not read, and nothing runs."""
    played = case.play([calls(call("name", bad))], [name], face=MESSAGES)
    assert isinstance(played.error, OutcomeUnknown)
    assert (case.invocations[0].reason, case.account.unknown.total_tokens) == ("NOT_JSON", 4_000)
    assert RAN == []


def _odd_results() -> list[Any]:
    @tool(version="v1", effect="at_most_once")
    def nul() -> str:
        """Return a NUL."""
        return "a\0b"

    @tool(version="v1", effect="at_most_once")
    def half() -> str:
        """Return half of a character."""
        return "\ud83d"

    return [nul, half]


def test_case_08_results_that_no_column_takes(each: Field) -> None:
    """NUL is carried; a lone surrogate cannot be sent, which is told; both are done."""
    played = each.play([calls(call("nul"), call("half")), text("ok")], _odd_results())
    assert played.outputs[0] == "a\0b"
    assert "RESULT_NOT_ENCODABLE" in played.outputs[1]
    assert [effect.state for effect in each.effects] == ["DONE", "DONE"]
    assert each.face.answered(played.sent[1])[0][1] == "a\0b"


@pytest.mark.postgres
@pytest.mark.parametrize("face", [None, CHAT, MESSAGES], ids=str)
def test_case_08_text_that_postgresql_refuses(on_postgres: Field, face: Any) -> None:
    """Neither arguments, results, names nor ids with a NUL stop a record from being written."""
    case = on_postgres
    odd = [call("name", '{"s":"a\\u0000b"}'), call("nul"), call("half")]
    played = case.play([calls(*odd), text("ok")], [name, *_odd_results()], face=face)
    assert played.outputs[0] == "a\0b"
    assert [effect.state for effect in case.effects] == ["DONE"] * 3
    for bad in (call("na\0me"), call("name", {"s": "x"}, call_id="c\0d")):
        spoilt = case.play([calls(bad), text("ok")], [name], face=face)
        assert spoilt.error is not None or "UNKNOWN_TOOL" in spoilt.outputs[0]
    assert {item.reservation_state for item in case.invocations} == {"SETTLED"}
    assert RAN == ["a\0b"]


@pytest.mark.postgres
@pytest.mark.parametrize("face", FACES, ids=str)
def test_case_08_what_a_provider_calls_things(on_postgres: Field, stream: bool, face: Any) -> None:
    """Names, codes and reasons of its own go into columns only where every column can hold them."""
    odd = "a\0b"
    script = [
        text("ok", model=odd),
        text("ok", service_tier=odd),
        stops(odd, "ok"),
        status(400, code=odd, type=odd, param=odd),
    ]
    for entry in script:
        played = on_postgres.play([entry, text("ok")], stream=stream, face=face)
        assert played.wire == 1
        assert played.error is None or isinstance(played.error, ProviderRejected)
    assert len(on_postgres.invocations) == len(script)
    assert {item.reservation_state for item in on_postgres.invocations} == {"SETTLED"}
    refused = on_postgres.play([text("never")], request=face.asking(model="m\0"), face=face)
    assert isinstance(refused.error, InvalidRequest)
    assert refused.wire == 0
