"""Held replies and clients that go away: cancellation without sleeps, and who pays for it."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

from memoflow.errors import ConfigurationError
from memoflow.testing import (
    Gate,
    Held,
    ProviderRequest,
    SimulatedProvider,
    agent,
    delay,
    forever,
    hold,
    text,
    usage,
)
from tests.testing.conftest import Talk

REPLY = text("Hello, world.", usage=usage(10, 5))


def test_a_held_reply_comes_when_released(talk: Talk) -> None:
    """A request waits at its gate until another thread releases it."""
    held = hold(REPLY)
    caller = talk(held)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(caller.create)
        assert held.wait_entered()
        assert caller.provider.performed == 0
        assert not answer.done()
        held.release()
        assert answer.result().output_text == "Hello, world."
    assert caller.provider.requests[0].wait_ended()
    assert (caller.provider.performed, held.client_gone) == (1, False)


def test_a_stream_is_held_in_its_middle(talk: Talk) -> None:
    """With ``after`` the events before it have arrived while the rest is held."""
    held = hold(REPLY, after=3)
    caller = talk(held)
    seen: list[Any] = []
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(caller.collect, seen)
        assert held.wait_entered()
        assert caller.provider.performed == 0
        assert len(seen) <= 3
        held.release()
        reading.result()
    assert seen[-1].type == "response.completed"


def test_a_gate_may_be_open_already(talk: Talk) -> None:
    """A hold that was released before the request came does not hold it."""
    held = hold(REPLY)
    held.release()
    assert talk(held).create().output_text == "Hello, world."


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("after", [None, 3])
def test_a_client_that_times_out_is_gone(finished: bool, after: int | None, talk_in_process: Talk) -> None:
    """A client's timeout while held is noticed; whether the work is billed is the provider's choice."""
    held = hold(REPLY, after=after)
    caller = talk_in_process(held, finish_abandoned=finished)
    with pytest.raises(openai.APITimeoutError):
        caller.collect([], client=caller.impatient)
    _assert_abandoned(caller.provider, held, finished)


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("after", [None, 3])
def test_a_client_that_hangs_up_is_gone(finished: bool, after: int | None) -> None:
    """Over a socket, too, a client that closes its connection while held is noticed."""
    held = hold(REPLY, after=after)
    provider = SimulatedProvider([held], finish_abandoned=finished)
    body = json.dumps({"model": "m", "input": "x", "stream": after is not None})
    with provider.serve() as url:
        address = urlsplit(url)
        connection = http.client.HTTPConnection(str(address.hostname), address.port)
        connection.request("POST", "/v1/responses", body, {"authorization": "Bearer k"})
        assert held.wait_entered()
        connection.close()
        _assert_abandoned(provider, held, finished)


def _assert_abandoned(provider: SimulatedProvider, held: Held, finished: bool) -> None:
    assert held.wait_abandoned()
    (record,) = provider.requests
    assert record.wait_ended()
    assert (record.client_gone, record.finished) == (True, False)
    assert (record.performed, provider.billed.total) == (finished, 15 if finished else 0)


def _cancelled(provider: SimulatedProvider, held: Any, **request: Any) -> None:
    async def cancel() -> None:
        async with provider.async_client() as client:
            task = asyncio.create_task(client.responses.create(model="m", input="x", **request))
            assert await held.wait_entered_async()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancel())


def test_cancelling_a_task_abandons_its_request() -> None:
    """A cancelled task's request is recorded as abandoned at once, before anything is released."""
    held = hold(REPLY)
    provider = SimulatedProvider([held])
    _cancelled(provider, held)
    assert (held.client_gone, provider.requests[0].client_gone) == (True, True)
    assert provider.billed.total == 15


def test_cancelling_a_delayed_request_abandons_it() -> None:
    """A delay ends at once when the client's task is cancelled."""
    arrived = asyncio.Event()

    def decide(request: ProviderRequest) -> Any:
        arrived.set()
        return delay(600, REPLY)

    provider = SimulatedProvider([decide])

    async def cancel() -> None:
        async with provider.async_client() as client:
            task = asyncio.create_task(client.responses.create(model="m", input="x"))
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancel())
    assert provider.requests[0].client_gone


