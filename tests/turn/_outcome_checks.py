"""Plays a row of the outcome table and checks what the table says about it, and what a retry then does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memoflow.budget import Amounts
from memoflow.testing import text, usage
from tests.turn._asks import Ask, run, stream
from tests.turn._outcomes import Expected, Outcome
from tests.turn._worlds import Got, World

__all__ = ["KINDS", "check_charged", "check_raised", "check_recorded", "played"]

NOTHING = Amounts()
KINDS: dict[str, Callable[..., Ask]] = {"whole": run, "streamed": stream}


def played(make: Callable[..., World], row: Outcome, kind: str) -> dict[str, list[dict[str, Any]]]:
    """Play a row in a world that is made with its script; returns the rows of the ledger."""
    w = make(row.reply(), text("Again.", usage=usage(20, 6)))
    expected: Expected = getattr(row, kind)
    ask = KINDS[kind](**row.options)
    check_raised(w, w.ask(ask), expected)
    check_recorded(w, expected)
    check_charged(w, expected)
    _check_next(w, w.ask(ask), expected)
    return w.snapshot()


def check_raised(w: World, got: Got, expected: Expected) -> None:
    """The caller is told what the row says, with the id of the invocation."""
    if expected.error is None:
        assert got.result.finish_reason == expected.finish
        return
    kind, told = expected.error
    error = got.raised(kind)
    assert {name: getattr(error, name) for name in told} == told
    assert w.invocation.id in (getattr(error, "invocation_id", None), getattr(error, "id", None))


def check_recorded(w: World, expected: Expected) -> None:
    """The invocation and its reservation are as the row says."""
    found = w.invocation
    assert (found.state, found.reservation_state, found.reservation_reason) == (
        expected.state,
        expected.reservation,
        expected.reason,
    )
    assert (found.reason, found.finish_reason) == (expected.reason, expected.finish)
    assert (found.http_status, found.error_code) == (expected.http, expected.code)
    assert (found.input_tokens, found.output_tokens) == (expected.tokens or (None, None))
    assert (found.resolved_at is None) == (expected.reservation == "RECONCILE")


def check_charged(w: World, expected: Expected) -> None:
    """The accounts hold or have settled what the row says, and nothing else."""
    reserved = w.invocation.reserved
    assert reserved.total_tokens == 20_000
    settled, unknown = NOTHING, NOTHING
    if expected.reservation == "RECONCILE":
        unknown = reserved
    elif expected.reservation == "SETTLED":
        tokens = expected.tokens or (0, 0)
        settled = Amounts(sum(tokens), *tokens, model_calls=1)
    for path in ("acme", "acme/support"):
        assert w.balance(path) == (settled, NOTHING, unknown)


def _check_next(w: World, again: Got, expected: Expected) -> None:
    """A reply that is recorded is restored and costs nothing; everything else is asked for again."""
    settled, _, unknown = w.balance()
    if not expected.again:
        assert (again.result.restored, w.sent) == (True, 1)
        check_charged(w, expected)
        return
    assert w.text(again) == "Again."
    first, second = w.invocations()
    assert (first.attempt, second.attempt, second.state) == (1, 2, "SUCCEEDED")
    assert first.state == expected.state
    before = expected.tokens or (0, 0)
    calls_before = expected.reservation == "SETTLED"
    assert settled == Amounts(26 + sum(before), 20 + before[0], 6 + before[1], model_calls=1 + calls_before)
    assert unknown == (first.reserved if expected.reservation == "RECONCILE" else NOTHING)
