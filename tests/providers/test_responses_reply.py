"""Whole replies of the Responses API."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from openai.types.responses import ResponseOutputItem, ResponseStatus

from memoflow.providers import _responses_items as items_module
from memoflow.providers._reading import MAX_TOKENS, read_usage
from memoflow.providers._responses_reply import USAGE
from memoflow.providers.base import Reply, UnreadableReply, Usage
from memoflow.providers.openai_responses import OpenAIResponsesCodec
from tests.providers._bodies import (
    CODEC,
    JSON_VALUES,
    custom_call,
    encode,
    function_call,
    message,
    read,
    reasoning,
    response,
    usage,
)


def test_a_plain_answer() -> None:
    """Status, reason, usage, ids and the verbatim body of a completed reply."""
    body = response(reasoning(), message(), service_tier="flex", brand_new={"x": [1, 2.5]})
    reply = CODEC.read(encode(body))
    assert reply == Reply(
        status="completed",
        finish_reason="stop",
        usage=Usage(10, 5),
        calls=(),
        hosted=(),
        response_id="resp_1",
        model="gpt-5",
        service_tier="flex",
        body=body,
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "NOT_JSON"),
        (b"<html>", "NOT_JSON"),
        (b'{"object": "response"', "NOT_JSON"),
        (b'{"a": NaN}', "NOT_JSON"),
        (b'{"a": 1, "a": 1}', "NOT_JSON"),
        (b'{"a": "\\ud83d"}', "NOT_JSON"),
        (b"\xff\xfe", "NOT_JSON"),
        (b"null", "WRONG_OBJECT"),
        (b"[]", "WRONG_OBJECT"),
        (b"{}", "WRONG_OBJECT"),
        (encode(response(object="chat.completion")), "WRONG_OBJECT"),
        (encode(response(object=["response"])), "WRONG_OBJECT"),
        (encode(response(id="")), "NO_ID"),
        (encode(response(id=None)), "NO_ID"),
        (encode(response(id=5)), "NO_ID"),
        (encode(response(id="resp\0")), "NO_ID"),
        (encode(response(status="done")), "UNKNOWN_STATUS"),
        (encode(response(status=None)), "UNKNOWN_STATUS"),
        (encode(response(status=["completed"])), "UNKNOWN_STATUS"),
        (encode(response(output=None)), "NO_OUTPUT"),
        (encode(response(output={})), "NO_OUTPUT"),
        (encode(response(output="text", status="failed")), "NO_OUTPUT"),
    ],
)
def test_a_200_that_is_not_the_api_is_unreadable(body: bytes, reason: str) -> None:
    """Nothing is read from it; the reason is a code."""
    with pytest.raises(UnreadableReply) as caught:
        CODEC.read(body)
    assert caught.value.reason == reason


def test_a_reply_that_is_too_large_is_unreadable() -> None:
    """Size is checked before anything is parsed."""
    body = encode(response(message("x" * 1000)))
    assert OpenAIResponsesCodec(max_reply_bytes=len(body)).read(body).status == "completed"
    with pytest.raises(UnreadableReply, match="TOO_LARGE"):
        OpenAIResponsesCodec(max_reply_bytes=len(body) - 1).read(body)


def test_a_reply_may_repeat_a_deep_schema() -> None:
    """A paid reply is not lost because the tools are nested as deeply as a request allows."""
    schema: dict[str, Any] = {}
    for _ in range(120):
        schema = {"items": schema}
    assert read(message(), tools=[schema]).status == "completed"


def test_every_status_of_the_sdk_is_known() -> None:
    """Terminal states keep their name; the others are pending."""
    found = {status: read(message(), status=status).status for status in get_args(ResponseStatus)}
    assert found.pop("queued") == found.pop("in_progress") == "pending"
    assert {name: name for name in found} == found


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (response(message()), "stop"),
        (response(), "stop"),
        (response(message("no", kind="refusal")), "refusal"),
        (response(message("no", kind="refusal"), function_call()), "tool_calls"),
        (response(function_call()), "tool_calls"),
        (response(custom_call()), "tool_calls"),
        (response({"type": "computer_call", "call_id": "c", "status": "completed"}), "tool_calls"),
        (response({"type": "web_search_call", "id": "ws", "status": "completed"}), "stop"),
        (response(status="incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        (response(status="incomplete", incomplete_details={"reason": "content_filter"}), "content_filter"),
        (response(status="incomplete", incomplete_details={"reason": "steered"}), "steered"),
        (response(status="incomplete", incomplete_details={"reason": "max_messages"}), "max_messages"),
        (response(status="incomplete", incomplete_details={"reason": "brand new"}), "incomplete"),
        (response(status="incomplete", incomplete_details={"reason": ["x"]}), "incomplete"),
        (response(status="incomplete", incomplete_details=None), "incomplete"),
        (response(function_call(), status="failed", error={"code": "server_error"}), "failed"),
        (response(status="cancelled", output=None), "cancelled"),
        (response(status="queued"), "pending"),
    ],
)
def test_finish_reasons(body: dict[str, Any], reason: str) -> None:
    """Why the model stopped, in words all providers share; an unknown reason is never a plain stop."""
    assert CODEC.read(encode(body)).finish_reason == reason


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": "server_error", "message": "m"}, "server_error"),
        ({"code": None, "type": "policy"}, "policy"),
        ({"code": "secret words of a prompt"}, None),
        ("text", None),
        (None, None),
    ],
)
def test_the_code_of_a_failed_reply(error: object, code: str | None) -> None:
    """Only a structured code is taken; the usage of the reply still counts."""
    reply = read(status="failed", error=error)
    assert (reply.status, reply.error_code, reply.usage) == ("failed", code, Usage(10, 5))


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (usage(), Usage(10, 5)),
        ({"input_tokens": 10, "output_tokens": 5}, Usage(10, 5)),
        (usage(total_tokens=None), Usage(10, 5)),
        (usage(input_tokens_details=None, output_tokens_details=None), Usage(10, 5)),
        (usage(input_tokens_details={"cached_tokens": None}), Usage(10, 5)),
        (
            usage(
                input_tokens_details={"cached_tokens": 4, "cache_write_tokens": 6, "new": {}},
                output_tokens_details={"reasoning_tokens": 5},
            ),
            Usage(10, 5, 4, 6, 5),
        ),
        (usage(MAX_TOKENS - 1, 1), Usage(MAX_TOKENS - 1, 1)),
        # Everything below cannot be right.
        (None, None),
        ([], None),
        ({}, None),
        (usage(None, "7"), None),
        (usage(10, None), None),
        (usage("10", 5), None),
        (usage(True, 5), None),
        (usage(10.0, 5), None),
        (usage(-1, 5), None),
        (usage(MAX_TOKENS + 1, 0), None),
        (usage(total_tokens=16), None),
        (usage(total_tokens="15"), None),
        (usage(total_tokens=15.0), None),
        (usage(1, 0, total_tokens=True), None),
        (usage(input_tokens_details={"cached_tokens": 11}), None),
        (usage(input_tokens_details={"cached_tokens": 6, "cache_write_tokens": 5}), None),
        (usage(input_tokens_details={"cached_tokens": -1}), None),
        (usage(input_tokens_details={"cached_tokens": "1"}), None),
        (usage(input_tokens_details={"cache_write_tokens": True}), None),
        (usage(input_tokens_details=[]), None),
        (usage(output_tokens_details={"reasoning_tokens": 6}), None),
        (usage(output_tokens_details="x"), None),
    ],
)
def test_a_usage_is_consistent_or_there_is_none(given_: Any, expected: Usage | None) -> None:
    """A usage that contradicts itself is missing, never zero, and never stops the reply from being read."""
    assert read_usage(given_, USAGE) == expected
    assert read(message(), usage=given_).usage == expected


@pytest.mark.parametrize("figures", [(0, 0), (0, 5), (10, 0)])
def test_something_is_not_made_of_nothing(figures: tuple[int, int]) -> None:
    """Servers that do not count say zero; of a reply that holds something that is no usage."""
    assert read(message(), usage=usage(*figures)).usage is None
    assert read(usage=usage(*figures)).usage == Usage(*figures)


@given(JSON_VALUES)
def test_no_usage_raises(value: Any) -> None:
    """Whatever stands there, the answer is a usage or none."""
    found = read_usage(value, USAGE)
    assert found is None or found.total >= 0


def test_calls_in_order() -> None:
    """Position, id, name, namespace, kind and the provider's own text of every call."""
    reply = read(
        reasoning(),
        function_call("call_1", arguments=' {"n":1.0}\n', namespace="crm"),
        message(),
        custom_call("call_2", text="*** begin\n{not json"),
        function_call("call_3", arguments="", namespace=""),
    )
    assert [(c.ordinal, c.call_id, c.kind, c.namespace, c.arguments, c.complete) for c in reply.calls] == [
        (0, "call_1", "function", "crm", ' {"n":1.0}\n', True),
        (1, "call_2", "custom", None, "*** begin\n{not json", True),
        (2, "call_3", "function", None, "", True),
    ]
    assert reply.problem is None


