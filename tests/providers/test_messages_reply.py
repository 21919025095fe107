"""Whole replies of the Messages API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types import Message
from anthropic.types.stop_reason import StopReason
from hypothesis import given
from hypothesis import strategies as st

from memoflow.providers._messages_reply import STREAM_PROBLEMS, read_usage
from memoflow.providers._reading import MAX_TOKENS, STREAM_PROBLEM
from memoflow.providers.anthropic_messages import AnthropicMessagesCodec
from memoflow.providers.base import HostedCall, RequestedCall, UnreadableReply, Usage
from tests.providers._message_bodies import (
    CODEC,
    JSON_VALUES,
    call,
    encode,
    message,
    read,
    search,
    search_result,
    text,
    thinking,
    usage,
)


def test_a_message_is_read_whole() -> None:
    """Everything the core needs is named, and the body is kept verbatim."""
    body = message(thinking(), text(), call())
    reply = CODEC.read(encode(body))
    assert (reply.status, reply.finish_reason, reply.paused) == ("completed", "tool_calls", False)
    assert reply.calls == (RequestedCall(0, "toolu_1", "inc", None, "function", '{"n":1}', complete=True),)
    assert (reply.response_id, reply.model, reply.service_tier) == ("msg_1", "claude-sonnet-4-5", "standard")
    assert (reply.usage, reply.problem, reply.error_code) == (Usage(10, 5), None, None)
    assert reply.body == body


@pytest.mark.parametrize(
    ("reason", "status", "finish_reason", "paused", "complete"),
    [
        ("end_turn", "completed", "tool_calls", False, True),
        ("tool_use", "completed", "tool_calls", False, True),
        ("stop_sequence", "completed", "tool_calls", False, False),
        ("max_tokens", "incomplete", "length", False, False),
        ("model_context_window_exceeded", "incomplete", "model_context_window_exceeded", False, False),
        ("pause_turn", "completed", "pause_turn", True, False),
        ("compaction", "completed", "compaction", True, False),
        ("brand_new", "completed", "brand_new", True, False),
        ("words of a prompt", "completed", "unknown", True, False),
        ("stop", "completed", "unknown", True, False),
        ("tool_calls", "completed", "unknown", True, False),
        (5, "completed", "unknown", True, False),
        ({"a": 1}, "completed", "unknown", True, False),
        (None, "pending", "pending", False, False),
    ],
)
def test_a_call_is_complete_only_where_the_turn_came_to_its_end(
    reason: Any, status: str, finish_reason: str, paused: bool, complete: bool
) -> None:
    """After any other stop reason the provider may have cut the call and closed its JSON."""
    reply = read(call(), stop_reason=reason)
    assert (reply.status, reply.finish_reason, reply.paused) == (status, finish_reason, paused)
    assert [one.complete for one in reply.calls] == [complete]
    assert (reply.usage, reply.problem) == (Usage(10, 5), None)


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence"])
def test_text_alone_is_done(reason: str) -> None:
    """The two ways an answer ends."""
    reply = read(text(), stop_reason=reason)
    assert (reply.status, reply.finish_reason, reply.calls, reply.paused) == ("completed", "stop", (), False)


def test_every_stop_reason_of_the_sdk_has_its_rule() -> None:
    """Only a pause is not an end, among the words the installed SDK knows."""
    words = StopReason.__args__  # type: ignore[attr-defined]
    assert {word for word in words if read(stop_reason=word).paused} == {"pause_turn"}


def test_the_calls_of_a_refusal_are_not_even_answered() -> None:
    """There is no next round for a conversation that was refused; the body still shows what was in it."""
    reply = read(text(), call(), stop_reason="refusal", stop_details={"type": "refusal", "category": "bio"})
    assert (reply.status, reply.finish_reason, reply.calls) == ("completed", "refusal", ())
    assert len(reply.body["content"]) == 2


@pytest.mark.parametrize("more", [{"stop_reason": None}, {"stop_reason": None, "content": None}])
def test_a_message_that_has_not_ended_is_pending(more: dict[str, Any]) -> None:
    """It proves nothing about the outcome."""
    assert read(**more).status == "pending"


@pytest.mark.parametrize(
    ("given_", "arguments"),
    [
        ({}, "{}"),
        ({"a": {"b": [1, None, True]}}, '{"a":{"b":[1,null,true]}}'),
        ({"n": 12345678901234567890123}, '{"n":12345678901234567890123}'),
        ({"x": 0.1, "y": 1e300, "z": 5.0}, '{"x":0.1,"y":1e+300,"z":5.0}'),
        ({"s": "caf\u00e9"}, '{"s":"caf\u00e9"}'),
        ([1], "[1]"),
        ("text", '"text"'),
        (5, "5"),
        (False, "false"),
    ],
)
def test_an_input_is_its_shortest_text(given_: Any, arguments: str) -> None:
    """Numbers are exact, and what is no object stays what it is, to be refused."""
    (one,) = read(call(given=given_)).calls
    assert (one.arguments, one.complete) == (arguments, True)


def test_a_call_without_input_is_no_call_with_an_empty_one() -> None:
    """Nothing is made up; what is not there is refused as no object."""
    block = call()
    del block["input"]
    assert read(block).calls[0].arguments == "null"


@pytest.mark.parametrize("raw", ['{"a": 1', "oops", "null", "[1]", '"{}"', '{"a":1,"a":2}', '{"a":1e400}'])
def test_raw_input_of_a_record_is_what_the_tool_layer_refuses(raw: str) -> None:
    """The text that was streamed decides, not the empty input beside it."""
    reply = read(call(given={}, partial_json=raw))
    assert (reply.calls[0].arguments, reply.problem) == (raw, None)


@pytest.mark.parametrize(
    "block",
    [
        call(given={"a": 1}, partial_json="{"),
        call(given={}, partial_json='{"a": 1}'),
        call(given={}, partial_json=""),
        call(given={}, partial_json=5),
        call(given={}, partial_json=None),
    ],
)
def test_two_inputs_are_a_contradiction(block: dict[str, Any]) -> None:
    """A server that sends the key of a record cannot make one input run and another one show."""
    reply = read(block)
    assert reply.problem == "call 0 has two inputs"
    assert reply.calls == ()


@pytest.mark.parametrize(
    "blocks",
    [
        [call(""), call("toolu_2")],
        [call(" "), call("toolu_2")],
        [call(None)],
        [call(5)],
        [call("a\0b")],
        [call(name=None)],
        [call(name=["inc"])],
        [call(name="a\0b")],
        [call(toolset_name=5)],
        [call(toolset_name="a\0b")],
        [call("toolu_1"), call("toolu_1", given={"n": 2})],
        [call(), "text"],
        [call(), None],
        [call(), {"type": 5}],
        [call(), {}],
    ],
)
def test_a_reply_that_contradicts_itself_runs_nothing(blocks: list[Any]) -> None:
    """Its usage counts, and none of its calls is complete."""
    reply = read(*blocks, stop_reason="tool_use")
    assert reply.problem
    assert not any(one.complete for one in reply.calls)
    assert reply.usage == Usage(10, 5)


def test_names_and_ids_are_taken_as_they_are() -> None:
    """Any length, any letters: an unknown name is refused by the tool layer, one by one."""
    blocks = [
        call("x" * 200, ""),
        call("toolu_2", "caf\u00e9"),
        call("toolu_3", "bash", caller={"type": "d"}),
    ]
    reply = read(*blocks)
    assert [(one.ordinal, one.call_id, one.name) for one in reply.calls] == [
        (0, "x" * 200, ""),
        (1, "toolu_2", "caf\u00e9"),
        (2, "toolu_3", "bash"),
    ]
    assert reply.problem is None


@pytest.mark.parametrize(("toolset", "namespace"), [("computer", "computer"), (None, None), ("", None)])
def test_a_member_of_a_toolset_has_it_as_its_namespace(toolset: Any, namespace: str | None) -> None:
    """Two toolsets may have a member of the same name."""
    assert read(call(name="zoom", toolset_name=toolset)).calls[0].namespace == namespace


def test_what_the_provider_ran_is_recorded_once() -> None:
    """A use and its result are one thing; a result of an earlier reply's use stands for itself."""
    mcp = {"type": "mcp_tool_use", "id": "mcp_1", "name": "private", "server_name": "s", "input": {}}
    done = {"type": "mcp_tool_result", "tool_use_id": "mcp_1", "content": [], "is_error": False}
    reply = read(search_result("srvtoolu_0"), search(), search_result(), mcp, done, search(name=5), text())
    assert reply.hosted == (
        HostedCall(0, "web_search_tool_result", "srvtoolu_0"),
        HostedCall(1, "web_search", "srvtoolu_1"),
        HostedCall(2, "mcp_tool_use", "mcp_1"),
        HostedCall(3, "server_tool_use", "srvtoolu_1"),
    )
    assert (reply.calls, reply.problem) == ((), None)


