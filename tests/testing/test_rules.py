"""What the simulated provider refuses, as the real API does, before it generates anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai import AuthenticationError, BadRequestError, NotFoundError

from memoflow.testing import SimulatedProvider, call, calls, computer_call, custom_call, items, text
from tests.testing._callers import Caller
from tests.testing.conftest import Talk

USER = {"role": "user", "content": "Hello"}
STRICT = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def _answer(item: dict[str, Any], output: str = "ok") -> dict[str, Any]:
    kind = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
    return {"type": kind[item["type"]], "call_id": item["call_id"], "output": output}


def _turn(caller: Caller, **request: Any) -> list[dict[str, Any]]:
    return [item.to_dict() for item in caller.create(input=[USER], **request).output]


def _refused(caller: Caller, error: type[openai.APIStatusError] = BadRequestError, **request: Any) -> Any:
    before = caller.provider.performed
    with pytest.raises(error) as caught:
        caller.create(**request)
    assert caller.provider.performed == before
    return caught.value


def test_no_key_is_401(talk: Talk) -> None:
    """A request without a key is refused, and the script stays where it is."""
    caller = talk("Hello.")
    with pytest.raises(AuthenticationError):
        caller.create(extra_headers={"authorization": openai.omit})
    assert caller.provider.remaining == 1
    assert caller.provider.requests[0].status == 401


def test_a_wrong_key_is_401(talk_in_process: Talk) -> None:
    """A provider with a key of its own accepts no other."""
    caller = talk_in_process("Hello.", api_key="sk-right")
    with pytest.raises(AuthenticationError) as caught:
        caller.create()
    assert caught.value.code == "invalid_api_key"
    assert caller.create(client={"api_key": "sk-right"}).output_text == "Hello."


@pytest.mark.parametrize(
    ("extra", "param", "code"),
    [
        ({"temprature": 1}, "temprature", "unknown_parameter"),
        ({"model": None}, "model", "missing_required_parameter"),
        ({"input": None}, "input", "missing_required_parameter"),
        ({"input": 7}, "input", "invalid_type"),
        ({"max_output_tokens": 1.5}, "max_output_tokens", "invalid_type"),
        ({"tools": ["x"]}, "tools[0].type", "missing_required_parameter"),
        ({"input": ["x"]}, "input[0]", "invalid_type"),
        ({"background": True, "store": False}, "background", None),
        ({"previous_response_id": "a", "conversation": "b"}, "conversation", "mutually_exclusive_parameters"),
        ({"previous_response_id": ["a"]}, "previous_response_id", "invalid_type"),
        ({"input": [{"type": "message", "id": ["a"]}]}, "input[0].id", "invalid_type"),
        ({"input": [{"type": ["message"]}]}, "input[0].type", "invalid_type"),
        ({"tools": "x"}, "tools", "invalid_type"),
        ({"include": True}, "include", "invalid_type"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": 7}]}, "tools[0].tools", "invalid_type"),
    ],
)
def test_bad_parameters_are_400(
    extra: dict[str, Any], param: str, code: str | None, talk_in_process: Talk
) -> None:
    """Unknown, missing, mistyped and contradicting parameters are refused with the API's code."""
    error = _refused(talk_in_process(), extra_body=extra)
    assert (error.param, error.code) == (param, code)


