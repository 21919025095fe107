"""What a stream's events add up to, in which order they come."""

from __future__ import annotations

import json

import openai
import pytest

from memoflow import InvalidRequest, ProviderError
from memoflow.providers.openai_chat import OpenAIChatCodec
from memoflow.providers.openai_responses import OpenAIResponsesCodec
from memoflow.sdk.answers import Tap, TooLargeError, read_count
from memoflow.sdk.options import _metadata
from memoflow.turn.steps import Arrived, Interrupted

ERROR = {"type": "error", "code": "server_error", "message": "no", "sequence_number": 1}
DONE = {
    "type": "response.completed",
    "sequence_number": 2,
    "response": {"id": "resp_1", "object": "response", "status": "completed", "output": []},
}


def _answer(*events: dict[str, object]) -> object:
    tap = Tap(OpenAIResponsesCodec(), openai, 1_000_000)
    for event in events:
        tap.feed(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    return tap.answer(None)


def test_an_error_event_is_not_made_good_by_what_follows() -> None:
    """After an error event the outcome is unknown, even if a terminal event comes."""
    answer = _answer(ERROR, DONE)
    assert isinstance(answer, Interrupted)
    assert (answer.reason, answer.code) == ("ERROR_EVENT", "server_error")


def test_a_terminal_event_is_not_undone_by_what_follows() -> None:
    """The reply is whole; an error event after it changes nothing."""
    assert isinstance(_answer(DONE, ERROR), Arrived)


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_deltas_are_passed_over_unread(size: int) -> None:
    """However the stream is cut: what they say is repeated later, so one that is no JSON harms nothing."""
    deltas = [
        b'event: response.output_text.delta\ndata: {"type": "response.output_text.delta"}\n\n',
        b"event: response.output_text.delta\ndata: {no JSON\n\n",
        b"event: response.unheard_of.delta\r\ndata: {no JSON\r\n\r\n",
    ]
    stream = b"".join([*deltas * 5, _events(DONE), *deltas])
    tap = Tap(OpenAIResponsesCodec(), openai, 1_000_000)
    for start in range(0, len(stream), size):
        tap.feed(stream[start : start + size])
    assert isinstance(tap.answer(None), Arrived)


def _events(*events: dict[str, object] | bytes) -> bytes:
    lines = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    return b"".join(b"data: " + line + b"\n\n" for line in lines)


@pytest.mark.parametrize("at_once", [True, False])
def test_nothing_after_the_end_of_a_stream_counts(at_once: bool) -> None:
    """The SDK stops at ``[DONE]``; a terminal event behind it was seen by nobody."""
    tap = Tap(OpenAIResponsesCodec(), openai, 1_000_000)
    before, after = _events(b"[DONE]"), _events(DONE)
    for chunk in (before + after,) if at_once else (before, after):
        tap.feed(chunk)
    answer = tap.answer(None)
    assert isinstance(answer, Interrupted)
    assert (answer.reason, answer.response_id) == ("NO_TERMINAL_EVENT", None)


def test_damage_behind_the_terminal_event_changes_nothing() -> None:
    """Also where it comes in the same piece of the stream."""
    tap = Tap(OpenAIResponsesCodec(), openai, 1_000_000)
    tap.feed(_events(DONE, b"\xff"))
    assert isinstance(tap.answer(None), Arrived)


STARTED = {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}


@pytest.mark.parametrize("padding", [0, 100, 10_000])
def test_a_terminal_event_counts_as_soon_as_it_has_come(padding: int) -> None:
    """Whoever leaves right behind it gets the reply, though what comes is not read at once any more."""
    tap = Tap(OpenAIResponsesCodec(), openai, 1_000_000)
    tap.feed(_events(STARTED))
    assert tap.response_id == "resp_1"
    tap.feed(_events({"type": "other", "text": "x" * padding}))
    tap.feed(_events(DONE))
    assert isinstance(tap.answer(None), Arrived)


def test_a_reply_is_named_as_soon_as_its_event_has_come() -> None:
    """Its id is kept while the stream goes on, so it cannot wait."""
    tap = Tap(OpenAIResponsesCodec(), openai, 1_000_000)
    for piece in (b"data: ", json.dumps(STARTED).encode(), b"\n"):
        tap.feed(piece)
        assert tap.response_id is None
    tap.feed(b"\n")
    assert tap.response_id == "resp_1"


def test_what_is_too_large_is_noticed_before_it_is_all_there() -> None:
    """The SDK would keep it, so its reading is stopped some thousand bytes later at most."""
    tap = Tap(OpenAIResponsesCodec(), openai, 10_000)
    tap.feed(_events(STARTED) + b"data: ")
    with pytest.raises(TooLargeError):
        list(map(tap.feed, [b"x" * 1_000] * 23))
    answer = tap.answer(TooLargeError())
    assert isinstance(answer, Interrupted)
    assert (answer.reason, answer.response_id) == ("TOO_LARGE", "resp_1")


def test_what_turns_out_too_large_at_the_end_is_no_reply() -> None:
    """A stream that ended before it was noticed is unknown all the same."""
    tap = Tap(OpenAIChatCodec(max_reply_bytes=1_000), openai, 1_000)
    tap.feed(_events({"id": "chatcmpl-1", "choices": []}))
    said = {
        "id": "chatcmpl-1",
        "choices": [{"index": 0, "delta": {"content": "x" * 600}, "finish_reason": "stop"}],
    }
    tap.feed(_events(said, said))
    answer = tap.answer(None)
    assert isinstance(answer, Interrupted)
    assert (answer.reason, answer.response_id) == ("TOO_LARGE", "chatcmpl-1")


@pytest.mark.parametrize("given", [[1], "text", {"n": 10**40}, {"n": float("inf")}, {"x": [1]}, {1: "a"}])
def test_metadata_is_small_scalars(given: object) -> None:
    """Anything else is refused in a sentence."""
    with pytest.raises(InvalidRequest):
        _metadata(given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given", [None, [], {}, *({"input_tokens": n} for n in (None, "5", 5.0, True, -1, 10**30))]
)
def test_what_is_no_count_is_not_taken_for_one(given: object) -> None:
    """The provider could not count then; nothing of that size could be reserved."""
    with pytest.raises(ProviderError, match="did not count"):
        read_count(given, openai)
