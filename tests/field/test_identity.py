"""Cases about which call is which."""

from __future__ import annotations

import threading
import unicodedata
from typing import Any

import pytest

from memoflow import (
    ClientCallRefused,
    InvalidProviderReply,
    InvalidRequest,
    InvalidTool,
    ProviderRejected,
    ToolCallBudgetExceeded,
    ToolRoundLimit,
    tool,
)
from memoflow.testing import (
    SimulatedProvider,
    call,
    calls,
    code_interpreter,
    computer_call,
    custom_call,
    forever,
    items,
    mcp_call,
    text,
    unknown_item,
    web_search,
)
from tests.field._faces import CHAT, MESSAGES, RESPONSES, Face
from tests.field.conftest import Field

RAN: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Each case counts from zero."""
    RAN.clear()


@tool(version="v1", effect="idempotent")
def inc(n: int) -> int:
    """Add."""
    RAN.append(n)
    return n


@tool(version="v1", effect="at_most_once")
def write(path: str) -> str:
    """Write a file."""
    RAN.append(path)
    return "written"


def test_case_09_two_calls_share_an_id(each: Field, stream: bool) -> None:
    """Duplicate or blank ids fail the turn closed: none of its calls runs, and the reply is settled.

    One blank id among good ones does so too: that turn could not go on.
    """
    billed = 0
    for ids in (["call_1", "call_1"], ["", ""], [" ", " "], ["call_1", ""], ["a", "b", "a"]):
        wanted = [call("write", {"path": one}, call_id=one) for one in ids]
        played = each.play([calls(*wanted)], [write], stream=stream)
        assert isinstance(played.error, InvalidProviderReply), ids
        assert RAN == []
        billed += played.provider.billed.total
    assert {item.reservation_state for item in each.invocations} == {"SETTLED"}
    assert each.account.settled.total_tokens == billed


@pytest.mark.parametrize("face", [RESPONSES, CHAT], ids=str)
def test_case_09_calls_of_two_kinds_share_an_id(case: Field, stream: bool, face: Face) -> None:
    """Their answers could not be told apart either."""
    same = [call("write", {"path": "a"}, call_id="call_1"), custom_call("patch", "b", call_id="call_1")]
    played = case.play([calls(*same)], [write, patch], stream=stream, face=face)
    assert isinstance(played.error, InvalidProviderReply)
    assert RAN == []


def test_case_09_an_id_that_comes_again_in_a_later_round(each: Field) -> None:
    """Effects never depend on ids, so both run; whether such a history is taken is the API's own rule."""
    again = call("inc", {"n": 1}, call_id="call_1")
    played = each.play([calls(again), calls(again), text("ok")], [inc])
    assert RAN == [1, 1]
    assert isinstance(played.error, ProviderRejected) if each.face is MESSAGES else played.error is None
    assert len({effect.idempotency_key for effect in each.effects}) == 2


def test_case_10_identical_calls_and_a_failing_sibling(each: Field) -> None:
    """Identical calls are different effects; a failing sibling loses nobody; a retry runs what is left."""
    others = threading.Barrier(4)
    fail = [True]

    @tool(version="v1", effect="idempotent")
    def meet(n: int) -> int:
        """Add, side by side."""
        if fail:
            others.wait(10)
        RAN.append(n)
        return n

    @tool(version="v1", effect="read_only")
    def boom() -> str:
        """Fail once."""
        if fail:
            others.wait(10)
            raise RuntimeError("boom")
        return "fine"

    script = [
        calls(call("meet", {"n": 1}), call("meet", {"n": 1}), call("meet", {"n": 2}), call("boom")),
        text("ok"),
    ]
    first = each.play(script, [meet, boom], run="r")
    assert isinstance(first.error, RuntimeError)
    assert sorted(RAN) == [1, 1, 2]
    assert [effect.state for effect in each.effects] == ["DONE", "DONE", "DONE", "FAILED"]
    assert len({effect.idempotency_key for effect in each.effects}) == 4
    fail.clear()
    second = each.play(first.provider, [meet, boom], run="r")
    assert second.outputs == ["1", "1", "2", "fine"]
    assert sorted(RAN) == [1, 1, 2]
    assert [told for _, told in each.face.answered(second.sent[1])] == second.outputs


