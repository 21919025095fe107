"""The same rules over sockets: the simulated provider on loopback, and a provider nobody here wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from llmock.scenarios import Delay, Fail, Match, Reply, StreamFault, ToolCall, ToolFault
from llmock.testing import LLMockServer

from memoflow import OutcomeUnknown, ProviderNotReached, ProviderRejected
from memoflow.budget import Amounts
from memoflow.testing import (
    SimulatedProvider,
    call,
    calls,
    closed_before_reply,
    hold,
    refused_url,
    reset_before_reply,
    reset_mid_body,
    status,
    stream_ends_early,
    text,
    truncated_body,
    usage,
)
from tests.turn._asks import LEAVE, loop, run, stream
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld, World

KINDS = {"whole": run, "streamed": stream}
SOON = 0.2  # seconds until a limit is reached that is to be reached


def at(base_url: str) -> Callable[[Any], Any]:
    """Makes clients of a server. No certificates: loading them takes longer than most tests."""

    def connect(kind: Any) -> Any:
        http = httpx2.AsyncClient if kind.__name__.startswith("Async") else httpx2.Client
        return kind(api_key="sk-test", base_url=base_url, http_client=http(verify=False))

    return connect


Serve = Callable[..., World]


@pytest.fixture
def served(world: MakeWorld) -> Iterator[Serve]:
    """Makes worlds whose provider is served on loopback."""
    open_servers: list[Any] = []

    def make(*script: Any) -> World:
        provider = SimulatedProvider(script)
        server = provider.serve()
        open_servers.append(server)
        return world(provider=provider, connect=at(server.__enter__()))

    yield make
    for server in open_servers:
        server.__exit__(None, None, None)


def state(w: World) -> tuple[str, str, str | None]:
    """State and reason of the only invocation and of its reservation."""
    found = w.invocation
    return found.state, found.reservation_state, found.reason


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_over_sockets(served: Serve, kind: str) -> None:
    """Settled exactly, and restored by the next attempt."""
    w = served(text("Hello.", usage=usage(10, 5)))
    assert w.ask(KINDS[kind]()).result.response.output_text == "Hello."
    assert w.ask(KINDS[kind]()).result.restored
    assert w.balance() == (Amounts(15, 10, 5, 1), Amounts(), Amounts())


@pytest.mark.parametrize("ask", [loop, stream])
def test_a_tool_loop_over_sockets(served: Serve, ask: Any) -> None:
    """Every round is a request of its own."""
    bench = Bench()
    w = served(calls(call("f", {"n": 1}), call("f", {"n": 2})), text("Done."))
    assert w.ask(ask(bench.make("f"))).result.response.output_text == "Done."
    assert (w.sent, len(bench.ran)) == (2, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (reset_before_reply, "CONNECTION_RESET"),
        (closed_before_reply, "CONNECTION_CLOSED"),
        (reset_mid_body, None),
        (truncated_body, "CONNECTION_CLOSED"),
        (stream_ends_early, None),
    ],
)
def test_a_connection_that_breaks_after_the_request_is_unknown(
    served: Serve, fault: Any, reason: str | None, kind: str
) -> None:
    """Whatever the socket says then, the request had been sent; it is sent once."""
    w = served(fault())
    w.ask(KINDS[kind]()).raised(OutcomeUnknown)
    assert state(w)[:2] == ("OUTCOME_UNKNOWN", "RECONCILE")
    assert reason in (None, w.invocation.reason)
    assert (w.sent, w.balance()[2]) == (1, w.invocation.reserved)


@pytest.mark.parametrize("kind", KINDS)
def test_a_status_over_sockets(served: Serve, kind: str) -> None:
    """A definite refusal is one, once."""
    w = served(status(429, retry_after=3))
    assert w.ask(KINDS[kind]()).raised(ProviderRejected).retry_after == 3.0
    assert w.sent == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_connection_is_released(world: MakeWorld, kind: str) -> None:
    """Nobody listens: nothing was sent, and nothing is held."""
    with refused_url() as url:
        w = world(connect=at(url))
        assert w.ask(KINDS[kind]()).raised(ProviderNotReached).cause == "ConnectError"
    assert state(w) == ("FAILED", "RELEASED", "PROVIDER_CALL_NOT_STARTED")


def test_a_name_that_does_not_resolve_is_released(world: MakeWorld) -> None:
    """Names come before connections."""
    w = world(connect=at("http://nowhere.invalid/v1"))
    w.ask(run()).raised(ProviderNotReached)
    assert state(w) == ("FAILED", "RELEASED", "PROVIDER_CALL_NOT_STARTED")


@pytest.mark.parametrize("kind", KINDS)
def test_a_silent_server_is_left_at_the_deadline(served: Serve, kind: str) -> None:
    """What came of the request is not known, and nobody waits for it any more."""
    held = hold(text("late"), after=2 if kind == "streamed" else None)
    w = served(held)
    assert w.ask(KINDS[kind](timeout=SOON)).raised(OutcomeUnknown).reason == "DEADLINE"
    held.release()
    assert state(w) == ("OUTCOME_UNKNOWN", "RECONCILE", "DEADLINE")


def test_a_stream_that_is_left_is_closed(served: Serve) -> None:
    """The provider notices that nobody reads on."""
    held = hold(text("late"), after=2)
    w = served(held)
    w.ask(stream(watch=lambda event: LEAVE))
    (record,) = w.provider.requests
    assert record.wait_ended()
    assert record.client_gone
    assert state(w) == ("OUTCOME_UNKNOWN", "RECONCILE", "ABANDONED")


# A provider nobody here wrote


@pytest.fixture(scope="module")
def llmock_server() -> Iterator[LLMockServer]:
    """A server of llmock on loopback."""
    with LLMockServer() as server:
        yield server


@pytest.fixture
def llmock(llmock_server: LLMockServer) -> LLMockServer:
    """That server without scenarios and records."""
    llmock_server.state.scenarios.clear()
    llmock_server.state.journal.clear()
    return llmock_server


def foreign(world: MakeWorld, server: LLMockServer, *behaviours: Any) -> World:
    """A world whose provider is llmock."""
    for behaviour in behaviours:
        server.state.scenarios.add(behaviour)
    return world(connect=at(server.base_url("openai")))


def seen(server: LLMockServer) -> list[Any]:
    """What the server has served."""
    return list(server.state.journal.records(wait=10))


@pytest.mark.parametrize("kind", KINDS)
def test_llmock_replies(world: MakeWorld, llmock: LLMockServer, kind: str) -> None:
    """Its estimate of the usage is settled as it reports it, and the reply is restored."""
    w = foreign(world, llmock, Reply(text="Hello from elsewhere."))
    got = w.ask(KINDS[kind]()).result
    assert got.response.output_text == "Hello from elsewhere."
    found = w.invocation
    assert found.actual is not None
    assert (found.state, found.actual.total_tokens) == ("SUCCEEDED", got.response.usage.total_tokens)  # type: ignore[union-attr]
    assert w.ask(KINDS[kind]()).result.restored
    assert len(seen(llmock)) == 1


@pytest.mark.parametrize("ask", [loop, stream])
def test_llmock_asks_for_tools(world: MakeWorld, llmock: LLMockServer, ask: Any) -> None:
    """A whole loop against a server that was written for other clients."""
    bench = Bench()
    asked = Reply(tool_calls=(ToolCall("f", {"n": 1}), ToolCall("f", {"n": 2})))
    w = foreign(world, llmock, asked, Reply(text="Done."))
    assert w.ask(ask(bench.make("f"))).result.response.output_text == "Done."
    assert sorted(n for _, n in bench.ran) == [1, 2]
    assert [record.sdk_retry_count for record in seen(llmock)] == [0, 0]
    given = seen(llmock)[1].body["input"]
    assert [json.loads(item["output"])["n"] for item in given if "output" in item] == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("code", "rejected"), [(400, True), (401, True), (429, True), (500, False), (529, False)]
)
def test_llmock_refuses(world: MakeWorld, llmock: LLMockServer, code: int, rejected: bool, kind: str) -> None:
    """The same rows of the outcome table, by statuses that another server sends; never retried by the SDK."""
    w = foreign(world, llmock, Fail(code, retry_after=2 if code == 429 else None))
    error = w.ask(KINDS[kind]()).error
    assert type(error) is (ProviderRejected if rejected else OutcomeUnknown)
    if code == 429:
        assert isinstance(error, ProviderRejected)
        assert (error.retry_after, error.retryable) == (2.0, True)
    expected = ("FAILED", "SETTLED") if rejected else ("OUTCOME_UNKNOWN", "RECONCILE")
    assert state(w)[:2] == expected
    assert [(record.status, record.sdk_retry_count) for record in seen(llmock)] == [(code, 0)]


@pytest.mark.parametrize("fault", ["disconnect", "truncate", "malformed"])
def test_llmock_breaks_a_stream(world: MakeWorld, llmock: LLMockServer, fault: Any) -> None:
    """A dropped, an early or a corrupt stream is unknown; its reply's id is kept; a retry asks again."""
    w = foreign(world, llmock, StreamFault(fault, after_chunks=3, match=Match(stream=True)))
    w.ask(stream()).raised(OutcomeUnknown)
    assert state(w)[:2] == ("OUTCOME_UNKNOWN", "RECONCILE")
    assert w.invocation.retrievable
    assert w.ask(stream()).error is None
    assert len(seen(llmock)) == 2