@pytest.mark.parametrize(
    ("tool", "code"),
    [
        ({"type": "function", "name": "has space"}, "invalid_value"),
        ({"type": "function", "name": "café"}, "invalid_value"),
        ({"type": "function", "name": "x" * 65}, "string_above_max_length"),
        ({"type": "custom"}, "missing_required_parameter"),
        ({"name": "f"}, "missing_required_parameter"),
        ({"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "a/b"}]}, "invalid_value"),
        (
            {"type": "function", "name": "f", "strict": True, "parameters": {"type": "object"}},
            "invalid_function_parameters",
        ),
        (
            {"type": "function", "name": "f", "strict": True, "parameters": {**STRICT, "required": []}},
            "invalid_function_parameters",
        ),
        (
            {"type": "function", "name": "f", "strict": True, "parameters": {**STRICT, "required": 7}},
            "invalid_function_parameters",
        ),
        (
            {"type": "function", "name": "f", "strict": True, "parameters": {**STRICT, "properties": 7}},
            "invalid_function_parameters",
        ),
        (
            {
                "type": "function",
                "name": "f",
                "strict": True,
                "parameters": {**STRICT, "$defs": {"inner": {"type": "object", "properties": {}}}},
            },
            "invalid_function_parameters",
        ),
    ],
)
def test_bad_tools_are_400(tool: dict[str, Any], code: str, talk_in_process: Talk) -> None:
    """Tools with a bad name or a strict schema that is not strict are refused."""
    error = _refused(talk_in_process(), tools=[tool])
    assert error.code == code
    assert error.param.startswith("tools[0]")


def test_good_tools_pass(talk_in_process: Talk) -> None:
    """A strict schema that is strict, a loose one that says so, custom and hosted tools are accepted."""
    tools = [
        {"type": "function", "name": "f", "strict": True, "parameters": STRICT},
        {"type": "function", "name": "x" * 64, "strict": False, "parameters": {"type": "object"}},
        {"type": "custom", "name": "patch"},
        {"type": "web_search"},
    ]
    assert talk_in_process(text("ok")).create(tools=tools).output_text == "ok"


def test_answered_calls_pass(talk: Talk) -> None:
    """Every item handed back in order, followed by an output for each call, is accepted."""
    caller = talk(calls(call("f"), custom_call("p", "x"), thought="Hm."), "done")
    turn = _turn(caller)
    answers = [_answer(item) for item in turn[1:]]
    assert caller.create(input=[USER, *turn, *answers]).output_text == "done"


@pytest.mark.parametrize("item", [call("f"), custom_call("p", "x"), computer_call()])
def test_an_unanswered_call_is_400(item: dict[str, Any], talk_in_process: Talk) -> None:
    """A call that comes back without an output is refused."""
    caller = talk_in_process(items([item]))
    error = _refused(caller, input=[USER, *_turn(caller)])
    assert "No tool output found for" in error.message
    assert error.param == "input"


@pytest.mark.parametrize("kind", ["function_call_output", "custom_tool_call_output"])
def test_an_output_without_its_call_is_400(kind: str, talk_in_process: Talk) -> None:
    """An output for a call id nobody asked for is refused."""
    error = _refused(talk_in_process(), input=[USER, {"type": kind, "call_id": "call_x", "output": "ok"}])
    assert "No tool call found for" in error.message


@pytest.mark.parametrize("kind", ["function_call", "function_call_output", "custom_tool_call_output"])
@pytest.mark.parametrize("call_id", [["c"], {"c": 1}, 7, True])
def test_a_call_id_that_is_no_text_is_400(call_id: Any, kind: str, talk_in_process: Talk) -> None:
    """A call id of another type than text is refused like everything that is mistyped."""
    item = {"type": kind, "call_id": call_id, "name": "f", "arguments": "{}", "output": "ok"}
    error = _refused(talk_in_process(), input=[USER, item])
    assert (error.param, error.code) == ("input[1].call_id", "invalid_type")


def test_a_custom_call_is_not_answered_by_a_function_output(talk_in_process: Talk) -> None:
    """An output of the wrong type answers nothing."""
    caller = talk_in_process(custom_call("p", "x"))
    (item,) = _turn(caller)
    _refused(caller, input=[item, {**_answer(item), "type": "function_call_output"}])


def _without_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in item.items() if key != "id"} for item in items]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda turn: turn[1:], "required 'reasoning' item"),
        (lambda turn: _without_ids(turn[1:]), "required 'reasoning' item"),
        (lambda turn: [turn[1], turn[0], turn[2]], "required 'reasoning' item"),
        (lambda turn: [turn[0], turn[2], turn[1]], "required following item"),
        (lambda turn: [turn[0]], "required following item"),
        (lambda turn: [turn[0], turn[2]], "required following item"),
        (lambda turn: [*turn, turn[1]], "Duplicate item"),
    ],
)
def test_reasoning_is_paired(
    spoil: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], words: str, talk_in_process: Talk
) -> None:
    """Reasoning that is dropped, moved or left alone, and items handed back twice, are refused."""
    caller = talk_in_process(calls(call("f"), call("g"), thought="Hm."))
    turn = _turn(caller)
    spoilt = spoil(turn)
    answers = [_answer(item) for item in spoilt if item["type"] == "function_call"]
    assert words in _refused(caller, input=[USER, *spoilt, *answers]).message


def test_unstored_reasoning_needs_its_encrypted_content(talk: Talk) -> None:
    """With store=false a reasoning item is accepted with the encrypted content it came with, and only so."""
    caller = talk(*[calls(call("f"), thought="Hm.")] * 2, "done")
    plain = _turn(caller, store=False)
    error = _refused(caller, NotFoundError, input=[USER, *plain, _answer(plain[1])])
    assert "Items are not persisted" in error.message
    kept = _turn(caller, store=False, include=["reasoning.encrypted_content"])
    assert kept[0]["encrypted_content"]
    forged = [{**kept[0], "encrypted_content": "x"}, kept[1], _answer(kept[1])]
    assert _refused(caller, input=forged).code == "invalid_encrypted_content"
    assert caller.create(input=[*kept, _answer(kept[1])]).output_text == "done"


@pytest.mark.parametrize(("key", "longest"), [("output", 10_485_760), ("arguments", 1_048_576)])
def test_oversized_items_are_400(key: str, longest: int, talk_in_process: Talk) -> None:
    """Outputs and arguments above the API's limits are refused; at the limit they pass."""
    caller = talk_in_process("ok")

    def turn(size: int) -> list[dict[str, Any]]:
        asked = call("f", "x" * size if key == "arguments" else "{}", call_id="c")
        return [asked, _answer(asked, "x" * size if key == "output" else "ok")]

    assert _refused(caller, input=turn(longest + 1)).code == "string_above_max_length"
    assert caller.create(input=turn(longest)).output_text == "ok"


def test_refused_requests_leave_the_script_alone(talk_in_process: Talk) -> None:
    """A request the API refuses takes no entry of the script, is counted, and is not billed."""
    caller = talk_in_process("Hello.")
    _refused(caller, tools=[{"type": "function", "name": "no good"}])
    assert caller.create().output_text == "Hello."
    assert caller.provider.wire_requests == {"POST /v1/responses": 2}
    assert [record.performed for record in caller.provider.requests] == [False, True]


def test_an_unknown_path_is_404() -> None:
    """What the simulated API does not have is a 404 that names the path."""
    with SimulatedProvider().client(max_retries=0) as client, pytest.raises(NotFoundError) as caught:
        client.models.list()
    assert "Invalid URL (GET /v1/models)" in caught.value.message


@pytest.mark.parametrize("body", [b"", b"{", b"[1]"])
def test_a_body_that_is_no_object_is_400(body: bytes) -> None:
    """A body that cannot be read as an object is refused."""
    with SimulatedProvider().client(max_retries=0) as client, pytest.raises(BadRequestError):
        client.post("/responses", cast_to=object, content=body)