def test_closing_a_stream_early_abandons_it(talk: Talk) -> None:
    """A client that stops reading is noticed and cannot retrieve what it abandoned."""
    held = hold(REPLY, after=3)
    caller = talk(held)
    if caller.is_async:

        async def stop() -> None:
            async with caller.async_client() as client:
                stream = await client.responses.create(model="m", input="x", stream=True)
                async for event in stream:
                    if event.type == "response.in_progress":
                        await stream.close()
                        break

        asyncio.run(stop())
    else:
        with caller.client().responses.create(model="m", input="x", stream=True) as stream:
            assert next(iter(stream)).type == "response.created"
    (record,) = caller.provider.requests
    assert record.wait_ended()
    assert (record.client_gone, record.finished) == (True, False)
    with pytest.raises(openai.NotFoundError):
        caller.ask(lambda responses: responses.retrieve(record.response_id))


def test_a_stream_that_was_read_to_its_terminal_event_is_finished() -> None:
    """Closing a stream after its terminal event, without reading on to its end, abandons nothing."""
    provider = SimulatedProvider([REPLY])
    with provider.client() as client, client.responses.create(model="m", input="x", stream=True) as stream:
        while next(stream).type != "response.completed":
            pass
    (record,) = provider.requests
    assert record.wait_ended()
    assert (record.finished, record.client_gone) == (True, False)


def test_a_reply_that_nobody_takes_is_not_finished() -> None:
    """Over a socket, a client that is gone before the last byte was written did not get its reply."""
    seen = threading.Event()

    def decide(request: ProviderRequest) -> Any:
        connection.close()
        seen.set()
        return REPLY

    provider = SimulatedProvider(decide)
    body = json.dumps({"model": "m", "input": "x"})
    with provider.serve() as url:
        address = urlsplit(url)
        connection = http.client.HTTPConnection(str(address.hostname), address.port)
        connection.request("POST", "/v1/responses", body, {"authorization": "Bearer k"})
        assert seen.wait(30)
        (record,) = provider.requests
        assert record.wait_ended()
    assert (record.finished, record.client_gone, record.performed) == (False, True, True)


def test_a_request_cancelled_on_arrival_has_arrived() -> None:
    """A task that is cancelled when the provider has just read its request is billed like any other."""
    provider = SimulatedProvider(lambda request: task.cancel() and REPLY)
    task: asyncio.Task[Any]

    async def cancel() -> None:
        nonlocal task
        async with provider.async_client() as client:
            task = asyncio.create_task(client.responses.create(model="m", input="x"))
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancel())
    (record,) = provider.requests
    assert (record.arrived, record.performed, record.client_gone) == (True, True, True)


def test_a_request_cancelled_before_it_is_sent_never_arrives() -> None:
    """A task that is cancelled before its request was sent leaves nothing at the provider."""
    provider = SimulatedProvider([REPLY])

    async def cancel() -> None:
        async with provider.async_client() as client:
            task = asyncio.create_task(client.responses.create(model="m", input="x"))
            asyncio.get_running_loop().call_soon(task.cancel)
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancel())
    assert provider.requests == []


def test_many_requests_at_once(talk: Talk) -> None:
    """Concurrent requests take one entry each and are all counted."""
    caller = talk(*[text(str(number)) for number in range(32)])
    barrier = threading.Barrier(8)

    def ask(_: int) -> list[str]:
        barrier.wait()
        return [caller.create().output_text for _ in range(4)]

    with ThreadPoolExecutor(8) as pool:
        answers = [answer for answers in pool.map(ask, range(8)) for answer in answers]
    assert sorted(answers, key=int) == [str(number) for number in range(32)]
    assert caller.provider.wire_requests == {"POST /v1/responses": 32}
    assert len({record.response_id for record in caller.provider.requests}) == 32


def test_gates_are_found_by_name() -> None:
    """Every hold of a script, however deep, is found by its name; an unknown name is an error."""
    names = ["a", "b", "c", "d"]
    entries = [
        hold(name="a"),
        delay(0, hold(name="b")),
        forever(agent(hold(name="c"), final=hold(hold(name="d"), name="e"))),
    ]
    provider = SimulatedProvider(entries)
    assert [provider.gate(name).name for name in names] == names
    assert isinstance(provider.gate("e"), Gate)
    with pytest.raises(ConfigurationError, match="no hold named 'z'"):
        provider.gate("z")


def test_waiting_for_what_does_not_happen_ends() -> None:
    """Waiting for a gate has an end of its own, for threads and for asyncio."""
    held = hold()
    assert not held.wait_entered(0.01)
    assert not held.wait_abandoned(0.01)
    assert not asyncio.run(held.wait_entered_async(0.01))