@pytest.mark.parametrize("id", [None, 5, [], {}, "", "a\0b"])
def test_hosted_blocks_may_be_odd(id: Any) -> None:
    """They are recorded as far as they can be, whatever stands in them."""
    blocks = [search(id), {"type": "odd words_tool_use"}, {"type": "x_tool_result", "tool_use_id": id}]
    reply = read(*blocks, text())
    assert {one.id for one in reply.hosted} == {None}
    assert reply.hosted[1].type == "unknown"


def test_unknown_blocks_are_passed_through() -> None:
    """They are no calls and no reason to refuse the reply."""
    reply = read({"type": "brand_new", "input": {}}, text())
    assert (reply.calls, reply.hosted, reply.problem, reply.finish_reason) == ((), (), None, "stop")


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (usage(), Usage(10, 5)),
        (usage(0, 0), Usage(0, 0)),
        ({"input_tokens": 10, "output_tokens": 5}, Usage(10, 5)),
        (
            usage(10, 5, cache_creation_input_tokens=100, cache_read_input_tokens=1000),
            Usage(1110, 5, 1000, 100),
        ),
        (usage(cache_creation_input_tokens=None, cache_read_input_tokens=None), Usage(10, 5)),
        (usage(output_tokens_details={"thinking_tokens": 3}), Usage(10, 5, reasoning_tokens=3)),
        (usage(output_tokens_details=None), Usage(10, 5)),
        (usage(output_tokens_details={}), Usage(10, 5)),
        (usage(server_tool_use={"web_search_requests": 2}, cache_creation={"x": 1}), Usage(10, 5)),
        (None, None),
        ([], None),
        ({}, None),
        ({"input_tokens": 10}, None),
        ({"output_tokens": 5}, None),
        (usage(True), None),
        (usage(10, False), None),
        (usage(-1), None),
        (usage(10.0), None),
        (usage("10"), None),
        (usage(MAX_TOKENS + 1), None),
        (usage(MAX_TOKENS, cache_read_input_tokens=1), None),
        (usage(cache_read_input_tokens=-1), None),
        (usage(cache_creation_input_tokens=True), None),
        (usage(output_tokens_details={"thinking_tokens": 6}), None),
        (usage(output_tokens_details={"thinking_tokens": True}), None),
        (usage(output_tokens_details=[]), None),
    ],
)
def test_a_usage_that_cannot_be_right_is_none(given_: Any, expected: Usage | None) -> None:
    """Cached input is part of the input; a doubtful figure makes all unknown, never zero."""
    assert read_usage(given_) == expected
    assert read(usage=given_).usage == expected


