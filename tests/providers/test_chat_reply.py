"""Whole replies of chat completions."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion import Choice

from memoflow.providers._chat_reply import USAGE
from memoflow.providers._reading import MAX_TOKENS, read_usage
from memoflow.providers.base import Reply, UnreadableReply, Usage
from memoflow.providers.openai_chat import OpenAIChatCodec
from tests.providers._bodies import JSON_VALUES
from tests.providers._chat_bodies import (
    CODEC,
    calling,
    choice,
    completion,
    custom_call,
    encode,
    function_call,
    message,
    read,
    usage,
)


def test_a_plain_answer() -> None:
    """Status, reason, usage, ids and the verbatim body of a completed reply."""
    body = completion(service_tier="flex", brand_new={"x": [1, 2.5]})
    assert CODEC.read(encode(body)) == Reply(
        status="completed",
        finish_reason="stop",
        usage=Usage(10, 5),
        calls=(),
        hosted=(),
        response_id="chatcmpl-1",
        model="gpt-5",
        service_tier="flex",
        body=body,
    )


def test_bodies_of_these_tests_are_what_the_sdk_calls_completions() -> None:
    """The shapes used here validate as the SDK's own types, so the tests are about the real thing."""
    body = completion(calling(function_call(), custom_call()), choice(message("no", refusal="no"), index=1))
    parsed = ChatCompletion.model_validate(body)
    assert parsed.model_dump(exclude_unset=True) == body


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "NOT_JSON"),
        (b"<html>", "NOT_JSON"),
        (b'{"object": "chat.completion"', "NOT_JSON"),
        (b'{"a": NaN}', "NOT_JSON"),
        (b'{"a": 1, "a": 1}', "NOT_JSON"),
        (b'{"a": "\\ud83d"}', "NOT_JSON"),
        (b"null", "WRONG_OBJECT"),
        (b"[]", "WRONG_OBJECT"),
        (b'{"error": {"code": "server_error"}}', "WRONG_OBJECT"),
        (encode(completion(object="response")), "WRONG_OBJECT"),
        (encode(completion(object="chat.completion.chunk")), "WRONG_OBJECT"),
        (encode(completion(choices=None)), "NO_CHOICES"),
        (encode(completion(choices=[])), "NO_CHOICES"),
        (encode(completion(choices={"0": choice()})), "NO_CHOICES"),
    ],
)
def test_a_200_that_is_not_the_api_is_unreadable(body: bytes, reason: str) -> None:
    """Nothing is read from it; the reason is a code."""
    with pytest.raises(UnreadableReply) as caught:
        CODEC.read(body)
    assert caught.value.reason == reason


def test_a_reply_that_is_too_large_is_unreadable() -> None:
    """Size is checked before anything is parsed."""
    body = encode(completion())
    assert OpenAIChatCodec(max_reply_bytes=len(body)).read(body).status == "completed"
    with pytest.raises(UnreadableReply, match="TOO_LARGE"):
        OpenAIChatCodec(max_reply_bytes=len(body) - 1).read(body)


@pytest.mark.parametrize("id", [None, "", " ", 5, "a\0"])
def test_a_reply_needs_no_id(id: Any) -> None:
    """Some servers send a blank one; nothing is fetched by it."""
    assert read(id=id).response_id is None
    assert read(id=id).problem is None


CALL = function_call()


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (choice(), ("completed", "stop")),
        (choice(message(None)), ("completed", "stop")),
        (calling(CALL), ("completed", "tool_calls")),
        (calling(custom_call()), ("completed", "tool_calls")),
        (calling(CALL, end="stop"), ("completed", "tool_calls")),
        (choice(message(None, refusal="no")), ("completed", "refusal")),
        (choice(message("text", refusal=" ")), ("completed", "stop")),
        (choice(message(None, CALL, refusal="no")), ("completed", "tool_calls")),
        (choice(end="length"), ("incomplete", "length")),
        (calling(CALL, end="length"), ("incomplete", "length")),
        (choice(end="content_filter"), ("incomplete", "content_filter")),
        (choice(end=None), ("pending", "pending")),
        (choice(end=""), ("pending", "pending")),
    ],
)
def test_finish_reasons(one: dict[str, Any], expected: tuple[str, str]) -> None:
    """Why the model stopped, in words all providers share."""
    reply = read(one)
    assert (reply.status, reply.finish_reason) == expected
    assert (reply.problem, reply.paused) == (None, False)


def test_every_finish_reason_of_the_sdk_is_known() -> None:
    """None of them pauses; the one that was replaced is a problem."""
    for reason in get_args(Choice.model_fields["finish_reason"].annotation):
        reply = read(calling(CALL, end=reason))
        assert not reply.paused
        assert (reply.problem is None) == (reason != "function_call")


