"""Streamed replies: order and shape of events, and what the SDK's own helpers make of them."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoflow.testing import (
    SimulatedProvider,
    call,
    calls,
    code_interpreter,
    custom_call,
    failed,
    incomplete,
    items,
    mcp_call,
    message,
    reasoning,
    refusal,
    text,
    unknown_item,
    web_search,
)
from memoflow.testing._clients import async_loopback_client
from tests.testing.conftest import Talk

EVERYTHING = items(
    [
        reasoning("Let me think, twice."),
        web_search("wörds"),
        code_interpreter("print('é')"),
        mcp_call("find", {"q": "x"}),
        call("add", {"a": [1, 2], "ü": "ß"}),
        custom_call("patch", "*** é\n"),
        message("Grüße 👋 an alle."),
    ]
)


def test_events_of_a_text_in_their_order(talk: Talk) -> None:
    """A streamed text has the event sequence of the real API."""
    events = talk(text("Hi")).events()
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(9))
    assert events[0].response.status == "in_progress"
    assert (events[0].response.output, events[0].response.usage) == ([], None)


def test_deltas_add_up_to_what_is_done(talk: Talk) -> None:
    """The deltas of every part, joined, are the text of its done event and of the terminal snapshot."""
    events = talk(EVERYTHING).events()
    kinds = {event.type.rsplit(".", 1)[0] for event in events if event.type.endswith(".delta")}
    assert len(kinds) == 6
    for kind in kinds:
        deltas = "".join(event.delta for event in events if event.type == f"{kind}.delta")
        (done,) = [event for event in events if event.type == f"{kind}.done"]
        texts = {getattr(done, name, None) for name in ("text", "arguments", "input", "code")}
        assert deltas in texts
    finished = [event.item.to_dict() for event in events if event.type == "response.output_item.done"]
    assert finished == [item.to_dict() for item in events[-1].response.output]


def test_items_begin_empty_and_in_progress(talk_in_process: Talk) -> None:
    """An added item has its id but none of its content yet."""
    events = talk_in_process(calls(call("add", {"a": 1}), custom_call("patch", "x"))).events()
    first, second = [event.item for event in events if event.type == "response.output_item.added"]
    assert (first.arguments, first.status, second.input) == ("", "in_progress", "")
    assert first.id == events[-1].response.output[0].id


def test_hosted_items_go_through_their_states(talk_in_process: Talk) -> None:
    """Hosted items report their progress between added and done."""
    events = talk_in_process(items([web_search(), mcp_call(error={"type": "x", "content": []})])).events()
    types = [event.type for event in events]
    assert types[3:6] == [
        f"response.web_search_call.{state}" for state in ("in_progress", "searching", "completed")
    ]
    assert "response.mcp_call.failed" in types


def test_a_refusal_streams_as_refusal(talk_in_process: Talk) -> None:
    """A refusal has refusal deltas and no text deltas."""
    types = [event.type for event in talk_in_process(refusal("No way.")).events()]
    assert types.count("response.refusal.delta") == 3
    assert "response.output_text.delta" not in types


@pytest.mark.parametrize("reply", [incomplete(call("pay", '{"amount": 5')), failed(output=[message("So f")])])
def test_incomplete_and_failed_are_terminal_events(reply: Any, talk: Talk) -> None:
    """A reply that did not complete ends with its own terminal event, which carries usage."""
    last = talk(reply).events()[-1]
    assert last.type == f"response.{reply.status}"
    assert last.response.status == reply.status
    assert last.response.usage.total_tokens > 0


def test_an_unknown_item_streams(talk_in_process: Talk) -> None:
    """An item type nobody knows is added and done like any other."""
    events = talk_in_process(items([unknown_item(foo=1)])).events()
    assert [event.item.type for event in events[2:4]] == ["brand_new_call", "brand_new_call"]


def test_annotations_and_reasoning_texts_stream(talk_in_process: Talk) -> None:
    """Annotations of a message and the text of a reasoning item have events of their own."""
    note = {"type": "url_citation", "url": "http://x", "title": "x", "start_index": 0, "end_index": 2}
    part = {"type": "output_text", "text": "Hi", "annotations": [note], "logprobs": []}
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    spoken = {"type": "message", "role": "assistant", "content": [part]}
    events = talk_in_process(items([thought, spoken])).events()
    types = [event.type for event in events]
    assert types.count("response.reasoning_text.delta") == 2
    assert types.index("response.output_text.annotation.added") < types.index("response.content_part.done")
    assert events[-1].response.output[1].content[0].annotations[0].url == "http://x"


def test_text_that_utf8_cannot_carry_is_escaped(talk: Talk) -> None:
    """A lone surrogate leaves the provider as an escape, as JSON allows."""
    caller = talk(*[call("f", '{"s": "\ud83d"}')] * 2)
    assert caller.create().output[0].arguments == '{"s": "\ud83d"}'
    assert caller.events()[-1].response.output[0].arguments == '{"s": "\ud83d"}'


def test_streamed_and_plain_reply_are_the_same(talk_in_process: Talk) -> None:
    """The terminal snapshot of a stream is what the same reply is without streaming."""
    plain = talk_in_process(EVERYTHING).create().to_dict()
    streamed = talk_in_process(EVERYTHING).events()[-1].response.to_dict()
    assert streamed == plain


def test_the_helper_of_the_sdk_accepts_our_streams() -> None:
    """`client.responses.stream` reads every kind of item and parses the final response."""
    provider = SimulatedProvider([EVERYTHING])
    with provider.client() as client, client.responses.stream(model="m", input="x") as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert "response.function_call_arguments.delta" in kinds
    assert final.output_text == "Grüße 👋 an alle."
    assert [item.type for item in final.output] == [item["type"] for item in EVERYTHING.items or ()]


def test_the_asynchronous_helper_accepts_our_streams() -> None:
    """The asynchronous `client.responses.stream` does the same, over sockets."""

    async def read(url: str) -> Any:
        async with (
            async_loopback_client(url) as client,
            client.responses.stream(model="m", input="x") as stream,
        ):
            return await stream.get_final_response()

    provider = SimulatedProvider([EVERYTHING])
    with provider.serve() as url:
        final = asyncio.run(read(url))
    assert final.output_text == "Grüße 👋 an alle."


def _raw_events(split: Any) -> list[dict[str, Any]]:
    provider = SimulatedProvider([EVERYTHING], split=split)
    with provider.client() as client, client.responses.create(model="m", input="x", stream=True) as stream:
        return [event.to_dict() for event in stream]


@settings(max_examples=25)
@given(st.one_of(st.integers(1, 5_000), st.lists(st.integers(1, 300), min_size=1, max_size=5)))
def test_how_the_body_is_split_changes_nothing(split: int | list[int]) -> None:
    """Pieces of any size, across characters and events, give the same events."""
    assert _raw_events(split) == _raw_events(None)


def test_pieces_have_the_sizes_asked_for() -> None:
    """The body is delivered in pieces of the given sizes, used in turn."""
    provider = SimulatedProvider([text("Hello.")], split=[3, 5])
    with (
        provider.client() as client,
        client.responses.with_streaming_response.create(model="m", input="x", stream=True) as response,
    ):
        sizes = [len(piece) for piece in response.http_response.stream]  # type: ignore[union-attr]
    assert set(pairwise(sizes[:-1])) == {(3, 5), (5, 3)}
    assert 0 < sizes[-1] <= 5
