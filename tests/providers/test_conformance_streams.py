"""Streams of every API: what the official SDK makes of them, however they were cut, live and restored."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoflow.providers.anthropic_messages import AnthropicMessagesCodec
from memoflow.providers.openai_chat import OpenAIChatCodec
from memoflow.providers.openai_responses import OpenAIResponsesCodec
from memoflow.providers.sse import SSEDecoder, event_json
from memoflow.testing import (
    SimulatedProvider,
    call,
    calls,
    corrupt_chunk,
    custom_call,
    duplicate_terminal,
    error_event,
    incomplete,
    items,
    message,
    missing_usage,
    reasoning,
    refusal,
    stops,
    stream_ends_early,
    text,
    usage,
    web_search,
)
from tests.providers._accumulated import accumulated, same
from tests.providers.conformance import API, TALKING, OnApi, everywhere, on
from tests.turn._asks import run, stream
from tests.turn._worlds import Got, World

WORDS = "Grüße 👋 an alle,\nund 你好."
CODECS = {
    "responses": OpenAIResponsesCodec(),
    "chat": OpenAIChatCodec(),
    "messages": AnthropicMessagesCodec(),
}
COUNTED = usage(100, 60, cached=40, reasoning=7)
# Replies that every API can give, and that its SDK can put together.
REPLIES: dict[str, Any] = {
    "text": lambda: text(WORDS, usage=COUNTED),
    "empty": lambda: text("", usage=COUNTED),
    "thought": lambda: text(WORDS, thought="Hm. 🤔", usage=COUNTED),
    "calls": lambda: calls(
        call("f", {"s": WORDS}), call("g", "{}"), say="Look:", thought="Hm.", usage=COUNTED
    ),
    "hosted": lambda: items([web_search("Grüße"), message(WORDS)], usage=COUNTED),
    "refusal": lambda: refusal("No 👎.", usage=COUNTED),
}
CUT = {"cut": lambda: incomplete(WORDS, usage=COUNTED), "paused": lambda: stops("pause_turn", WORDS)}
each_reply = pytest.mark.parametrize("reply", REPLIES)


def shown(w: World, got: Got) -> Any:
    """The reply of a stream as the SDK's accumulator has it."""
    return accumulated(w.api.name, got.events)


@on(*TALKING, postgresql=False)
@each_reply
def test_the_sdk_puts_the_same_reply_together(api_world: OnApi, reply: str) -> None:
    """The result of a stream is what the SDK's own accumulator has at its end, live and restored."""
    w = api_world(REPLIES[reply]())
    live, restored = w.ask(stream()), w.ask(stream())
    assert same(live.result.response) == same(restored.result.response)
    assert shown(w, live) == same(live.result.response)
    assert shown(w, restored) == same(live.result.response)
    assert (restored.result.restored, w.sent) == (True, 1)


@on("chat", "messages")
@pytest.mark.parametrize("reply", CUT)
def test_the_sdk_puts_a_reply_that_was_cut_together(api_world: OnApi, reply: str) -> None:
    """The same for ends that the accumulator of the Responses API takes for no reply at all."""
    w = api_world(CUT[reply]())
    live, restored = w.ask(stream()), w.ask(stream())
    assert shown(w, live) == shown(w, restored) == same(live.result.response)


@on(*TALKING, postgresql=False)
@each_reply
def test_a_stream_has_the_reply_that_comes_whole(api_world: OnApi, reply: str) -> None:
    """Asked for as a stream or not, the model's reply is the same, and so is what it cost."""
    w, whole = api_world(REPLIES[reply]()), api_world(REPLIES[reply]())
    streamed, plain = w.ask(stream()).result, whole.ask(run()).result
    assert without_ids(streamed.response) == without_ids(plain.response)
    assert w.balance() == whole.balance()
    assert streamed.finish_reason == plain.finish_reason


def without_ids(response: Any) -> Any:
    """A reply without what the provider makes anew each time."""

    def cleaned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: cleaned(part) for key, part in value.items() if key not in ("created", "created_at")}
        return [cleaned(part) for part in value] if isinstance(value, list) else value

    return cleaned(same(response))


@everywhere
def test_a_recorded_stream_shows_its_texts(api_world: OnApi) -> None:
    """Who prints a stream as it comes prints a restored one too; the texts are all there."""
    w = api_world(text(WORDS))
    first, second = (spoken(w, w.ask(stream()).events) for _ in range(2))
    assert first == second == WORDS


def spoken(w: World, events: list[Any]) -> str:
    """The texts in the deltas of a stream."""
    if w.api.name == "chat":
        return "".join(choice.delta.content or "" for event in events for choice in event.choices)
    if w.api.name == "messages":
        deltas = [event.delta for event in events if event.type == "content_block_delta"]
        return "".join(delta.text for delta in deltas if delta.type == "text_delta")
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