@pytest.mark.parametrize(
    ("reason", "word"),
    [("error", "error"), ("model_length", "model_length"), ("two words", "unknown"), (5, "unknown")],
)
def test_a_reason_nobody_knows_is_not_the_end(reason: Any, word: str) -> None:
    """The reply is there, but not done, and a call in it may have been cut."""
    reply = read(calling(CALL, end=reason))
    assert (reply.status, reply.finish_reason, reply.paused) == ("completed", word, True)
    assert [call.complete for call in reply.calls] == [False]
    assert reply.problem is None


@pytest.mark.parametrize("end", ["length", "content_filter", None, "error"])
def test_no_call_of_a_reply_that_was_cut_is_complete(end: Any) -> None:
    """The arguments may be a prefix that happens to parse."""
    assert [call.complete for call in read(calling(CALL, end=end)).calls] == [False]


def test_calls_in_order() -> None:
    """Position, id, name, kind and the provider's own text of every call."""
    reply = read(
        calling(
            function_call("call_1", arguments=' {"n":1.0}\n'),
            custom_call("call_2", text="*** begin\n{not json"),
            function_call("c" * 65, arguments="", extra_content={"signature": "s"}),
        )
    )
    assert [(c.ordinal, c.call_id, c.kind, c.namespace, c.arguments, c.complete) for c in reply.calls] == [
        (0, "call_1", "function", None, ' {"n":1.0}\n', True),
        (1, "call_2", "custom", None, "*** begin\n{not json", True),
        (2, "c" * 65, "function", None, "", True),
    ]
    assert reply.problem is None


@pytest.mark.parametrize("name", ["", "delete everythng", "caf\u00e9"])
def test_a_strange_name_is_a_call_like_any_other(name: str) -> None:
    """An invented or blank name gets an answer of its own later; its siblings are not lost."""
    reply = read(calling(function_call("call_1", name=name), function_call("call_2")))
    assert [(call.name, call.complete) for call in reply.calls] == [(name, True), ("inc", True)]


def test_a_call_without_a_type_is_a_function() -> None:
    """Servers that have only functions leave it out."""
    bare = function_call()
    del bare["type"]
    assert [call.kind for call in read(calling(bare)).calls] == ["function"]


@pytest.mark.parametrize(
    "one",
    [
        calling(function_call("call_1"), function_call("call_1", arguments='{"n": 2}')),
        calling(function_call("call_1"), custom_call("call_1")),
        calling(function_call(""), function_call("call_2")),
        calling(function_call("  ")),
        calling(function_call(None)),
        calling(function_call(7)),
        calling(function_call("call\0")),
        calling(function_call(name=None)),
        calling(function_call(name=5)),
        calling(function_call(name="a\0")),
        calling(function_call(arguments=None)),
        calling(function_call(arguments={"n": 1})),
        calling(custom_call(text=None)),
        calling(function_call("call_1"), "no call"),
        calling(function_call("call_1"), {"id": "call_2"}),
        calling(function_call("call_1"), {"id": "call_2", "type": ["function"]}),
        calling(function_call("call_1"), {"id": "call_2", "type": "function", "function": "f"}),
        calling({"id": "call_1", "type": "custom", "function": {"name": "f", "arguments": ""}}),
        choice(message(None, tool_calls={"0": CALL})),
        choice(message(None, tool_calls="f")),
        choice(message(None, CALL, function_call={"name": "f", "arguments": ""})),
        choice(message(None, function_call={"name": "f", "arguments": ""}), "function_call"),
        choice(end="function_call"),
        choice(end="tool_calls"),
        choice("text"),
        {"index": 0, "finish_reason": "stop"},
        "text",
        calling(CALL, index=1),
        calling(CALL, index="0"),
        calling(CALL, index=False),
        calling(CALL, index=None),
    ],
)
def test_a_reply_that_contradicts_itself_runs_nothing(one: Any) -> None:
    """It is a problem of the whole reply, which is still settled."""
    reply = read(one)
    assert reply.problem
    assert not any(call.complete for call in reply.calls)
    assert reply.usage == Usage(10, 5)


def test_a_problem_shows_no_payload() -> None:
    """The sentence says what is wrong without the provider's text."""
    for call in (function_call("secret"), function_call("x", name=None, arguments="secret")):
        assert "secret" not in (read(calling(call, call)).problem or "")
    assert "secret" not in (read(memoflow_problem="secret").problem or "")