def test_case_10_more_calls_than_the_turn_may_run(each: Field) -> None:
    """They are refused together: none of a batch runs that does not fit as a whole."""
    many = [call("inc", {"n": n}) for n in range(9)]
    played = each.play([calls(*many)], [inc])
    assert isinstance(played.error, ToolCallBudgetExceeded)
    assert RAN == []
    assert each.account.settled.total_tokens == played.provider.billed.total


def _forbidding(face: Face) -> dict[str, Any]:
    choice: Any = {"type": "none"} if face is MESSAGES else "none"
    return face.asking(tool_choice=choice)


def test_case_11_a_tool_that_nobody_offered(each: Field, stream: bool) -> None:
    """Invented, blank and forbidden names are never run; each gets one answer, and the turn is settled."""
    invented = [
        call("delete_everythng"),
        call(""),
        call("in c"),
        call("inc ", {"n": 1}),
        call("Inc", {"n": 1}),
    ]
    played = each.play([calls(*invented), text("ok")], [inc], stream=stream)
    assert ["UNKNOWN_TOOL" in output for output in played.outputs] == [True] * 5
    asked = _forbidding(each.face)
    forbidden = each.play([calls(call("inc", {"n": 1})), text("ok")], [inc], request=asked, stream=stream)
    assert "NOT_OFFERED" in forbidden.outputs[0]
    assert RAN == []
    assert {effect.state for effect in each.effects} == {"REFUSED"}
    assert {item.reservation_state for item in each.invocations} == {"SETTLED"}


def _choosing(face: Face, name: str) -> dict[str, Any]:
    """A choice that leaves one tool to the model."""
    if face is MESSAGES:
        return {"type": "tool", "name": name}
    if face is CHAT:
        return {"type": "function", "function": {"name": name}}
    return {"type": "function", "name": name}


def test_case_11_a_tool_outside_the_choice(each: Field, stream: bool) -> None:
    """Of the tools in a request only the chosen one may be called."""
    asked = each.face.asking(tool_choice=_choosing(each.face, "write"))
    script = [calls(call("inc", {"n": 1}), call("write", {"path": "a"})), text("ok")]
    played = each.play(script, [inc, write], request=asked, stream=stream)
    assert RAN == ["a"]
    assert "UNKNOWN_TOOL" in played.outputs[0] or "NOT_OFFERED" in played.outputs[0]


@pytest.mark.parametrize("face", [RESPONSES, CHAT], ids=str)
def test_case_11_a_tool_outside_the_allowed_subset(case: Field, face: Face) -> None:
    """A subset that keeps all tools in the prompt is a subset all the same."""
    tools = [_choosing(face, "write")]
    choice: dict[str, Any] = {"type": "allowed_tools", "mode": "auto", "tools": tools}
    if face is CHAT:
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}
    script = [calls(call("inc", {"n": 1}), call("write", {"path": "a"})), text("ok")]
    played = case.play(script, [inc, write], request=face.asking(tool_choice=choice), face=face)
    assert RAN == ["a"]
    assert len(played.outputs) == 2


def _offering(face: Face, name: str) -> dict[str, Any]:
    """A request with tools of its own: one of this name."""
    schema = {"type": "object", "properties": {}}
    entry: dict[str, Any] = {"type": "function", "name": name, "parameters": schema, "strict": False}
    if face is CHAT:
        entry = {"type": "function", "function": {"name": name, "parameters": schema}}
    if face is MESSAGES:
        entry = {"name": name, "input_schema": schema}
    return face.asking(tools=[entry])


def test_case_11_a_registered_tool_outside_the_offer(each: Field) -> None:
    """What the request did not offer is not run, although there is a tool of that name."""
    script = [calls(call("inc", {"n": 1})), text("ok")]
    played = each.play(script, [inc, write], request=_offering(each.face, "write"))
    assert "UNKNOWN_TOOL" in played.outputs[0]
    assert RAN == []


