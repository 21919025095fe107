"""What holds for every API of the simulated provider: one script, the same faults, the same books."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from memoflow.providers.base import Usage
from memoflow.testing import (
    ProviderProcess,
    SimulatedProvider,
    agent,
    call,
    calls,
    closed_before_reply,
    connect_refused,
    corrupt_chunk,
    forever,
    hold,
    html_200,
    huge,
    no_events,
    not_json,
    raw,
    read_timeout,
    reset_before_reply,
    reset_mid_body,
    snapshot_differs,
    status,
    stream_ends_early,
    text,
    thinking,
    truncated_body,
    usage,
    web_search,
)
from tests.testing._callers import HELLO, REQUESTS, Caller
from tests.testing.conftest import Talk

REPLY = text("Hello, world.", usage=usage(10, 5))
ROUTES = {
    "responses": "POST /v1/responses",
    "chat": "POST /v1/chat/completions",
    "embeddings": "POST /v1/embeddings",
    "messages": "POST /v1/messages",
}
STREAMING = ("chat", "messages")
NEW = ("chat", "embeddings", "messages")
PATHS = {api: route.split(" ")[1] for api, route in ROUTES.items()}

new_api = pytest.mark.parametrize("api", NEW)
streaming_api = pytest.mark.parametrize("api", STREAMING)
SDK_ERRORS = (openai.OpenAIError, anthropic.AnthropicError, httpx2.HTTPError, ValueError, AttributeError)


def _cause(caught: pytest.ExceptionInfo[Exception]) -> BaseException:
    """The transport's own exception, which one SDK wraps within a stream and the other one does not."""
    error = caught.value
    return error if isinstance(error, httpx2.HTTPError) else error.__cause__ or error


AFTER_ARRIVAL = pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (read_timeout, httpx2.ReadTimeout),
        (reset_before_reply, httpx2.ReadError),
        (closed_before_reply, httpx2.RemoteProtocolError),
        (reset_mid_body, httpx2.ReadError),
        (truncated_body, httpx2.RemoteProtocolError),
    ],
)


def _breaks(caller: Caller, api: str, cause: type[Exception]) -> None:
    with pytest.raises(SDK_ERRORS) as caught:
        caller.create(api=api, client=caller.impatient if cause is httpx2.ReadTimeout else None)
    assert isinstance(_cause(caught), cause)
    assert caller.provider.wire_requests == {ROUTES[api]: 1}


@pytest.mark.parametrize("performed", [True, False])
@AFTER_ARRIVAL
@new_api
def test_faults_of_the_connection(
    fault: Any, cause: type[Exception], performed: bool, api: str, talk_in_process: Talk
) -> None:
    """A connection breaks for every API alike, and the provider knows what it did all the same."""
    caller = talk_in_process(fault(REPLY, performed=performed))
    _breaks(caller, api, cause)
    billed = Usage(10, 0 if api == "embeddings" else 5) if performed else Usage(0, 0)
    assert (caller.provider.performed, caller.provider.billed) == (int(performed), billed)


@AFTER_ARRIVAL
def test_faults_of_a_real_connection(fault: Any, cause: type[Exception], talk_over_sockets: Talk) -> None:
    """Over sockets the client of Anthropic sees the same failures."""
    _breaks(talk_over_sockets(fault(REPLY)), "messages", cause)


@pytest.mark.parametrize("fault", [reset_mid_body, truncated_body])
@streaming_api
def test_streams_break(fault: Any, api: str, talk: Talk) -> None:
    """A stream that breaks has delivered the events before it."""
    caller = talk(fault(REPLY, after=3))
    seen: list[Any] = []
    with pytest.raises(SDK_ERRORS) as caught:
        caller.collect(seen, api=api)
    assert isinstance(_cause(caught), (httpx2.ReadError, httpx2.RemoteProtocolError))
    # One of the three events of a message is a ping, which the SDK keeps for itself.
    assert len(seen) == (2 if api == "messages" else 3)
    assert caller.provider.billed == Usage(10, 5)


@new_api
def test_connecting_may_fail(api: str, talk_in_process: Talk) -> None:
    """A request that could not be sent has not arrived."""
    caller = talk_in_process(connect_refused(), REPLY)
    with pytest.raises(SDK_ERRORS) as caught:
        caller.create(api=api)
    assert isinstance(_cause(caught), httpx2.ConnectError)
    assert caller.provider.wire_requests == {}
    caller.create(api=api)
    assert caller.provider.wire_requests == {ROUTES[api]: 1}


