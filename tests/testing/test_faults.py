"""Faults of the simulated provider as the official SDK meets them, and what the provider knows of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import httpx2
import openai
import pytest

from memoflow.testing import (
    calls,
    closed_before_reply,
    connect_refused,
    connect_timeout,
    corrupt_chunk,
    custom_call,
    delay,
    dns_failure,
    duplicate_terminal,
    error_event,
    failed,
    html_200,
    huge,
    malformed_usage,
    missing_usage,
    no_events,
    not_json,
    pool_timeout,
    raw,
    read_timeout,
    reset_before_reply,
    reset_mid_body,
    snapshot_differs,
    status,
    stream_ends_early,
    text,
    truncated_body,
    usage,
    write_error,
)
from tests.testing.conftest import Talk

REPLY = text("Hello, world.", usage=usage(10, 5))


def _error(ask: Callable[[], Any]) -> Exception:
    with pytest.raises((openai.OpenAIError, httpx2.HTTPError, ValueError)) as caught:
        ask()
    return caught.value


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (408, openai.APIStatusError),
        (409, openai.ConflictError),
        (413, openai.APIStatusError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (529, openai.InternalServerError),
    ],
)
def test_every_status_has_its_error(
    code: int, error: type[openai.APIStatusError], talk_in_process: Talk
) -> None:
    """A scripted status is the SDK's error for it, and nothing was generated."""
    caller = talk_in_process(status(code))
    caught = _error(caller.create)
    assert isinstance(caught, error)
    assert caught.status_code == code
    (record,) = caller.provider.requests
    assert (record.arrived, record.performed, record.finished, record.status) == (True, False, True, code)


def test_a_status_can_say_everything(talk: Talk) -> None:
    """Code, type, text, parameter and headers of an error reply are the script's."""
    fault = status(
        429,
        code="insufficient_quota",
        message="Pay first.",
        param="model",
        retry_after="Wed, 21 Oct 2026 07:28:00 GMT",
        retry_after_ms=10,
        headers={"x-should-retry": "false"},
    )
    caught = _error(talk(fault).create)
    assert isinstance(caught, openai.RateLimitError)
    assert (caught.code, caught.type, caught.param) == ("insufficient_quota", "insufficient_quota", "model")
    headers = caught.response.headers
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("Wed, 21 Oct 2026 07:28:00 GMT", "10")
    assert headers["x-should-retry"] == "false"


def test_a_status_may_hide_a_generation(talk_in_process: Talk) -> None:
    """A status with `performed=True` bills the reply the client never sees."""
    caller = talk_in_process(status(500, performed=True, then=REPLY))
    _error(caller.create)
    assert (caller.provider.performed, caller.provider.billed.total) == (1, 15)


def test_hidden_retries_are_counted(talk: Talk) -> None:
    """Every request an SDK makes on its own is a wire request: two retries are three of them."""
    caller = talk(*[status(429, retry_after_ms=1)] * 3, "never")
    _error(lambda: caller.create(client={"max_retries": 2}))
    assert caller.provider.wire_requests == {"POST /v1/responses": 3}
    assert caller.provider.remaining == 1


@pytest.mark.parametrize(
    ("fault", "cause", "error"),
    [
        (connect_refused(), httpx2.ConnectError, openai.APIConnectionError),
        (dns_failure(), httpx2.ConnectError, openai.APIConnectionError),
        (connect_timeout(), httpx2.ConnectTimeout, openai.APITimeoutError),
        (pool_timeout(), httpx2.PoolTimeout, openai.APITimeoutError),
        (write_error(), httpx2.WriteError, openai.APIConnectionError),
    ],
)
def test_faults_before_arrival(
    fault: Any, cause: type[Exception], error: type[Exception], talk_in_process: Talk
) -> None:
    """Faults of connecting and writing raise the transport's own exception; the request never arrived."""
    caller = talk_in_process(fault, "Hello.")
    caught = _error(caller.create)
    assert type(caught) is error
    assert type(caught.__cause__) is cause
    (record,) = caller.provider.requests
    assert (record.arrived, record.performed, record.failure) == (False, False, fault.kind)
    assert caller.provider.wire_requests == {}
    assert caller.create().output_text == "Hello."


def test_a_fault_before_arrival_comes_before_any_rule(talk_in_process: Talk) -> None:
    """Whoever cannot connect is not told that a request is wrong."""
    caller = talk_in_process(connect_refused())
    assert (
        type(_error(lambda: caller.create(tools=[{"type": "function", "name": "no good"}])))
        is openai.APIConnectionError
    )


AMBIGUOUS = [
    (read_timeout, httpx2.ReadTimeout, openai.APITimeoutError),
    (reset_before_reply, httpx2.ReadError, openai.APIConnectionError),
    (closed_before_reply, httpx2.RemoteProtocolError, openai.APIConnectionError),
    (reset_mid_body, httpx2.ReadError, openai.APIConnectionError),
    (truncated_body, httpx2.RemoteProtocolError, openai.APIConnectionError),
]


