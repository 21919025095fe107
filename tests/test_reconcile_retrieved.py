"""What a retrieved reply brings beside its price, and asking for it with an async client."""

from __future__ import annotations

import asyncio
import threading

import pytest

from memoflow import Runtime
from memoflow.ledger.queries import EffectInfo, Filter, list_effects
from memoflow.openai import AsyncOpenAIResponses
from memoflow.testing import failed, items, message, stream_ends_early, text, web_search
from tests.test_reconcile import World, rt

__all__ = ["rt"]


def effects(rt: Runtime) -> list[EffectInfo]:
    """All effects, in the order of their items."""
    found = rt.ledger.database.read(lambda c: list_effects(c, rt.namespace, Filter(limit=100)))
    return sorted(found.items, key=lambda effect: -effect.ordinal)


def test_what_the_provider_ran_is_recorded_as_in_any_other_reply(rt: Runtime) -> None:
    """A reply that arrived and the same one that was retrieved leave the same rows, once."""
    reply = items([web_search(), message("Because.")])
    world = World(rt, stream_ends_early(reply), store_interrupted=True)
    id = world.lose()
    assert effects(rt) == []
    (attempted,) = rt.reconcile.auto(world.llm.retrieve)
    assert attempted.left is None
    assert rt.reconcile.auto(world.llm.retrieve) == ()
    (effect,) = effects(rt)
    assert (effect.invocation_id, effect.ordinal, effect.tool_name) == (id, -1, "web_search_call")
    assert (effect.state, effect.kind, effect.attempt) == ("PROVIDER_SIDE", "hosted", 1)
    assert world.ask() == "Because."
    assert len(effects(rt)) == 1


def test_an_async_client_is_asked_on_its_own_loop(rt: Runtime) -> None:
    """And the event loop is never the thread that reads or decides."""
    world = World(rt, stream_ends_early(text("Because.")), store_interrupted=True)
    id, deciding = world.lose(), rt.reconcile.auto
    asked: list[threading.Thread] = []

    async def decide() -> str | None:
        async with world.provider.async_client() as client:
            llm = AsyncOpenAIResponses(client)

            async def retrieve(response_id: str) -> bytes | None:
                asked.append(threading.current_thread())
                return await llm.retrieve(response_id)

            (attempted,) = await rt.reconcile.aauto(retrieve, llm.codec)
            return attempted.invocation_id if attempted.decision is not None else attempted.left

    with pytest.MonkeyPatch.context() as patched:
        threads: list[threading.Thread] = []
        patched.setattr(
            rt.reconcile,
            "auto",
            lambda *given: (threads.append(threading.current_thread()), deciding(*given))[1],
        )
        assert asyncio.run(decide()) == id
    assert asked == [threading.current_thread()]
    assert asked != threads
    assert world.ask() == "Because."


def test_a_cancelled_question_ends_the_asking(rt: Runtime) -> None:
    """What was not asked for stays in the queue."""
    world = World(rt, stream_ends_early(text("a")), stream_ends_early(failed()), store_interrupted=True)
    world.lose()
    world.lose()
    asked: list[str] = []

    async def decide() -> None:
        waits, started = asyncio.Event(), asyncio.Event()

        async def retrieve(response_id: str) -> bytes | None:
            asked.append(response_id)
            started.set()
            await waits.wait()
            return None

        task = asyncio.create_task(rt.reconcile.aauto(retrieve))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        waits.set()

    asyncio.run(decide())
    assert len(asked) == 1
    assert len(rt.reconcile.list().invocations) == 2
