"""Activities are tried again only after failures that are known to be safe, and waits are honoured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from memoflow import (
    Budget,
    BudgetDenied,
    ConfigurationError,
    OutcomeUnknown,
    ProviderFailed,
    ProviderNotReached,
    ProviderRejected,
    Retry,
)
from memoflow.testing import call, calls, connect_refused, failed, read_timeout, status, text
from tests.turn import _worlds
from tests.turn._activities import Counting, attempts, make, start
from tests.turn._asks import loop, run, stream
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld

ledger, make_world, mode, world = _worlds.ledger, _worlds.make_world, _worlds.mode, _worlds.world


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long would have been slept between attempts; nobody does."""
    slept: list[float] = []
    options = Retry.options

    def pause(seconds: float) -> _Over:
        slept.append(seconds)
        return _Over()

    monkeypatch.setattr(Retry, "options", lambda retry: {**options(retry), "sleep": pause})
    return slept


class _Over:
    """Can be awaited, and is over at once."""

    def __await__(self) -> Iterator[None]:
        return iter(())


def fixed(seconds: float, attempts: int = 3) -> Retry:
    """So many attempts, with the same pause between them."""
    return Retry(attempts=attempts, wait=lambda state: seconds)


SAFE = [
    (lambda: status(429), ProviderRejected),
    (connect_refused, ProviderNotReached),
    (lambda: failed("server_error"), ProviderFailed),
]
UNSAFE = [
    (lambda: status(400), ProviderRejected),
    (lambda: status(429, code="insufficient_quota"), ProviderRejected),
    (lambda: status(500), OutcomeUnknown),
    (read_timeout, OutcomeUnknown),
    (lambda: failed("invalid_prompt"), ProviderFailed),
    (lambda: failed("server_error", usage=None), ProviderFailed),
]


@pytest.mark.parametrize(("fault", "kind"), SAFE)
@pytest.mark.parametrize("ask", [run, stream])
def test_a_safe_failure_is_retried(
    world: MakeWorld, pauses: list[float], ask: Any, fault: Any, kind: type[Exception]
) -> None:
    """As a new attempt, with a new invocation and a new reservation."""
    w = world(fault(), fault(), text("Hello."))
    assert w.ask(ask(), retry=fixed(2.5), complete=True).value == 1
    assert [i.attempt for i in w.invocations()] == [1, 2, 3]
    assert [state for _, state, _ in attempts(w)] == ["FAILED", "FAILED", "COMPLETED"]
    assert attempts(w)[0][2] == kind.__name__
    assert pauses == [2.5, 2.5]


@pytest.mark.parametrize(("fault", "kind"), UNSAFE)
def test_a_failure_that_left_something_open_is_not_retried(
    world: MakeWorld, pauses: list[float], fault: Any, kind: type[Exception]
) -> None:
    """Nor is one that a retry cannot mend."""
    w = world(fault(), text("never"))
    w.ask(run(), retry=fixed(1)).raised(kind)
    assert (len(w.provider.requests), pauses, len(attempts(w))) == (1, [], 1)


def fails_once(bench: Bench, effect: Any) -> Any:
    """A tool whose own request is refused at first, for a while."""
    errors = [ProviderRejected(invocation_id="i", status=429, code=None, retry_after=None, retryable=True)]

    def does(n: int) -> int:
        if errors:
            raise errors.pop()
        return n

    return bench.make("f", does, effect=effect)


def test_a_safe_failure_of_a_tool_that_runs_once_is_not_retried(
    world: MakeWorld, pauses: list[float]
) -> None:
    """It left an effect open, which a further attempt would be refused for; and the exception says so."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), text("never"))
    error = w.ask(loop(fails_once(bench, "at_most_once")), retry=fixed(1)).raised(ProviderRejected)
    assert error.retryable is False
    assert (len(bench.ran), pauses, len(attempts(w))) == (1, [], 1)
    assert w.states() == [("OUTCOME_UNKNOWN", "TOOL_ERROR", 1)]


@pytest.mark.parametrize("effect", ["read_only", "idempotent"])
def test_a_safe_failure_of_a_tool_that_may_run_again_is_retried(
    world: MakeWorld, pauses: list[float], effect: Any
) -> None:
    """Nothing stands in the way of the next attempt."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), text("Done."))
    got = w.ask(loop(fails_once(bench, effect)), retry=fixed(1))
    assert got.result.response.output_text == "Done."
    assert (len(bench.ran), pauses, w.sent) == (2, [1], 2)


@pytest.mark.parametrize("error", [ValueError(), KeyError("x"), TimeoutError()])
def test_an_exception_of_the_activity_is_not_retried(
    world: MakeWorld, pauses: list[float], error: Exception
) -> None:
    """Nobody but its author knows whether that is safe."""
    w, body = world(), Counting(error)
    with pytest.raises(type(error)):
        start(w, make(w, lambda: body(), retry=fixed(1)))
    assert (body.calls, pauses) == (1, [])


def test_a_refused_budget_is_not_retried(world: MakeWorld, pauses: list[float]) -> None:
    """Waiting does not make it larger."""
    w = world(limits=Budget(total_tokens=5))
    w.ask(run(), retry=fixed(1)).raised(BudgetDenied)
    assert pauses == []


def test_the_last_failure_leaves_when_attempts_are_used_up(world: MakeWorld, pauses: list[float]) -> None:
    """As itself, not wrapped."""
    w = world(*[status(429)] * 5)
    assert w.ask(run(), retry=fixed(1, attempts=3)).raised(ProviderRejected).status == 429
    assert (w.sent, len(pauses)) == (3, 2)


@pytest.mark.parametrize(
    ("wait", "asked", "expected"), [(1.0, 300, 300.0), (400.0, 300, 400.0), (1.0, None, 1.0)]
)
def test_a_provider_that_asks_to_wait_is_waited_for(
    world: MakeWorld, pauses: list[float], wait: float, asked: int | None, expected: float
) -> None:
    """The longer of both pauses; the provider call itself never sleeps."""
    w = world(status(429, retry_after=asked), text("Hello."))
    assert w.ask(run(), retry=fixed(wait)).error is None
    assert pauses == [expected]


def test_a_retry_restores_what_was_done_before_the_failure(world: MakeWorld, pauses: list[float]) -> None:
    """The first call is not paid for again."""
    w = world(text("one"), status(429), text("two"))
    got = w.ask(run(replay_key="a"), run(replay_key="b"), retry=fixed(1))
    assert [r.restored for r in got.results] == [False, True, False]
    assert w.sent == 3


def test_usual_waits_grow_and_are_bounded(world: MakeWorld, pauses: list[float]) -> None:
    """Exponential with jitter, a minute at most."""
    w = world(*[status(429)] * 12)
    w.ask(run(), retry=Retry(attempts=12)).raised(ProviderRejected)
    assert len(pauses) == 11
    assert pauses[0] <= 2
    assert pauses[-1] == 60


@pytest.mark.parametrize("attempts_", [0, -1, True, 1.5, "3", None])
def test_attempts_are_at_least_one(attempts_: Any) -> None:
    """An activity that is never tried is none."""
    with pytest.raises(ConfigurationError):
        Retry(attempts=attempts_)