@pytest.mark.parametrize("performed", [True, False])
@pytest.mark.parametrize(("fault", "cause", "error"), AMBIGUOUS)
def test_faults_after_arrival(
    fault: Any, cause: type[Exception], error: type[Exception], performed: bool, talk: Talk
) -> None:
    """Faults after arrival look the same to the client, whether or not the provider did the work."""
    caller = talk(fault(REPLY, performed=performed))
    caught = _error(lambda: caller.create(client=caller.impatient if fault is read_timeout else None))
    assert type(caught) is error
    assert isinstance(caught.__cause__, cause)
    assert caller.provider.wire_requests == {"POST /v1/responses": 1}
    assert caller.provider.performed == int(performed)
    assert caller.provider.billed.total == (15 if performed else 0)
    assert not caller.provider.requests[0].finished


@pytest.mark.parametrize("after", [None, 0, 2])
@pytest.mark.parametrize(("fault", "cause"), [(fault, cause) for fault, cause, _ in AMBIGUOUS[3:]])
def test_streams_break_after_some_events(
    fault: Any, cause: type[Exception], after: int | None, talk: Talk
) -> None:
    """A stream that breaks has delivered the events before it; the generation may be billed all the same."""
    caller = talk(fault(REPLY, after=after))
    seen: list[Any] = []
    caught = _error(lambda: caller.collect(seen))
    assert isinstance(caught.__cause__, cause)
    assert len(seen) == (7 if after is None else after)
    assert caller.provider.billed.total == 15


def test_an_interrupted_stream_cannot_be_retrieved(talk_in_process: Talk) -> None:
    """After an interruption a retrieval is a 404, unless the provider is told to keep such responses."""
    for kept in (False, True):
        caller = talk_in_process(stream_ends_early(REPLY), store_interrupted=kept)
        response_id = caller.events()[0].response.id
        if kept:
            found = caller.ask(lambda responses, wanted=response_id: responses.retrieve(wanted))
            assert found.status == "completed"
        else:
            with pytest.raises(openai.NotFoundError):
                caller.ask(lambda responses, wanted=response_id: responses.retrieve(wanted))


@pytest.mark.parametrize(("after", "count"), [(None, 13), (0, 0), (3, 3)])
def test_a_stream_may_end_early(after: int | None, count: int, talk: Talk) -> None:
    """A stream that ends without a terminal event raises nothing; it was billed all the same."""
    caller = talk(stream_ends_early(REPLY, after=after))
    events = caller.events()
    assert len(events) == count
    assert all(event.type != "response.completed" for event in events)
    (record,) = caller.provider.requests
    assert record.wait_ended()
    assert (record.finished, record.performed) == (True, True)


def test_no_events_at_all(talk: Talk) -> None:
    """A stream may be a 200 without any event."""
    assert talk(no_events(REPLY)).events() == []


@pytest.mark.parametrize("nested", [False, True])
def test_an_error_event(nested: bool, talk: Talk) -> None:
    """An error event comes after status 200; only in its nested form the SDK raises it."""
    caller = talk(
        error_event("server_overloaded", "Busy.", after=2, nested=nested, performed=False, then=REPLY)
    )
    seen: list[Any] = []
    if nested:
        assert isinstance(_error(lambda: caller.collect(seen)), openai.APIError)
    else:
        caller.collect(seen)
        assert (seen[-1].type, seen[-1].code, seen[-1].sequence_number) == ("error", "server_overloaded", 2)
    assert [event.type for event in seen[:2]] == ["response.created", "response.in_progress"]
    assert caller.provider.performed == 0


def test_a_corrupt_chunk(talk: Talk) -> None:
    """An event whose data is not JSON breaks the SDK with a bare decoding error."""
    seen: list[Any] = []
    caller = talk(corrupt_chunk(REPLY, after=4))
    assert isinstance(_error(lambda: caller.collect(seen)), json.JSONDecodeError)
    assert len(seen) == 4


def test_two_terminal_events(talk: Talk) -> None:
    """A stream may repeat its terminal event; it was billed once."""
    caller = talk(duplicate_terminal(REPLY))
    last, again = caller.events()[-2:]
    assert (last.type, again.type) == ("response.completed", "response.completed")
    assert again.sequence_number == last.sequence_number + 1
    assert caller.provider.billed.total == 15


@pytest.mark.parametrize("reply", [REPLY, custom_call("patch", "x"), calls()])
def test_a_snapshot_that_differs(reply: Any, talk_in_process: Talk) -> None:
    """The terminal snapshot may contradict the items that were streamed."""
    events = talk_in_process(snapshot_differs(reply)).events()
    streamed = [event.item.to_dict() for event in events if event.type == "response.output_item.done"]
    snapshot = [item.to_dict() for item in events[-1].response.output]
    assert (snapshot == streamed) is (streamed == [])


