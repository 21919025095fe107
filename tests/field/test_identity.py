"""Cases about which call is which."""

from __future__ import annotations

import threading
import unicodedata
from typing import Any

import pytest

from memoflow import ClientCallRefused, InvalidProviderReply, InvalidTool, tool
from memoflow.testing import (
    call,
    calls,
    code_interpreter,
    computer_call,
    custom_call,
    items,
    mcp_call,
    text,
    unknown_item,
    web_search,
)
from tests.field.conftest import REQUEST, Field

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


@pytest.mark.parametrize("call_id", ["call_1", ""])
def test_case_09_two_calls_share_an_id(case: Field, call_id: str) -> None:
    """Duplicate or blank ids fail the turn closed: none of its calls runs, and the reply is settled."""
    same = [call("write", {"path": p}, call_id=call_id) for p in "ab"]
    played = case.play([calls(*same)], [write])
    assert isinstance(played.error, InvalidProviderReply)
    assert RAN == []
    assert case.invocations[0].reservation_state == "SETTLED"
    assert case.account.settled.total_tokens == played.provider.billed.total


def test_case_10_identical_calls_and_a_failing_sibling(case: Field) -> None:
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
    first = case.play(script, [meet, boom], run="r")
    assert isinstance(first.error, RuntimeError)
    assert sorted(RAN) == [1, 1, 2]
    assert [effect.state for effect in case.effects] == ["DONE", "DONE", "DONE", "FAILED"]
    assert len({effect.idempotency_key for effect in case.effects}) == 4
    fail.clear()
    second = case.play(first.provider, [meet, boom], run="r")
    assert second.outputs == ["1", "1", "2", "fine"]
    assert sorted(RAN) == [1, 1, 2]


def test_case_11_a_tool_that_nobody_offered(case: Field) -> None:
    """Invented, blank and forbidden names are never run; each gets one answer, and the turn is settled."""
    played = case.play([calls(call("delete_everythng"), call("")), text("ok")], [inc])
    assert ["UNKNOWN_TOOL" in output for output in played.outputs] == [True, True]
    forbidden = case.play(
        [calls(call("inc", {"n": 1})), text("ok")], [inc], request={**REQUEST, "tool_choice": "none"}
    )
    assert "NOT_OFFERED" in forbidden.outputs[0]
    assert RAN == []
    assert {effect.state for effect in case.effects} == {"REFUSED"}
    assert {item.reservation_state for item in case.invocations} == {"SETTLED"}


@pytest.mark.parametrize("name", ["café_lookup", "a/b", "has space", "a" * 65, "a" * 129, ""])
def test_case_13_names_that_a_provider_refuses(name: str) -> None:
    """A name is checked when the tool is registered, and never changed to fit."""
    with pytest.raises(InvalidTool):
        tool(version="v1", effect="read_only", name=name)(lambda: None)
    assert unicodedata.normalize("NFC", "café") != unicodedata.normalize("NFD", "café")


def test_case_15_freeform_tools(case: Field) -> None:
    """A custom call's input is passed on raw and answered in kind; without a tool it is refused aloud."""

    @tool(version="v1", effect="at_most_once", custom=True)
    def patch(input: str) -> str:
        """Apply a patch."""
        RAN.append(input)
        return "applied"

    raw = "*** begin\n{not json"
    played = case.play([calls(custom_call("patch", raw, call_id="call_9")), text("ok")], [patch])
    assert [raw] == RAN
    assert played.sent[1]["input"][-1] == {
        "type": "custom_tool_call_output",
        "call_id": "call_9",
        "output": "applied",
    }
    refused = case.play([calls(custom_call("patch", raw)), text("ok")], [inc])
    assert "UNKNOWN_TOOL" in refused.outputs[0]
    assert refused.sent[1]["input"][-1]["type"] == "custom_tool_call_output"


def test_case_16_items_that_are_not_ours(case: Field) -> None:
    """Hosted and unknown items are recorded as the provider's and passed on unchanged; only our call runs."""
    theirs = [web_search(), code_interpreter(), mcp_call(), unknown_item("brand_new_call", foo=1)]
    played = case.play([items([*theirs, call("inc", {"n": 1})]), text("ok")], [inc])
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


def test_case_16_an_item_that_waits_for_an_answer(case: Field) -> None:
    """A call that expects an answer which no tool can give is refused, not skipped."""
    played = case.play([items([computer_call(), call("inc", {"n": 1})])], [inc])
    assert isinstance(played.error, ClientCallRefused)
    assert "computer_call" in str(played.error)
    assert RAN == []


def test_case_e3_ids_of_any_length(case: Field) -> None:
    """A call id of 65 characters goes back as it came."""
    long = "c" * 65
    played = case.play([calls(call("inc", {"n": 1}, call_id=long)), text("ok")], [inc])
    assert played.sent[1]["input"][-1]["call_id"] == long
    assert case.effects[0].call_id == long