@pytest.mark.parametrize("figures", [(0, 0), (0, 5), (10, 0)])
def test_something_is_not_made_of_nothing(figures: tuple[int, int]) -> None:
    """Servers that do not count say zero; of a reply that holds something that is no usage."""
    assert read(text(), usage=usage(*figures)).usage is None
    assert read(usage=usage(*figures)).usage == Usage(*figures)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "NOT_JSON"),
        (b"<html>", "NOT_JSON"),
        (b'{"type":"message","type":"message"}', "NOT_JSON"),
        (encode({**message(), "usage": float("nan")}), "NOT_JSON"),
        (encode(message(text("\ud83d"))), "NOT_JSON"),
        (encode([]), "WRONG_OBJECT"),
        (encode({}), "WRONG_OBJECT"),
        (encode({"type": "error", "error": {"type": "overloaded_error"}}), "WRONG_OBJECT"),
        (encode({**message(), "type": "completion"}), "WRONG_OBJECT"),
        (encode(message(id=None)), "NO_ID"),
        (encode(message(id=" ")), "NO_ID"),
        (encode({**message(), "content": "text"}), "NO_CONTENT"),
        (encode({**message(), "content": None}), "NO_CONTENT"),
        (encode({**message(), "content": {}, "stop_reason": None}), "NO_CONTENT"),
    ],
)
def test_what_is_no_message_is_unreadable(body: bytes, reason: str) -> None:
    """Nothing is read from it."""
    with pytest.raises(UnreadableReply) as caught:
        CODEC.read(body)
    assert caught.value.reason == reason