@pytest.mark.parametrize("spoilt", [not_json(), html_200(performed=True), raw(b"[1]")])
@new_api
def test_replies_that_are_none(spoilt: Any, api: str, talk_in_process: Talk) -> None:
    """A 200 may be anything; what the script says was generated behind it is billed."""
    caller = talk_in_process(spoilt)
    try:
        answer = caller.create(api=api)
    except SDK_ERRORS:
        answer = None
    assert getattr(answer, "model", None) is None
    assert (caller.provider.performed, caller.provider.requests[0].status) == (1, 200)


@pytest.mark.parametrize("fault", [stream_ends_early(REPLY), corrupt_chunk(REPLY), no_events(REPLY)])
@new_api
def test_faults_of_streams_without_streaming(fault: Any, api: str, talk_in_process: Talk) -> None:
    """A fault of streams, met by a request that does not stream, spoils the body."""
    caller = talk_in_process(fault)
    try:
        answer = caller.create(api=api)
    except SDK_ERRORS:
        answer = None
    assert getattr(answer, "model", None) is None
    assert caller.provider.performed == 1


@pytest.mark.parametrize("after", [None, 3])
@streaming_api
def test_a_corrupt_chunk(after: int | None, api: str, talk: Talk) -> None:
    """An event whose data is no JSON breaks the SDK where it stands."""
    seen: list[Any] = []
    with pytest.raises(json.JSONDecodeError):
        talk(corrupt_chunk(REPLY, after=after)).collect(seen, api=api)
    assert seen


@streaming_api
def test_no_events_and_harmless_ones(api: str, talk_in_process: Talk) -> None:
    """A stream may be empty or huge; where there is no snapshot none can differ."""
    caller = talk_in_process(no_events(REPLY), huge(200_000, REPLY), snapshot_differs(REPLY), REPLY)
    assert caller.events(api=api) == []
    padded = [event for event in caller.events(api=api) if len(getattr(event, "padding", "")) == 200_000]
    assert len(padded) == 1
    assert len(caller.events(api=api)) == len(caller.events(api=api))


@new_api
def test_a_huge_body(api: str, talk: Talk) -> None:
    """A huge body is as large as asked for."""
    assert len(talk(huge(200_000, REPLY)).create(api=api).padding) == 200_000


@streaming_api
def test_a_stream_is_held(api: str, talk: Talk) -> None:
    """A stream waits in its middle until it is released; nothing is billed before its end."""
    held = hold(REPLY, after=3)
    caller = talk(held)
    seen: list[Any] = []
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(caller.collect, seen, api=api)
        assert held.wait_entered()
        assert caller.provider.performed == 0
        held.release()
        reading.result()
    assert caller.provider.performed == 1


@pytest.mark.parametrize("kept", [True, False])
@streaming_api
def test_who_leaves_pays_or_not(kept: bool, api: str, talk_in_process: Talk) -> None:
    """A generation whose client goes away is finished and billed, or not: as the provider is told."""
    caller = talk_in_process(hold(REPLY, after=3), finish_abandoned=kept)
    with pytest.raises(SDK_ERRORS):
        caller.collect([], api=api, client=caller.impatient)
    (record,) = caller.provider.requests
    assert record.wait_ended()
    assert (record.client_gone, caller.provider.performed) == (True, int(kept))


@streaming_api
def test_retries_of_the_sdk_are_counted(api: str, talk: Talk) -> None:
    """What an SDK repeats on its own arrives once more."""
    caller = talk(*[status(429, retry_after_ms=1)] * 2, REPLY)
    caller.create(api=api, client={"max_retries": 2})
    assert caller.provider.wire_requests == {ROUTES[api]: 3}


def test_one_script_serves_all(talk: Talk) -> None:
    """Requests of all APIs take the entries of one queue in their order, and are counted by path."""
    caller = talk("a", "b", "c")
    assert caller.create().output_text == "a"
    assert caller.create(api="messages").content[0].text == "b"
    assert caller.create(api="chat").choices[0].message.content == "c"
    assert caller.create(api="chat").choices[0].message.content == "echo: Hello"
    assert caller.create(api="messages").content[0].text == "echo: Hello"
    assert caller.provider.wire_requests == {
        "POST /v1/responses": 1,
        "POST /v1/messages": 2,
        "POST /v1/chat/completions": 2,
    }
    assert caller.provider.performed == 5