def test_llmock_breaks_a_stream_with_calls(world: MakeWorld, llmock: LLMockServer) -> None:
    """Calls that were seen before the break do not run."""
    bench = Bench()
    asked = Reply(tool_calls=(ToolCall("f", {"n": 1}),))
    w = foreign(world, llmock, asked, StreamFault("truncate", after_chunks=6, match=Match(stream=True)))
    w.ask(stream(bench.make("f"))).raised(OutcomeUnknown)
    assert (bench.ran, w.effects()) == ([], [])


@pytest.mark.parametrize("kind", KINDS)
def test_llmock_is_slow(world: MakeWorld, llmock: LLMockServer, kind: str) -> None:
    """A reply that comes after the deadline is not waited for."""
    w = foreign(world, llmock, Delay(2.0))
    assert w.ask(KINDS[kind](timeout=SOON)).raised(OutcomeUnknown).reason == "DEADLINE"
    assert state(w) == ("OUTCOME_UNKNOWN", "RECONCILE", "DEADLINE")


@pytest.mark.parametrize(
    ("fault", "code"), [("malformed_arguments", "INVALID_ARGUMENTS"), ("unknown_tool", "UNKNOWN_TOOL")]
)
@pytest.mark.parametrize("ask", [loop, stream])
def test_llmock_calls_badly(world: MakeWorld, llmock: LLMockServer, ask: Any, fault: Any, code: str) -> None:
    """The model is told, nothing runs, and the loop goes on."""
    bench = Bench()
    w = foreign(world, llmock, ToolFault(fault), Reply(text="Done."))
    result = w.ask(ask(bench.make("f"))).result
    assert [(r.state, json.loads(r.output)["error"]["code"]) for r in result.tool_results] == [
        ("REFUSED", code)
    ]
    assert bench.ran == []