@pytest.mark.parametrize(
    ("status", "complete"),
    [
        ("completed", True),
        (None, True),
        ("incomplete", False),
        ("in_progress", False),
        ("new", False),
        (5, False),
    ],
)
def test_a_call_is_complete_by_its_own_status(status: object, complete: bool) -> None:
    """An item without a status counts as complete; any other state than completed does not."""
    assert [call.complete for call in read(function_call(status=status)).calls] == [complete]
    bare = function_call()
    del bare["status"]
    assert read(bare).calls[0].complete


@pytest.mark.parametrize("status", ["incomplete", "failed", "cancelled", "in_progress"])
def test_no_call_of_a_reply_that_is_not_completed_is_complete(status: str) -> None:
    """The arguments of a truncated turn may be a prefix that happens to parse."""
    reply = read(function_call("call_1"), function_call("call_2", status="incomplete"), status=status)
    assert [call.complete for call in reply.calls] == [False, False]


@pytest.mark.parametrize(
    "calls",
    [
        (function_call("call_1"), function_call("call_1", arguments='{"n": 2}')),
        (function_call("call_1"), function_call("call_1")),
        (function_call("call_1"), custom_call("call_1")),
        (function_call(""), function_call("call_2")),
        (function_call("  "),),
        (function_call(None),),
        (function_call(7),),
        (function_call(["call_1"]),),
        (function_call("call\0"),),
        (function_call(name=None),),
        (function_call(name="a\0"),),
        (function_call(arguments=None),),
        (function_call(arguments={"n": 1}),),
        (function_call(namespace=5),),
        (custom_call(text=None),),
        (function_call("call_1"), "no item"),
        (function_call("call_1"), {"no": "type"}),
        (function_call("call_1"), {"type": ["function_call"]}),
    ],
)
def test_a_reply_that_contradicts_itself_runs_nothing(calls: tuple[Any, ...]) -> None:
    """Duplicate or blank ids and malformed items are a problem of the whole reply, which is still settled."""
    reply = read(*calls)
    assert reply.problem
    assert not any(call.complete for call in reply.calls)
    assert reply.usage == Usage(10, 5)