@pytest.mark.parametrize("problem", ["AFTER_END", "SOMETHING_NEW", None, 5, []])
def test_what_a_stream_said_of_itself_is_read_from_its_record(problem: Any) -> None:
    """Whatever stands there, nothing runs."""
    reply = read(calling(CALL), memoflow_problem=problem)
    assert reply.problem
    assert [call.complete for call in reply.calls] == [False]


def test_calls_of_another_kind_wait_for_a_client() -> None:
    """They are refused by name instead of being skipped or run."""
    entry = {"id": "call_2", "type": "builtin_function", "function": {"name": "inc", "arguments": "{}"}}
    reply = read(calling(function_call("call_1"), entry, {"id": "call_3", "type": "a b"}))
    assert reply.needs_client == ("builtin_function", "unknown")
    assert [call.call_id for call in reply.calls] == ["call_1"]
    assert read(calling(entry, end="stop")).finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (("stop", "stop"), ("completed", "stop", False)),
        (("stop", "length"), ("incomplete", "length", False)),
        (("content_filter", "length"), ("incomplete", "content_filter", False)),
        (("stop", None), ("pending", "pending", False)),
        (("length", None), ("pending", "pending", False)),
        (("stop", "error"), ("completed", "stop", True)),
    ],
)
def test_several_choices_have_one_end(ends: tuple[Any, Any], expected: tuple[str, str, bool]) -> None:
    """All must have ended, and one that was cut makes the reply a cut one; else the first says why."""
    reply = read(*(choice(end=end, index=index) for index, end in enumerate(ends)))
    assert (reply.status, reply.finish_reason, reply.paused) == expected
    assert reply.problem is None


def test_calls_of_several_choices_do_not_run() -> None:
    """A further round could not say which choice it continues."""
    reply = read(calling(CALL), calling(function_call("call_2"), index=1))
    assert [(call.call_id, call.complete) for call in reply.calls] == [("call_1", False)]
    assert reply.problem is None
    assert read(choice(), calling(function_call(None), index=1)).problem


@pytest.mark.parametrize("indexes", [(0, 0), (1, 0), (0, 2), (0, "1")])
def test_choices_are_numbered(indexes: tuple[Any, Any]) -> None:
    """Two with one number are a contradiction."""
    assert read(*(choice(index=index) for index in indexes)).problem


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (usage(), Usage(10, 5)),
        ({"prompt_tokens": 10, "completion_tokens": 5}, Usage(10, 5)),
        (usage(total_tokens=None), Usage(10, 5)),
        (usage(prompt_tokens_details=None, completion_tokens_details=None), Usage(10, 5)),
        (
            usage(
                prompt_tokens_details={"cached_tokens": 4, "cache_write_tokens": 6, "audio_tokens": 3},
                completion_tokens_details={"reasoning_tokens": 5, "accepted_prediction_tokens": 1},
            ),
            Usage(10, 5, 4, 6, 5),
        ),
        (usage(MAX_TOKENS - 1, 1), Usage(MAX_TOKENS - 1, 1)),
        # Everything below cannot be right.
        (None, None),
        ([], None),
        ({}, None),
        ({"input_tokens": 10, "output_tokens": 5}, None),
        (usage("10", 5), None),
        (usage(True, 5), None),
        (usage(10.0, 5), None),
        (usage(-1, 5), None),
        (usage(10, None), None),
        (usage(MAX_TOKENS + 1, 0), None),
        (usage(total_tokens=16), None),
        (usage(total_tokens="15"), None),
        (usage(prompt_tokens_details={"cached_tokens": 11}), None),
        (usage(prompt_tokens_details={"cached_tokens": -1}), None),
        (usage(prompt_tokens_details=[]), None),
        (usage(completion_tokens_details={"reasoning_tokens": 6}), None),
    ],
)
def test_a_usage_is_consistent_or_there_is_none(given_: Any, expected: Usage | None) -> None:
    """A usage that contradicts itself is missing, never zero, and never stops the reply from being read."""
    assert read_usage(given_, USAGE) == expected
    assert read(usage=given_).usage == expected


@pytest.mark.parametrize("figures", [(0, 0), (0, 5), (10, 0)])
def test_something_is_not_made_of_nothing(figures: tuple[int, int]) -> None:
    """Servers that do not count say zero; of a reply that holds something that is no usage."""
    assert read(choice(message()), usage=usage(*figures)).usage is None
    assert read(choice(message(None)), usage=usage(*figures)).usage == Usage(*figures)


@given(JSON_VALUES)
def test_no_usage_raises(value: Any) -> None:
    """Whatever stands there, the answer is a usage or none."""
    found = read_usage(value, USAGE)
    assert found is None or found.total >= 0