def test_case_11_a_model_that_goes_on_inventing(each: Field) -> None:
    """Each repetition takes a round of the budget, and there are no more than that."""
    provider = SimulatedProvider(default=forever(calls(call("no_such_tool"))))
    played = each.play(provider, [inc], rounds=3)
    assert isinstance(played.error, ToolRoundLimit)
    assert played.wire == 3
    assert each.account.settled.total_tokens == provider.billed.total


NFC, NFD = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))


@pytest.mark.parametrize(
    "name", ["café_lookup", "a/b", "has space", "a" * 65, "a" * 129, "", NFD, "a\0b", "a\n"]
)
def test_case_13_names_that_a_provider_refuses(name: str) -> None:
    """A name is checked when the tool is registered, and never changed to fit."""
    with pytest.raises(InvalidTool):
        tool(version="v1", effect="read_only", name=name)(lambda: None)


def test_case_13_names_are_compared_by_code_points(each: Field) -> None:
    """Spellings that look alike are different names, and none is made into another one."""
    alike = ["\uff49nc", "inc\u200b", "\u0456nc", NFC, NFD]
    played = each.play([calls(*[call(one, {"n": 1}) for one in alike]), text("ok")], [inc])
    assert ["UNKNOWN_TOOL" in output for output in played.outputs] == [True] * len(alike)
    assert {effect.state for effect in each.effects} == {"REFUSED"}
    assert RAN == []


@tool(version="v1", effect="at_most_once", custom=True)
def patch(input: str) -> str:
    """Apply a patch."""
    RAN.append(input)
    return "applied"


RAW = "*** begin\n{not json"


@pytest.mark.parametrize("face", [RESPONSES, CHAT], ids=str)
def test_case_15_freeform_tools(case: Field, stream: bool, face: Face) -> None:
    """A custom call's input is passed on raw and answered in kind; without a tool it is refused aloud."""
    case.face = face
    played = case.play(
        [calls(custom_call("patch", RAW, call_id="call_9")), text("ok")], [patch], stream=stream
    )
    assert [RAW] == RAN
    assert face.answered(played.sent[1]) == [("call_9", "applied")]
    refused = case.play([calls(custom_call("patch", RAW)), text("ok")], [inc], stream=stream)
    assert "UNKNOWN_TOOL" in refused.outputs[0]
    assert face.answered(refused.sent[1])[0][1] == refused.outputs[0]
    if face is RESPONSES:
        assert {one.sent[1]["input"][-1]["type"] for one in (played, refused)} == {"custom_tool_call_output"}


def test_case_15_where_there_are_no_freeform_tools(case: Field) -> None:
    """Anthropic's API has no form for them, which is said before anything is reserved or sent."""
    played = case.play([text("never")], [patch], face=MESSAGES)
    assert isinstance(played.error, InvalidRequest)
    assert played.wire == 0
    assert case.invocations == []


@pytest.mark.parametrize("face", [RESPONSES, CHAT], ids=str)
def test_case_15_a_call_of_the_other_kind(case: Field, face: Face) -> None:
    """A freeform tool is not run with JSON of a function call, nor the other way round."""
    script = [calls(call("patch", {"input": RAW}), custom_call("inc", '{"n": 1}')), text("ok")]
    played = case.play(script, [patch, inc], face=face)
    assert RAN == []
    assert [effect.state for effect in case.effects] == ["REFUSED", "REFUSED"]
    assert len(face.answered(played.sent[1])) == 2