def test_a_reply_has_a_largest_size() -> None:
    """Above it nothing is parsed."""
    body = encode(message(text("x" * 100)))
    assert AnthropicMessagesCodec(max_reply_bytes=len(body)).read(body).status == "completed"
    with pytest.raises(UnreadableReply, match="TOO_LARGE"):
        AnthropicMessagesCodec(max_reply_bytes=len(body) - 1).read(body)


@pytest.mark.parametrize("problem", sorted(STREAM_PROBLEMS))
def test_the_contradiction_of_a_stream_is_restored_with_it(problem: str) -> None:
    """What was refused when it was live is refused when it is restored."""
    reply = read(call(), **{STREAM_PROBLEM: problem})
    assert (reply.problem, reply.calls[0].complete) == (problem, False)


@pytest.mark.parametrize("value", ["words of a prompt", 5, True, {}])
def test_a_noted_contradiction_never_speaks_for_a_provider(value: Any) -> None:
    """The key of a record in a live reply refuses it too, but its text goes nowhere."""
    assert read(call(), **{STREAM_PROBLEM: value}).problem == "its stream contradicted itself"


def test_no_repr_shows_payload() -> None:
    """Reprs end up in logs."""
    reply = read(
        text("secret"), call(given={"secret": "secret"}), call("toolu_2", given={}, partial_json="secret")
    )
    assert "secret" not in repr(reply)


def test_bodies_of_these_tests_are_what_the_sdk_calls_messages() -> None:
    """The shapes used here validate as the SDK's own types, so the tests are about the real thing."""
    body = message(thinking(), text(), search(), search_result(), call())
    parsed = Message.model_validate_json(encode(body))
    reread = CODEC.read(parsed.model_dump_json(exclude_unset=True, by_alias=True).encode())
    assert reread == CODEC.read(encode(body))


@given(
    st.lists(
        st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=3).map(lambda value: call(given=value))
    )
)
def test_a_record_is_read_as_the_reply_it_was(blocks: list[dict[str, Any]]) -> None:
    """Whatever the inputs hold, the recorded body gives the same reply."""
    for number, block in enumerate(blocks):
        block["id"] = f"toolu_{number}"
    reply = read(*blocks)
    assert CODEC.read(json.dumps(reply.body, ensure_ascii=False).encode()) == reply
    assert [json.loads(one.arguments) for one in reply.calls] == [block["input"] for block in blocks]
