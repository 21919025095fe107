"""A stream is read by one thread or task at a time."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from memoflow import Budget, ConfigurationError
from memoflow.testing import hold, text
from tests.turn._worlds import MakeWorld

GIVEN: dict[str, Any] = {"budget": Budget(total_tokens=2_000)}
REQUEST = {"model": "m", "input": "x"}


def test_a_stream_that_two_threads_read_refuses_the_second(make_world: MakeWorld) -> None:
    """In a sentence, whether it asks for an event or leaves the stream; the first one is not disturbed."""
    held = hold(text("Hello."), after=2)
    w = make_world("sync", held)
    seen: list[Any] = []

    def body(llm: Any) -> str:
        with llm.stream(REQUEST, **GIVEN) as streamed:
            reader = threading.Thread(target=lambda: seen.extend(streamed), daemon=True)
            reader.start()
            assert held.wait_entered()
            for another in (lambda: next(streamed), streamed.close):
                with pytest.raises(ConfigurationError, match="one thread or task"):
                    another()
            held.release()
            reader.join(10)
        return str(streamed.result.response.output_text)

    assert w.within(body) == "Hello."
    assert seen[-1].type == "response.completed"


def test_a_stream_that_two_tasks_read_refuses_the_second(make_world: MakeWorld) -> None:
    """The same for the async adapter."""
    held = hold(text("Hello."), after=2)
    w = make_world("async", held)

    async def body(llm: Any) -> str:
        async with llm.stream(REQUEST, **GIVEN) as streamed:

            async def read() -> list[Any]:
                return [event async for event in streamed]

            reader = asyncio.create_task(read())
            assert await asyncio.to_thread(held.wait_entered)
            for another in (lambda: anext(streamed), streamed.close):
                with pytest.raises(ConfigurationError, match="one thread or task"):
                    await another()
            held.release()
            assert (await reader)[-1].type == "response.completed"
        return str(streamed.result.response.output_text)

    assert w.within(body) == "Hello."