@pytest.mark.parametrize(
    "fault", [error_event(then=REPLY), corrupt_chunk(REPLY), no_events(REPLY), stream_ends_early(REPLY)]
)
def test_stream_faults_without_streaming(fault: Any, talk: Talk) -> None:
    """A fault of streams, met by a request that does not stream, is an error there as well."""
    caller = talk(fault)
    with contextlib.suppress(openai.OpenAIError, ValueError):
        assert getattr(caller.create(), "id", None) is None
    assert caller.provider.performed == 1


@pytest.mark.parametrize("fault", [duplicate_terminal(REPLY), snapshot_differs(REPLY)])
def test_harmless_without_streaming(fault: Any, talk_in_process: Talk) -> None:
    """Without streaming there is no second terminal event and no snapshot to differ."""
    assert talk_in_process(fault).create().output_text == "Hello, world."


def test_not_json_and_html(talk: Talk) -> None:
    """A 200 that is not JSON raises or gives something that is no response."""
    caller = talk(not_json(), html_200())
    assert isinstance(_error(caller.create), (openai.APIError, ValueError))
    page = caller.create()
    assert isinstance(page, str)
    assert [record.performed for record in caller.provider.requests] == [True, False]


def test_raw_bytes(talk: Talk) -> None:
    """Raw bytes arrive as they are, with the status, content type and headers given."""
    sent = raw(b'{"id": "x", "id": "y"}', status=207, headers={"x-odd": "1"}, performed=False)
    answer = talk(sent).ask(lambda responses: responses.with_raw_response.create(model="m", input="x"))
    assert (answer.status_code, answer.headers["x-odd"]) == (207, "1")
    assert answer.http_response.content == b'{"id": "x", "id": "y"}'


def test_huge_replies(talk: Talk) -> None:
    """A huge reply is as large as asked for, streaming or not."""
    caller = talk(huge(300_000, REPLY), huge(300_000, REPLY))
    assert len(caller.create().padding) == 300_000
    assert len(caller.events()[-1].padding) == 300_000


TRUE_USAGE = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
DETAILS = {
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}


@pytest.mark.parametrize(
    ("variant", "reported"),
    [
        ("null", None),
        ("empty", {}),
        ("null_counts", {**DETAILS, **dict.fromkeys(TRUE_USAGE)}),
        ("strings", {**DETAILS, "input_tokens": "10", "output_tokens": "5", "total_tokens": "15"}),
        ("floats", {**DETAILS, "input_tokens": 10.5, "output_tokens": 5.5, "total_tokens": 15.5}),
        ("booleans", {**DETAILS, **dict.fromkeys(TRUE_USAGE, True)}),
        ("negative", {**DETAILS, "input_tokens": -11, "output_tokens": -6, "total_tokens": -16}),
        ("huge", {**DETAILS, **{key: 10**30 + count for key, count in TRUE_USAGE.items()}}),
        ("null_details", {**TRUE_USAGE, **dict.fromkeys(DETAILS)}),
        ("wrong_total", {**DETAILS, **TRUE_USAGE, "total_tokens": 16}),
    ],
)
def test_malformed_usage(variant: Any, reported: Any, talk_in_process: Talk) -> None:
    """Usage can be spoilt in every way that was seen on the wire, while the true one is billed."""
    # The SDK turns "10" and true into integers, so the bytes are looked at.
    caller = talk_in_process(malformed_usage(variant, REPLY))
    answer = caller.ask(lambda responses: responses.with_raw_response.create(model="m", input="x"))
    usage = json.loads(answer.http_response.content)["usage"]
    # True equals 1, so what they look like is compared as well.
    assert json.dumps(usage, sort_keys=True) == json.dumps(reported, sort_keys=True)
    assert caller.provider.billed.total == 15


def test_missing_usage_has_no_such_field(talk_in_process: Talk) -> None:
    """Missing usage is not even null."""
    caller = talk_in_process(missing_usage(REPLY), missing_usage(failed()))
    for _ in range(2):
        assert "usage" not in caller.create().to_dict()
    assert caller.provider.performed == 2


def test_the_client_may_be_slower_than_its_timeout(talk: Talk) -> None:
    """A delay beyond the client's read timeout ends as a timeout; the work is finished and billed."""
    caller = talk(delay(5, REPLY))
    caught = _error(lambda: caller.create(client=caller.impatient))
    assert type(caught) is openai.APITimeoutError
    assert caller.provider.requests[0].wait_ended()
    assert (caller.provider.performed, caller.provider.requests[0].client_gone) == (1, True)


def test_a_short_delay_is_only_a_delay(talk: Talk) -> None:
    """A delay within the timeout changes nothing, before the reply or within a stream."""
    caller = talk(delay(0.01, REPLY), delay(0.01, REPLY, after=3))
    assert caller.create().output_text == "Hello, world."
    assert caller.events()[-1].type == "response.completed"