# However the bytes are cut


def played(world: OnApi, script: list[Any], split: Any) -> dict[str, Any]:
    """What a stream comes to whose bytes arrive in pieces of these sizes."""
    w = world(provider=SimulatedProvider(script, split=split))
    got = w.ask(stream())
    error = got.error
    return {
        "events": [event.model_dump(warnings=False) for event in got.events],
        "error": None if error is None else (type(error).__name__, getattr(error, "reason", None)),
        "response": None if error else same(got.result.response),
        "invocation": (w.invocation.state, w.invocation.reason, w.invocation.retrievable),
        "balance": w.balance(),
    }


SPLITS = [1, [13, 1, 64], 4_096]
# Whole streams, and streams that end in each of the ways a stream can.
STREAMS: dict[str, Any] = {
    "everything": lambda: calls(call("f", {"s": WORDS}), say=WORDS, thought="Hm.", usage=COUNTED),
    "no_usage": lambda: missing_usage(text(WORDS)),
    "error": lambda: error_event(then=text(WORDS)),
    "early": lambda: stream_ends_early(text(WORDS)),
    "twice": lambda: duplicate_terminal(text(WORDS, usage=COUNTED)),
}


@on(*TALKING, postgresql=False)
@pytest.mark.parametrize("name", STREAMS)
def test_how_a_stream_is_cut_changes_nothing(api_world: OnApi, name: str) -> None:
    """Pieces of any size, across characters, lines and events: the same events, reply, record and charge."""
    expected = played(api_world, [STREAMS[name]()], None)
    for split in SPLITS:
        assert played(api_world, [STREAMS[name]()], split) == expected


def wire(api: str) -> bytes:
    """The bytes of a stream of this API in which there is something of everything."""
    said = [reasoning("Hm. 🤔"), message(WORDS), call("f", {"s": WORDS})]
    # Only the OpenAI APIs have calls of raw text.
    said += [] if api == "messages" else [custom_call("patch", WORDS)]
    provider = SimulatedProvider([items(said, usage=COUNTED)])
    spoken_api = API[api]
    body = spoken_api.spoken({"model": "m", "input": "x", "max_output_tokens": 1_000})
    body = CODECS[api].streamed(body)
    with spoken_api.client(provider) as client:
        path = spoken_api.path.removeprefix("" if api == "messages" else "/v1")
        headers = {"X-Stainless-Raw-Response": "stream"}
        raw = client.post(
            path, body=body, cast_to=object, options={"headers": headers}, stream=True, stream_cls=None
        )
        return b"".join(raw.http_response.iter_bytes())


BYTES = {api: wire(api) for api in TALKING}


def assembled(api: str, pieces: list[bytes]) -> Any:
    """What the codec makes of these pieces."""
    assembler = CODECS[api].assembler(1)
    decoder = SSEDecoder(skipped=assembler.skipped)
    for piece in pieces:
        for event in decoder.feed(piece):
            if (data := event_json(event)) is not None:
                assembler.feed(data)
    return assembler.reply()


@pytest.mark.parametrize("api", TALKING)
@settings(max_examples=60)
@given(data=st.data())
def test_how_the_bytes_are_cut_changes_no_reply(api: str, data: st.DataObject) -> None:
    """Cut anywhere, the codec reads the same reply, and one that lacks its end is none."""
    whole = BYTES[api]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    reply = assembled(api, pieces)
    assert reply is not None
    assert reply == assembled(api, [whole])
    assert reply.usage is not None
    assert (reply.problem, len(reply.calls), reply.calls[0].complete) == (None, 1 + (api != "messages"), True)


@pytest.mark.parametrize("api", TALKING)
@settings(max_examples=60)
@given(data=st.data())
def test_a_stream_that_lacks_its_end_is_no_whole_reply(api: str, data: st.DataObject) -> None:
    """Whatever is missing, no call of it runs and no usage of it is trusted, unless it was all there."""
    whole = BYTES[api]
    end = data.draw(st.integers(0, len(whole) - 1))
    reply = assembled(api, [whole[:end]])
    full = assembled(api, [whole])
    assert reply is None or reply == full or (api == "chat" and reply.usage is None)


@everywhere
def test_a_chunk_that_is_not_json_ends_the_stream(api_world: OnApi) -> None:
    """Also where it is cut into pieces; what came before it was given to the consumer."""
    provider = SimulatedProvider([corrupt_chunk(text(WORDS), after=4)], split=5)
    w = api_world(provider=provider)
    got = w.ask(stream())
    assert got.error is not None
    assert w.invocation.reason == "CORRUPT_STREAM"
    assert got.events
