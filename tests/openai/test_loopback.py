"""The same rules over sockets: the simulated provider on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

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