def test_a_route_has_a_queue_of_its_own(talk_in_process: Talk) -> None:
    """Entries for a route come before those of its operation, faults of connecting too."""
    caller = talk_in_process("all")
    caller.provider.push("mine", connect_refused(), forever("still mine"), to="POST /v1/messages")
    assert caller.provider.remaining == 4
    assert caller.create(api="messages").content[0].text == "mine"
    with pytest.raises(anthropic.APIConnectionError):
        caller.create(api="messages")
    assert caller.create(api="messages").content[0].text == "still mine"
    assert caller.create(api="chat").choices[0].message.content == "all"
    assert caller.create(api="messages").content[0].text == "still mine"


def test_a_function_that_raises_is_a_server_error() -> None:
    """An exception of the script reaches every client as a 500, in the words of its API."""

    def broken(request: Any) -> Any:
        raise LookupError(request.api)

    provider = SimulatedProvider(broken)
    with provider.client(max_retries=0) as client, pytest.raises(openai.InternalServerError):
        client.chat.completions.create(**REQUESTS["chat"])
    with (
        provider.anthropic_client(max_retries=0) as client,
        pytest.raises(anthropic.InternalServerError) as caught,
    ):
        client.messages.create(**REQUESTS["messages"])
    assert caught.value.type == "script_error"
    assert [str(error) for error in provider.errors] == ["chat.completions", "messages"]


def test_the_same_seed_gives_the_same_bytes() -> None:
    """Two providers with one seed answer the same requests of every API with the same bytes."""
    bodies: list[list[bytes]] = []
    for seed in (1, 1, 2):
        provider = SimulatedProvider(forever(calls(call("f"), thought="Hm.")), seed=seed)
        bodies.append([_post(provider, api, {**REQUESTS[api]}).content for api in NEW])
    assert bodies[0] == bodies[1]
    assert bodies[0] != bodies[2]


def _post(provider: SimulatedProvider, api: str, body: Any) -> httpx2.Response:
    """A request past both SDKs; either key is fine for every API."""
    headers = {"authorization": "Bearer k", "anthropic-version": "2023-06-01"}
    with provider.client() as client:
        return client._client.post(f"http://simulated.invalid{PATHS[api]}", json=body, headers=headers)


EVERYTHING = calls(web_search("wörds"), thinking("Hm, é."), call("f", {"ü": [1, 2]}), say="Grüße 👋 an alle.")


def test_one_port_serves_all(talk_over_sockets: Talk) -> None:
    """A server speaks every API on one port, to plain and streaming clients."""
    caller = talk_over_sockets(forever(EVERYTHING))
    for api in ("responses", *STREAMING):
        assert caller.create(api=api).id
        assert caller.events(api=api)
    assert caller.create(api="embeddings").data
    assert len(caller.provider.wire_requests) == 4


def test_a_process_speaks_every_api() -> None:
    """A process follows its script for clients of both kinds, synchronous or not, and counts them."""
    tools: Any = [{"name": "f", "input_schema": {"type": "object"}}]
    with ProviderProcess([agent(calls(call("f"), thought="Hm."), "done")]) as process:
        assert process.root_url == process.base_url.removesuffix("/v1")
        with (
            process.anthropic_client() as client,
            client.messages.stream(
                model="m",
                max_tokens=99,
                messages=HELLO,
                tools=tools,  # type: ignore[arg-type]
            ) as stream,
        ):
            assert stream.get_final_message().stop_reason == "tool_use"
        process.push(status(529), to="count")

        async def ask() -> None:
            async with process.async_anthropic_client(max_retries=0) as client:
                with pytest.raises(anthropic.InternalServerError):
                    await client.messages.count_tokens(model="m", messages=HELLO)  # type: ignore[arg-type]
            async with process.async_client() as client:
                await client.chat.completions.create(**REQUESTS["chat"])
                await client.embeddings.create(**REQUESTS["embeddings"])

        asyncio.run(ask())
        assert process.wire_requests == {
            "POST /v1/messages": 1,
            "POST /v1/messages/count_tokens": 1,
            "POST /v1/chat/completions": 1,
            "POST /v1/embeddings": 1,
        }
        assert [record.api for record in process.requests] == [
            "messages",
            "messages",
            "chat.completions",
            "embeddings",
        ]
        assert process.performed == 3