def test_a_problem_shows_no_payload() -> None:
    """The sentence says what is wrong without the provider's text."""
    for item in (function_call("secret"), function_call("x", name=None, arguments="secret")):
        assert "secret" not in (read(item, item).problem or "")


@pytest.mark.parametrize("name", ["", "delete everythng", "caf\u00e9"])
def test_a_strange_name_is_a_call_like_any_other(name: str) -> None:
    """An invented or blank name gets an answer of its own later; its siblings are not lost."""
    reply = read(function_call("call_1", name=name), function_call("call_2"))
    assert [(call.name, call.complete) for call in reply.calls] == [(name, True), ("inc", True)]
    assert reply.problem is None


def test_a_call_id_of_any_length_is_kept() -> None:
    """Ids are text; cutting them could make two the same."""
    assert read(function_call("c" * 65)).calls[0].call_id == "c" * 65


def test_hosted_and_unknown_items_are_never_calls() -> None:
    """What the provider ran is recorded as its own; what is unknown passes through."""
    reply = read(
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "code_interpreter_call", "id": "ci_1", "status": "failed"},
        {"type": "mcp_call", "id": "mcp_1", "name": "inc", "arguments": "{}"},
        {"type": "mcp_list_tools", "id": "mcpl_1"},
        {"type": "brand_new_call", "foo": 1, "call_id": "call_1", "name": "inc", "arguments": "{}"},
        {"type": "odd type_call", "id": 5, "status": "so so"},
        {"type": "brand_new"},
        function_call("call_2"),
    )
    assert [(item.ordinal, item.type, item.id) for item in reply.hosted] == [
        (0, "web_search_call", "ws_1"),
        (1, "code_interpreter_call", "ci_1"),
        (2, "mcp_call", "mcp_1"),
        (3, "mcp_list_tools", "mcpl_1"),
        (4, "brand_new_call", None),
        (5, "unknown", None),
    ]
    assert [call.call_id for call in reply.calls] == ["call_2"]
    assert reply.needs_client == ()


