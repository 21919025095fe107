"""A record is never restored as something else: another request, other executors, another version."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from memoflow import (
    Budget,
    InvalidRequest,
    OutcomeUnknown,
    ReplayMismatch,
    ToolVersionMismatch,
)
from memoflow.providers.openai_responses import OpenAIResponsesCodec
from memoflow.testing import (
    Held,
    call,
    calls,
    hold,
    read_timeout,
    status,
    text,
)
from tests.turn._asks import REQUEST, loop, run, stream
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld, World

KINDS = {"whole": run, "streamed": stream}


# Mismatches


@pytest.mark.parametrize(
    "changed", [{"input": "Bye"}, {"model": "gpt-other"}, {"temperature": 0}, {"max_output_tokens": 30}]
)
@pytest.mark.parametrize("kind", KINDS)
def test_another_request_under_a_key_is_refused(world: MakeWorld, kind: str, changed: dict[str, Any]) -> None:
    """Named by component and digests; nothing is reserved or sent, in the same attempt or later."""
    w = world(text("Hello."))
    error = w.ask(KINDS[kind](), KINDS[kind](request=changed)).raised(ReplayMismatch)
    assert (error.replay_key, error.component) == ("k", "request")
    assert error.recorded != error.given
    assert error.recorded.startswith(error.given[:7])
    before = w.balance()
    w.ask(KINDS[kind](request=changed)).raised(ReplayMismatch)
    assert (w.sent, w.balance(), len(w.invocations())) == (1, before, 1)
    assert w.ask(KINDS[kind]()).result.restored


def test_other_executors_under_a_key_are_refused(world: MakeWorld) -> None:
    """Executors are known by namespace, name and version; their order does not matter."""
    own = {"tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]}
    w, bench = world(text("Hello.")), Bench()
    f, g = bench.make("f"), bench.make("g")
    w.ask(loop(f, g, request=own))
    for tools in (
        [f],
        [f, g, bench.make("h")],
        [f, bench.make("g", version="v2")],
        [f, bench.make("g", namespace="x")],
    ):
        assert w.ask(loop(*tools, request=own)).raised(ReplayMismatch).component == "executors"
    assert w.ask(loop(g, f, request=own)).result.restored
    assert w.sent == 1


def test_another_api_under_a_key_is_refused(world: MakeWorld) -> None:
    """A key stands for a request to one API of one provider."""

    class OtherCodec(OpenAIResponsesCodec):
        api = "other"

    w = world(text("Hello."))
    seen: list[Any] = []

    def ask(llm: Any) -> Any:
        if w.sent:
            llm._codec = OtherCodec()
        seen.append(llm)
        return llm.run({**REQUEST}, budget=Budget(total_tokens=2_000), replay_key="k")

    def twice(llm: Any) -> Any:
        return both(llm, ask)

    with pytest.raises(ReplayMismatch) as error:
        w.within(twice)
    assert error.value.component == "api"
    assert (error.value.recorded, error.value.given) == ("openai/responses", "openai/other")
    assert w.sent == 1


def both(llm: Any, ask: Any) -> Any:
    """Ask twice; async if the first answer has to be awaited."""
    first = ask(llm)
    if not asyncio.iscoroutine(first):
        ask(llm)
        return None

    async def work() -> None:
        await first
        await ask(llm)

    return work()


def test_another_request_under_a_key_is_refused_while_the_first_is_unfinished(world: MakeWorld) -> None:
    """The mismatch goes before everything else, also when the first request's outcome is unknown."""
    w = world(read_timeout())
    w.ask(run()).raised(OutcomeUnknown)
    w.ask(run("Bye", on_unknown="block")).raised(ReplayMismatch)
    assert w.sent == 1


def at_once(w: World, held: Held, first: dict[str, Any], second: dict[str, Any]) -> list[Any]:
    """Two calls with one key at the same time: what each brought, or raised. The first is held meanwhile."""
    given = {"budget": Budget(total_tokens=2_000), "replay_key": "k"}

    def blocking(llm: Any) -> None:
        found = [None, None]

        def work() -> None:
            try:
                found[0] = llm.run(first, **given)
            except Exception as error:
                found[0] = error

        thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
        thread.start()
        assert held.wait_entered()
        try:
            found[1] = llm.run(second, **given)
        except Exception as error:
            found[1] = error
        held.release()
        thread.join(10)
        seen.extend(found)

    async def together(llm: Any) -> None:
        task = asyncio.create_task(llm.run(first, **given))
        assert await held.wait_entered_async()
        other = (await asyncio.gather(llm.run(second, **given), return_exceptions=True))[0]
        held.release()
        seen.extend([await task, other])

    seen: list[Any] = []
    w.within(together if w.is_async else blocking)
    return seen


def test_one_key_at_a_time(world: MakeWorld) -> None:
    """A second call under the key while the first is on its way is refused; nothing is sent for it."""
    held = hold(text("Hello."))
    w = world(held)
    first, second = at_once(w, held, REQUEST, REQUEST)
    assert first.response.output_text == "Hello."
    assert type(second) is InvalidRequest
    assert "in use" in str(second)
    assert (w.sent, len(w.invocations())) == (1, 1)


def test_a_mismatch_goes_before_the_key_being_in_use(world: MakeWorld) -> None:
    """Another request under a key in use is a mismatch, which is final; waiting would not help."""
    held = hold(text("Hello."))
    w = world(held)
    first, second = at_once(w, held, REQUEST, {**REQUEST, "input": "Bye"})
    assert first.response.output_text == "Hello."
    assert (type(second), second.component) == (ReplayMismatch, "request")
    assert w.sent == 1


# Versions of tools


def test_an_unfinished_call_is_not_finished_by_another_version(world: MakeWorld) -> None:
    """It was recorded under v1: v2 is refused by name, v1 finishes it."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1}), call("g", {"n": 2})), text("Done."))
    w.ask(loop(bench.make("f"), bench.failing("g", ValueError(), effect="idempotent"))).raised(ValueError)
    tools = [bench.make("f"), bench.make("g", effect="idempotent", version="v2")]
    error = w.ask(loop(*tools)).raised(ToolVersionMismatch)
    assert (error.tool, error.recorded, error.registered) == ("g", "v1", "v2")
    done = w.ask(loop(bench.make("f"), bench.make("g", effect="idempotent"))).result
    assert [r.restored for r in done.tool_results] == [True, False]
    assert [name for name, _ in bench.ran] == ["f", "g", "g"]


def test_a_finished_call_is_not_restored_for_another_version(world: MakeWorld) -> None:
    """Nothing is unfinished, so it is the executors that differ."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), status(500))
    w.ask(loop(bench.make("f"))).raised(OutcomeUnknown)
    assert w.ask(loop(bench.make("f", version="v2"))).raised(ReplayMismatch).component == "executors"
    assert len(bench.ran) == 1