def test_case_16_items_that_are_not_ours(case: Field, stream: bool) -> None:
    """Hosted and unknown items are recorded as the provider's and passed on unchanged; only our call runs."""
    theirs = [web_search(), code_interpreter(), mcp_call(), unknown_item("brand_new_call", foo=1)]
    played = case.play([items([*theirs, call("inc", {"n": 1})]), text("ok")], [inc], stream=stream)
    assert RAN == [1]
    assert [item["type"] for item in played.sent[1]["input"][1:]] == [
        "web_search_call",
        "code_interpreter_call",
        "mcp_call",
        "brand_new_call",
        "function_call",
        "function_call_output",
    ]
    assert played.sent[1]["input"][4]["foo"] == 1
    assert sorted(effect.state for effect in case.effects) == ["DONE", *["PROVIDER_SIDE"] * 4]


def test_case_16_blocks_that_are_not_ours(case: Field, stream: bool) -> None:
    """The same in the words of Anthropic: server tools, their results, remote MCP and what is new."""
    theirs = [web_search(), code_interpreter(), mcp_call(), unknown_item("brand_new_block", foo=1)]
    script = [items([*theirs, call("inc", {"n": 1})]), text("ok")]
    played = case.play(script, [inc], stream=stream, face=MESSAGES)
    assert RAN == [1]
    content = played.sent[1]["messages"][1]["content"]
    assert [block["type"] for block in content] == [
        "server_tool_use",
        "web_search_tool_result",
        "server_tool_use",
        "code_execution_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "brand_new_block",
        "tool_use",
    ]
    assert content[6] == {"type": "brand_new_block", "foo": 1}
    hosted = {effect.tool_name for effect in case.effects if effect.state == "PROVIDER_SIDE"}
    assert hosted == {"web_search", "code_execution", "mcp_tool_use"}


def test_case_16_hosted_work_is_not_a_call_of_a_tool_with_its_name(case: Field) -> None:
    """A server tool that is called like a tool of ours has run at the provider and does not run here."""

    @tool(version="v1", effect="at_most_once")
    def web_search_(query: str) -> str:
        """Search."""
        RAN.append(query)
        return "found"

    own = tool(version="v1", effect="at_most_once", name="web_search")(web_search_.function)
    played = case.play([items([web_search("q")]), text("never")], [own], face=MESSAGES)
    assert played.error is None
    assert RAN == []
    assert played.wire == 1


@pytest.mark.parametrize("face", [RESPONSES, CHAT], ids=str)
def test_case_16_an_item_that_waits_for_an_answer(case: Field, stream: bool, face: Face) -> None:
    """A call that expects an answer which no tool can give is refused, not skipped."""
    odd = computer_call() if face is RESPONSES else unknown_item("brand_new_call", foo=1)
    played = case.play([items([odd, call("inc", {"n": 1})])], [inc], stream=stream, face=face)
    assert isinstance(played.error, ClientCallRefused)
    assert odd["type"] in str(played.error)
    assert RAN == []


def test_case_16_a_client_tool_of_anthropic_without_an_executor(case: Field) -> None:
    """There a computer action is a plain call, so it is answered like any other that nobody registered."""
    played = case.play([items([computer_call(), call("inc", {"n": 1})]), text("ok")], [inc], face=MESSAGES)
    assert "UNKNOWN_TOOL" in played.outputs[0]
    assert RAN == [1]


LONG = ["c" * 65, "c" * 64 + "d", "c" * 1_000]


def test_case_e3_ids_of_any_length(each: Field, stream: bool) -> None:
    """Call ids of 65 characters and more go back as they came, and none is taken for another one."""
    wanted = [call("inc", {"n": n}, call_id=one) for n, one in enumerate(LONG)]
    played = each.play([calls(*wanted), text("ok")], [inc], stream=stream)
    assert [call_id for call_id, _ in each.face.answered(played.sent[1])] == LONG
    assert [effect.call_id for effect in each.effects] == LONG


@pytest.mark.postgres
def test_case_e3_ids_of_any_length_on_postgresql(on_postgres: Field) -> None:
    """A column that counted characters would refuse them only there."""
    wanted = [call("inc", {"n": n}, call_id=one) for n, one in enumerate(LONG)]
    played = on_postgres.play([calls(*wanted), text("ok")], [inc])
    assert played.error is None
    assert [effect.call_id for effect in on_postgres.effects] == LONG