@pytest.mark.parametrize(
    ("item", "answer"),
    [
        (
            {"type": "computer_call", "id": "cu_1", "call_id": "call_1"},
            {"type": "computer_call_output", "id": "cuo_1", "call_id": "call_1"},
        ),
        (
            {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_1"},
            {"type": "local_shell_call_output", "id": "lsh_1"},
        ),
        (
            {"type": "shell_call", "id": "sh_1", "call_id": "call_1"},
            {"type": "shell_call_output", "id": "sho_1", "call_id": "call_1"},
        ),
        (
            {"type": "apply_patch_call", "id": "ap_1", "call_id": "call_1"},
            {"type": "apply_patch_call_output", "id": "apo_1", "call_id": "call_1"},
        ),
        (
            {"type": "mcp_approval_request", "id": "mcpr_1"},
            {"type": "mcp_approval_response", "id": "mcprr_1", "approval_request_id": "mcpr_1"},
        ),
        (
            {"type": "tool_search_call", "id": "ts_1", "call_id": "call_1", "execution": "client"},
            {"type": "tool_search_output", "id": "tso_1", "call_id": "call_1"},
        ),
    ],
    ids=lambda item: item["type"],
)
def test_items_that_wait_for_a_client_are_named(item: dict[str, Any], answer: dict[str, Any]) -> None:
    """They are refused by name instead of being skipped, unless the same reply holds their answer."""
    assert read(item).needs_client == (item["type"],)
    assert read(item, answer).needs_client == ()
    other = {key: "other" if key != "type" else value for key, value in answer.items()}
    assert read(item, other).needs_client == (item["type"],)


def test_a_tool_search_of_the_server_waits_for_nobody() -> None:
    """The same type is hosted or not by its field."""
    reply = read({"type": "tool_search_call", "id": "ts_1", "execution": "server"})
    assert (reply.needs_client, [item.type for item in reply.hosted]) == ((), ["tool_search_call"])


def test_a_call_that_the_provider_answered_is_not_run_again() -> None:
    """A call whose output is in the same reply ran at the provider."""
    output = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
    reply = read(function_call("call_1"), output, function_call("call_2"))
    assert [call.call_id for call in reply.calls] == ["call_2"]
    assert [(item.type, item.id) for item in reply.hosted] == [("function_call", "fc_call_1")]


def test_text_columns_get_only_text_they_can_hold() -> None:
    """A model, tier or id that is no short text is left out; the body still has it."""
    for bad in (5, "", "a\0b", ["x"]):
        reply = read(message(), model=bad, service_tier=bad)
        assert (reply.model, reply.service_tier, reply.body["model"]) == (None, None, bad)
    assert read(message(), model="m" * 300).model is None


def sdk_item_types() -> set[str]:
    """The type literals of the SDK's output items."""
    union = get_args(ResponseOutputItem)[0]
    return {literal for item in get_args(union) for literal in get_args(item.model_fields["type"].annotation)}


def test_no_item_of_the_sdk_but_two_is_a_call() -> None:
    """Every output item the installed SDK knows is read, and only function and freeform calls are calls."""
    types = sdk_item_types()
    assert {"function_call", "custom_tool_call"} <= types
    assert types >= items_module._CLIENT_CALLS | items_module._HOSTED_WITHOUT_SUFFIX
    for kind in types:
        item = {**function_call(), "input": "x", "type": kind, "content": []}
        found = [call.kind for call in read(item).calls]
        assert found == {"function_call": ["function"], "custom_tool_call": ["custom"]}.get(kind, [])
