"""The outcome table, row by row: what is recorded, what is charged, what is raised, what happens next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from memoflow.budget import Amounts
from memoflow.testing import text, usage
from tests.turn._asks import Ask, run, stream
from tests.turn._outcomes import OUTCOMES, Expected, Outcome
from tests.turn._worlds import MODES, Got, MakeWorld, World

NOTHING = Amounts()
KINDS: dict[str, Callable[..., Ask]] = {"whole": run, "streamed": stream}


def cases() -> Iterator[Any]:
    """Every row with a whole and a streamed reply on SQLite, and with one of them by turns on PostgreSQL."""
    for number, name in enumerate(OUTCOMES):
        for kind in KINDS:
            yield pytest.param("sqlite", name, kind, id=f"{name}-{kind}-sqlite")
        kind = list(KINDS)[number % 2]
        marks = pytest.mark.postgres
        yield pytest.param("postgresql", name, kind, id=f"{name}-{kind}-postgresql", marks=marks)


@pytest.mark.parametrize(("ledger", "name", "kind"), list(cases()), indirect=["ledger"])
def test_an_outcome_is_recorded_charged_and_told_as_the_table_says(
    make_world: MakeWorld, name: str, kind: str
) -> None:
    """State, reservation, reason, balances and exception of a row, then a retry: sync and async alike."""
    rows = [_played(make_world(mode, *_script(name)), OUTCOMES[name], kind) for mode in MODES]
    assert rows[0] == rows[1]


def _script(name: str) -> list[Any]:
    return [OUTCOMES[name].reply(), text("Again.", usage=usage(20, 6))]


def _played(w: World, row: Outcome, kind: str) -> dict[str, list[dict[str, Any]]]:
    expected: Expected = getattr(row, kind)
    ask = KINDS[kind](**row.options)
    _check_raised(w, w.ask(ask), expected)
    _check_recorded(w, expected)
    _check_charged(w, expected)
    _check_next(w, w.ask(ask), expected)
    return w.snapshot()


def _check_raised(w: World, got: Got, expected: Expected) -> None:
    if expected.error is None:
        assert got.result.finish_reason == expected.finish
        return
    kind, told = expected.error
    error = got.raised(kind)
    assert {name: getattr(error, name) for name in told} == told
    assert w.invocation.id in (getattr(error, "invocation_id", None), getattr(error, "id", None))


def _check_recorded(w: World, expected: Expected) -> None:
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


def _check_charged(w: World, expected: Expected) -> None:
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
        _check_charged(w, expected)
        return
    assert again.result.response.output_text == "Again."
    first, second = w.invocations()
    assert (first.attempt, second.attempt, second.state) == (1, 2, "SUCCEEDED")
    assert first.state == expected.state
    before = expected.tokens or (0, 0)
    calls_before = expected.reservation == "SETTLED"
    assert settled == Amounts(26 + sum(before), 20 + before[0], 6 + before[1], model_calls=1 + calls_before)
    assert unknown == (first.reserved if expected.reservation == "RECONCILE" else NOTHING)
