"""Events of a streamed message: their order, their deltas and the usage they tell."""

from __future__ import annotations

from typing import Any

from memoflow.providers.base import Usage
from memoflow.testing import (
    call,
    code_interpreter,
    items,
    message,
    text,
    thinking,
    usage,
    web_search,
)
from tests.testing._callers import HELLO, Caller
from tests.testing.conftest import Talk

API = "messages"


def _events(caller: Caller, **request: Any) -> list[dict[str, Any]]:
    return [event.to_dict() for event in caller.events(api=API, **request)]


def test_events_of_a_text_in_their_order(talk: Talk) -> None:
    """A streamed text has the named events of the real API; pings are there, and the SDK drops them."""
    caller = talk(text("Hi"), text("Hi"))
    wanted = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert [event.type for event in caller.events(api=API)] == wanted
    answer = caller.ask(
        lambda messages: messages.with_raw_response.create(
            model="m", max_tokens=99, messages=HELLO, extra_body={"stream": True}
        ),
        api=API,
    )
    lines = answer.http_response.content.decode().splitlines()
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert names == [*wanted[:2], "ping", *wanted[2:]]


def test_usage_of_a_stream_is_a_placeholder_first(talk: Talk) -> None:
    """The stream begins with the true input and one token of output; the end has all of it, once more."""
    caller = talk(text("Hi", usage=usage(100, 50, cached=40, cache_write=30, reasoning=20)))
    first, *_, ended, _ = _events(caller)
    begun = first["message"]["usage"]
    assert (first["message"]["content"], first["message"]["stop_reason"]) == ([], None)
    assert (begun["input_tokens"], begun["cache_read_input_tokens"], begun["output_tokens"]) == (30, 40, 1)
    assert begun["cache_creation_input_tokens"] == begun["cache_creation"]["ephemeral_5m_input_tokens"] == 30
    assert ended["usage"] == {
        "input_tokens": 30,
        "cache_creation_input_tokens": 30,
        "cache_read_input_tokens": 40,
        "output_tokens": 50,
        "output_tokens_details": {"thinking_tokens": 20},
        "server_tool_use": None,
    }
    assert caller.provider.billed == Usage(100, 50, 40, 30, 20)


def test_usage_in_between_is_cumulative(talk_in_process: Talk) -> None:
    """With server tools usage comes more than once, and never grows less."""
    events = _events(talk_in_process(items([web_search(), code_interpreter(), message("a b c d")])))
    told = [event for event in events if event["type"] == "message_delta"]
    counts = [event["usage"]["output_tokens"] for event in told]
    assert (len(counts), counts) == (3, sorted(counts))
    assert [event["delta"]["stop_reason"] for event in told] == [None, None, "end_turn"]
    assert told[-1]["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 0}


def test_deltas_of_every_kind(talk_in_process: Talk) -> None:
    """Text, thoughts and input come in pieces; a signature, citations and results come whole."""
    cited = {"type": "char_location", "cited_text": "x", "document_index": 0, "document_title": None}
    part = {"type": "output_text", "text": "one two", "citations": [cited]}
    spoken = {"type": "message", "role": "assistant", "content": [part]}
    events = _events(
        talk_in_process(items([thinking("Hm, so.", signature="s1"), call("f", {"a": 1}), spoken]))
    )
    deltas = [(event["index"], event["delta"]) for event in events if event["type"] == "content_block_delta"]
    assert [delta["thinking"] for index, delta in deltas if index == 0 and "thinking" in delta] == [
        "Hm",
        ",",
        " so",
        ".",
    ]
    assert (0, {"type": "signature_delta", "signature": "s1"}) in deltas
    assert [delta["partial_json"] for index, delta in deltas if index == 1][:3] == ["", "{", '"']
    assert deltas[-1] == (2, {"type": "citations_delta", "citation": cited})
    begun = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block.get("input", block.get("text", block.get("thinking"))) for block in begun] == ["", {}, ""]
