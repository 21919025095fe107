"""Cases about what a budget admits, and how it is settled."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from memoflow import (
    Budget,
    BudgetDenied,
    BudgetNotConfigured,
    BudgetTooSmall,
    InvalidRequest,
    LedgerUnavailable,
    ReservationConflict,
    tool,
)
from memoflow.ledger.invocations import SettleInvocation
from memoflow.testing import SimulatedProvider, call, calls, text, usage
from tests.field._faces import CHAT
from tests.field.conftest import Field, starting
from tests.ledger._notes import Line


def test_case_31_a_missing_budget_is_a_refusal(each: Field) -> None:
    """An account that does not exist refuses, before anything is sent. (The race is in tests/races.)"""
    played = each.play([text("never")], account="nobody")
    assert isinstance(played.error, BudgetNotConfigured)
    assert played.wire == 0


@pytest.mark.parametrize("where", ["case", pytest.param("on_postgres", marks=pytest.mark.postgres)])
@pytest.mark.parametrize("period", ["none", "hour"], ids=["used", "first use"])
def test_case_31_reservations_at_once(request: pytest.FixtureRequest, where: str, period: str) -> None:
    """Of eight reservations of 60 at once on a budget of 100, one is admitted; of its first use too."""
    case: Field = request.getfixturevalue(where)
    case.runtime.budgets.put("small", Budget(total_tokens=100), period=period)
    ready = threading.Barrier(8)
    denied: list[BudgetDenied] = []
    held: list[int] = []

    @case.runtime.activity(version="v1", budget="small")
    def work(number: int) -> None:
        fence = case.runtime.current().record.fence
        ready.wait(20)
        asked = starting(fence, ("small",), 60)
        try:
            case.runtime.commit(asked)
        except BudgetDenied as error:
            denied.append(error)
            ready.wait(20)
            return
        ready.wait(20)
        held.append(case.runtime.budgets.show("small").held.total_tokens or 0)
        case.runtime.commit(SettleInvocation(fence, asked.id, "FAILED", "release"))

    def run(number: int) -> None:
        work.run(number, run_id=f"r{number}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(denied) == 7
    assert held == [60]


def test_case_33_a_reservation_that_cannot_be_written(each: Field) -> None:
    """Nothing is sent, and nothing is held afterwards."""
    provider = SimulatedProvider([text("never")])
    llm = each.face.over(provider)
    each.runtime.ledger.writer._patience = 0.0
    line = Line(each.runtime.ledger.database)

    @each.runtime.activity(version="v1", budget="acme")
    def work() -> None:
        line.down = True
        try:
            with pytest.raises(LedgerUnavailable):
                llm.run(each.face.asking(), budget=Budget(total_tokens=4_000))
        finally:
            line.down = False

    work.run()
    assert provider.requests == []
    assert each.invocations == []


def test_case_33_a_settlement_that_is_cut(each: Field, stream: bool) -> None:
    """Lost, or durable without its reply, or in conflict: it is written once, and nothing is sent again."""
    line = Line(each.runtime.ledger.database)
    failures = [line.commit_lost, line.reply_lost, line.commit_refused]
    left = iter(failures)

    def answer(_: Any) -> Any:
        line.commits = [next(left)]
        return text("ok", usage=usage(10, 5))

    for _ in failures:
        played = each.play(SimulatedProvider(answer), stream=stream)
        assert line.commits == []
        assert (played.text, played.wire) == ("ok", 1)
    assert [item.reservation_state for item in each.invocations] == ["SETTLED"] * 3
    assert (each.account.settled.total_tokens, each.account.settled.model_calls) == (45, 3)
    assert each.account.held.total_tokens == 0


def test_case_33_a_reservation_whose_reply_is_lost(each: Field) -> None:
    """It is durable and known by its id: it is not taken a second time."""
    line = Line(each.runtime.ledger.database)

    @tool(version="v1", effect="at_most_once")
    def cut() -> str:
        """Cut what is written next: the result of this, and the reservation of the round after it."""
        line.commits = [line.reply_lost, line.reply_lost]
        return "cut"

    played = each.play([calls(call("cut")), text("ok")], [cut])
    assert line.commits == []
    assert played.text == "ok"
    assert each.account.settled.model_calls == 2
    assert [effect.state for effect in each.effects] == ["DONE"]


def test_case_33_a_repeated_settlement(each: Field) -> None:
    """Settling again in the same way is a no-op, in another way a conflict; the balance moves once."""
    seen: dict[str, Any] = {}
    llm = each.face.over(SimulatedProvider([text("ok", usage=usage(10, 5))]))

    @each.runtime.activity(version="v1", budget="acme")
    def work() -> None:
        result = llm.run(each.face.asking(), budget=Budget(total_tokens=4_000))
        fence = each.runtime.current().record.fence
        actual = each.invocations[0].actual
        assert actual is not None
        again = SettleInvocation(fence, result.invocations[0].id, "SUCCEEDED", "settle", actual=actual)
        each.runtime.commit(again)
        other = SettleInvocation(fence, result.invocations[0].id, "FAILED", "release")
        with pytest.raises(ReservationConflict) as conflict:
            each.runtime.commit(other)
        seen["conflict"] = conflict.value

    work.run()
    assert (seen["conflict"].state, seen["conflict"].asked) == ("SETTLED", "RELEASED")
    assert each.account.settled.total_tokens == 15


def test_case_34_more_was_used_than_reserved(each: Field, stream: bool) -> None:
    """The true figure is settled, the answer returned, and the next call refused."""
    each.runtime.budgets.put("acme", Budget(total_tokens=1_000))
    over = each.play(
        [text("ok", usage=usage(400, 1_000, reasoning=900), honour_cap=False)],
        budget=Budget(total_tokens=1_000),
        stream=stream,
    )
    assert over.text == "ok"
    assert each.account.settled.total_tokens == 1_400
    assert each.account.over_limit == ("total_tokens",)
    refused = each.play([text("never")], budget=Budget(total_tokens=500), stream=stream)
    assert isinstance(refused.error, BudgetDenied)
    assert (refused.error.reason, refused.error.fits, refused.wire) == ("over_limit", 0, 0)


def test_case_34_cached_input_counts(each: Field, stream: bool) -> None:
    """Input that came from a cache or went to one is input, whichever way a provider reports it."""
    reported = usage(1_000, 10, cached=700, cache_write=200)
    played = each.play([text("ok", usage=reported)], stream=stream)
    assert played.text == "ok"
    assert each.account.settled.total_tokens == 1_010
    (invocation,) = each.invocations
    assert (invocation.cached_input_tokens, invocation.cache_write_tokens) == (700, 200)


def test_case_34_a_cap_that_is_none(each: Field) -> None:
    """An output cap that bounds nothing is refused before anything is reserved."""
    for cap in (0, -1, "10", True, 1.5, 10**30):
        played = each.play([text("never")], request=each.face.asking(**{each.face.cap: cap}))
        assert isinstance(played.error, InvalidRequest | BudgetTooSmall), cap
        assert played.wire == 0
    assert each.invocations == []


def test_case_34_a_request_without_a_cap(each: Field, stream: bool) -> None:
    """It is given one that fits the reservation, so that the provider is told to stop where it ends."""
    played = each.play([text("ok")], stream=stream)
    sent = played.sent[0]
    caps = [sent[name] for name in (each.face.cap, "max_tokens") if name in sent]
    (invocation,) = each.invocations
    assert caps[:1] == [invocation.output_cap]
    assert invocation.input_measured is not None
    assert 0 < caps[0] <= 4_000 - invocation.input_measured


def test_case_34_a_cap_above_the_reservation(each: Field) -> None:
    """A cap that does not fit is refused, and the refusal says what would fit; it is never changed."""
    asked = each.face.asking(**{each.face.cap: 5_000})
    played = each.play([text("never")], request=asked)
    assert isinstance(played.error, BudgetTooSmall)
    assert 0 < played.error.output_cap_fits < 4_000
    fitting = each.face.asking(**{each.face.cap: played.error.output_cap_fits})
    fits = each.play([text("ok")], request=fitting)
    assert fits.error is None
    assert fits.sent[0][each.face.cap] == played.error.output_cap_fits


def test_case_34_several_choices_share_the_reservation(case: Field, stream: bool) -> None:
    """Each is generated up to the cap, so that all of them together fit what is reserved."""
    asked = CHAT.asking(n=3)
    played = case.play([text("ok")], request=asked, stream=stream, face=CHAT)
    assert played.error is None
    (invocation,) = case.invocations
    assert invocation.output_cap is not None
    assert invocation.input_measured is not None
    assert 3 * invocation.output_cap + invocation.input_measured <= 4_000
    capped = CHAT.asking(n=3, max_completion_tokens=2_000)
    refused = case.play([text("never")], request=capped, stream=stream, face=CHAT)
    assert isinstance(refused.error, BudgetTooSmall)
