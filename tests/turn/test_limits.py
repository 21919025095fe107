"""What accounts refuse, count and flag: figures, money, time, soft limits, several accounts at once."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from memoflow import (
    Budget,
    BudgetDenied,
    BudgetNotConfigured,
    BudgetTooSmall,
    BudgetUnbounded,
    InvalidBudget,
    Money,
    Price,
    PriceBook,
    PriceUnknown,
)
from memoflow.budget import Amounts
from memoflow.testing import call, calls, read_timeout, status, text, usage
from tests.turn._asks import BUDGET, LOOP, loop, run, stream
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld, World

KINDS = {"whole": run, "streamed": stream}
INPUT = 117
# Nano-units a token: input 1000, output 4000, cached input 100.
PRICES = {"gpt-test": Price("1.00", "4.00", "0.10")}


def priced(**models: Price) -> PriceBook:
    """A fresh price book; without arguments the usual one."""
    return PriceBook(models or PRICES)


def nothing_happened(w: World) -> bool:
    """Whether nothing was reserved and nobody was asked to generate."""
    return w.invocations() == [] and w.balance() == (Amounts(),) * 3 and w.sent == 0


# Refusals


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_has_all_figures(world: MakeWorld, kind: str) -> None:
    """What is settled, held and unknown, what was asked for, what would fit, and when the period ends."""
    w = world(text("a", usage=usage(10, 5)), read_timeout())
    w.rt.budgets.put("monthly", Budget(total_tokens=2_000), period="month")
    given = {"budget": Budget(total_tokens=900), "account": "monthly"}
    w.ask(run(replay_key="a", **given), KINDS[kind](replay_key="b", **given))
    error = w.ask(KINDS[kind](replay_key="c", budget=Budget(total_tokens=1_200), account="monthly")).raised(
        BudgetDenied
    )
    assert (error.account, error.dimension, error.reason) == ("monthly", "total_tokens", "limit")
    assert (error.limit, error.settled, error.held, error.unknown) == (2_000, 15, 0, 900)
    assert (error.requested, error.fits) == (1_200, 2_000 - 915)
    assert error.output_cap_fits == 2_000 - 915 - INPUT
    ends = error.resets_at
    assert isinstance(ends, datetime)
    assert (ends.day, ends.hour, ends.utcoffset() is not None) == (1, 0, True)
    assert w.sent == 2


def test_the_cap_that_a_refusal_names_fits(world: MakeWorld) -> None:
    """Asked for with that cap and a budget derived from it, the call goes."""
    w = world(text("Hello."), limits=Budget(total_tokens=1_000))
    fits = w.ask(run(budget=None, request={"max_output_tokens": 2_000})).raised(BudgetDenied).output_cap_fits
    w.ask(run(budget=None, request={"max_output_tokens": fits + 1})).raised(BudgetDenied)
    assert w.ask(run(budget=None, request={"max_output_tokens": fits})).error is None


@pytest.mark.parametrize(("room", "fits"), [(15, 0), (16, 16)])
def test_a_refusal_names_no_cap_that_the_provider_rejects(world: MakeWorld, room: int, fits: int) -> None:
    """Below the least that it takes no cap would fit."""
    w = world(limits=Budget(total_tokens=INPUT + room))
    ask = run(budget=None, request={"max_output_tokens": 2_000}, strict_input=True)
    assert w.ask(ask).raised(BudgetDenied).output_cap_fits == fits
    assert w.sent == 0


def test_the_cap_that_a_refusal_names_fits_every_account(world: MakeWorld) -> None:
    """One account refuses, and another one above it would take still less."""
    w = world(text("Hello."), limits=Budget(output_tokens=300))
    w.rt.budgets.put("acme/low", Budget(total_tokens=1_000))
    given = {"budget": None, "account": "acme/low"}
    fits = w.ask(run(request={"max_output_tokens": 2_000}, **given)).raised(BudgetDenied).output_cap_fits
    assert fits == 300
    assert w.ask(run(request={"max_output_tokens": fits}, **given)).error is None


@pytest.mark.parametrize(
    ("limits", "dimension"),
    [
        (Budget(model_calls=1), "model_calls"),
        (Budget(output_tokens=19_885), "output_tokens"),
        (Budget(input_tokens=INPUT), "input_tokens"),
    ],
)
def test_each_dimension_refuses(world: MakeWorld, limits: Budget, dimension: str) -> None:
    """The second call does not fit, by whichever dimension is limited."""
    w = world(text("a", usage=usage(10, 5)), limits=limits)
    error = w.ask(run(replay_key="a"), run(replay_key="b")).raised(BudgetDenied)
    assert (error.account, error.dimension) == ("acme", dimension)
    assert w.sent == 1


def test_tool_calls_are_reserved_and_settled(world: MakeWorld) -> None:
    """What a round may run is held with it; what did run is charged."""
    bench = Bench()
    w = world(
        calls(call("f", {"n": 1}), call("f", {"n": 2}), call("f", "no")),
        text("Done."),
        limits=Budget(tool_calls=12),
    )
    assert w.ask(loop(bench.make("f"), rounds=2, continuation=[Budget(total_tokens=5_000)])).error is None
    assert w.balance()[0].tool_calls == 2
    error = w.ask(
        loop(bench.make("f"), replay_key="b", budget=Budget(total_tokens=5_000, tool_calls=11))
    ).raised(BudgetDenied)
    assert (error.dimension, error.requested, error.settled) == ("tool_calls", 11, 2)


def test_a_rejection_counts_as_a_model_call(world: MakeWorld) -> None:
    """A loop of rejected requests is bounded by the call budget."""
    w = world(status(429), status(400), limits=Budget(model_calls=2))
    for _ in range(2):
        w.ask(run())
    assert w.ask(run()).raised(BudgetDenied).settled == 2
    assert w.sent == 2


@pytest.mark.parametrize("account", ["nowhere", "acme/nowhere"])
def test_a_missing_account_refuses(world: MakeWorld, account: str) -> None:
    """It is never "unlimited"."""
    w = world()
    assert w.ask(run(account=account)).raised(BudgetNotConfigured).account == account
    assert nothing_happened(w)


def test_an_activity_without_any_account_refuses(world: MakeWorld) -> None:
    """Nothing may be spent on nothing."""
    w = world(text("never"))
    w.ask(run(), budget=None).raised(BudgetNotConfigured)
    assert nothing_happened(w)


def test_a_closed_account_refuses_and_settles(world: MakeWorld) -> None:
    """New reservations are refused, also below it; the reason says so."""
    w = world(text("a"))
    w.rt.budgets.close("acme")
    error = w.ask(run()).raised(BudgetDenied)
    assert (error.account, error.reason) == ("acme", "closed")
    w.rt.budgets.reopen("acme")
    assert w.ask(run()).error is None


def test_actual_use_above_the_reservation_is_recorded_in_full(world: MakeWorld) -> None:
    """The reply is returned; the account is over its limit and refuses what is new, but restores."""
    limits = Budget(total_tokens=25_000)
    w = world(text("Hello.", usage=usage(20_000, 14_000), honour_cap=False), limits=limits)
    assert w.ask(run()).result.response.output_text == "Hello."
    assert w.balance()[0] == Amounts(34_000, 20_000, 14_000, 1)
    assert w.rt.budgets.show("acme").over_limit == ("total_tokens",)
    error = w.ask(run(replay_key="b", budget=Budget(total_tokens=500))).raised(BudgetDenied)
    assert (error.reason, error.fits, error.output_cap_fits) == ("over_limit", 0, 0)
    assert w.ask(run()).result.restored


def test_soft_limits_alert_and_let_pass(world: MakeWorld) -> None:
    """An alert with its figures is on the invocation's record; the call goes."""
    w = world(text("a", usage=usage(10, 5)), text("b"))
    w.rt.budgets.put("acme", Budget(total_tokens=100_000), soft=Budget(total_tokens=20_000, model_calls=1))
    first = w.ask(run(replay_key="a")).result.invocations[0]
    second = w.ask(run(replay_key="b")).result.invocations[0]
    assert first.alerts == ()
    assert [(a.account, a.dimension, a.limit, a.used) for a in second.alerts] == [
        ("acme", "total_tokens", 20_000, 20_015),
        ("acme", "model_calls", 1, 2),
    ]


# Money


@pytest.mark.parametrize("kind", KINDS)
def test_money_is_reserved_at_its_dearest_and_settled_exactly(world: MakeWorld, kind: str) -> None:
    """The hold is the most the call can cost; the settlement is what the tokens cost, cached ones too."""
    w = world(
        text("Hello.", usage=usage(1_000, 10, cached=400)),
        limits=Budget(cost=Money.of("1.00")),
        prices=priced(),
    )
    got = w.ask(KINDS[kind](budget=Budget(total_tokens=2_000)))
    assert w.invocation.reserved.cost == INPUT * 1_000 + (2_000 - INPUT) * 4_000
    exact = 600 * 1_000 + 400 * 100 + 10 * 4_000
    assert w.balance()[0].cost == w.invocation.cost == got.result.invocations[0].cost == exact
    assert w.invocation.price_version == w.rt.prices.version


@pytest.mark.parametrize("kind", KINDS)
def test_an_unpriced_model_is_refused_where_money_is_limited(world: MakeWorld, kind: str) -> None:
    """Before the call, naming the model and the account."""
    w = world(limits=Budget(cost=Money.of("1.00")), prices=priced(other=Price("1", "1")))
    error = w.ask(KINDS[kind]()).raised(PriceUnknown)
    assert (error.model, error.account) == ("gpt-test", "acme")
    assert nothing_happened(w)


def test_an_unpriced_model_is_refused_where_the_call_limits_money(world: MakeWorld) -> None:
    """Also if no account limits it; and goes where money matters to nobody."""
    w = world(text("Hello."))
    error = w.ask(run(budget=Budget(total_tokens=2_000, cost=Money.of("0.10")))).raised(PriceUnknown)
    assert (error.model, error.account) == ("gpt-test", None)
    assert nothing_happened(w)
    assert w.ask(run()).error is None
    assert w.invocation.cost is None


@pytest.mark.parametrize("cost", [None, Money.of("0.10")])
def test_an_audited_override_lets_an_unpriced_model_pass(world: MakeWorld, cost: Money | None) -> None:
    """It counts as costing nothing; the decision is on record with its actor and reason."""
    w = world(text("Hello.", usage=usage(10, 5)), limits=Budget(cost=Money.of("1.00")))
    decision = w.rt.budgets.allow_unpriced("gpt-test", actor="ops", reason="a free trial")
    assert (decision.kind, decision.target_id, decision.actor) == ("unpriced", "gpt-test", "ops")
    assert w.ask(run(budget=Budget(total_tokens=2_000, cost=cost))).error is None
    assert w.balance()[0] == Amounts(15, 10, 5, 1)


def test_money_of_another_currency_is_refused(world: MakeWorld) -> None:
    """Neither the call's money nor the account's is compared with a price in another currency."""
    w = world(limits=Budget(cost=Money.of("1.00", "EUR")), prices=priced())
    w.ask(run(budget=Budget(total_tokens=2_000, cost=Money.of("0.10", "EUR")))).raised(InvalidBudget)
    w.ask(run()).raised(InvalidBudget)
    assert nothing_happened(w)


def test_money_that_does_not_cover_the_request_is_too_small(world: MakeWorld) -> None:
    """The figures are nano-units, and the cap that would fit does."""
    w = world(text("Hello."), prices=priced())
    budget = Budget(cost=Money(500_000), total_tokens=20_000)
    error = w.ask(run(budget=budget, request={"max_output_tokens": 200})).raised(BudgetTooSmall)
    assert (error.dimension, error.reserved) == ("cost", 500_000)
    assert error.needed == INPUT * 1_000 + 200 * 4_000
    assert error.output_cap_fits == (500_000 - INPUT * 1_000) // 4_000
    assert nothing_happened(w)
    w.ask(run(budget=budget, request={"max_output_tokens": error.output_cap_fits + 1})).raised(BudgetTooSmall)
    assert w.ask(run(budget=budget, request={"max_output_tokens": error.output_cap_fits})).error is None


def test_reserved_money_caps_the_output(world: MakeWorld) -> None:
    """A budget is hard only if the provider is told to stop; money that is given says where."""
    w = world(text("Hello."), limits=Budget(cost=Money.of("1.00")), prices=priced())
    assert w.ask(run(budget=Budget(cost=Money(500_000)))).error is None
    assert w.provider.requests[0].json["max_output_tokens"] == (500_000 - INPUT * 1_000) // 4_000
    assert w.invocation.reserved.cost == 500_000


def test_a_call_without_a_bound_is_refused_where_money_is_limited(world: MakeWorld) -> None:
    """Without a cap the call could cost anything."""
    w = world(limits=Budget(cost=Money.of("1.00")), prices=priced())
    assert w.ask(run(budget=None)).raised(BudgetUnbounded).dimension == "cost"
    assert nothing_happened(w)


def test_money_runs_out(world: MakeWorld) -> None:
    """A hold that does not fit the account's money is refused with the figures and the cap that would fit."""
    w = world(
        text("a", usage=usage(100, 100)), text("b"), limits=Budget(cost=Money(8_000_000)), prices=priced()
    )
    given = Budget(total_tokens=2_000)
    error = w.ask(run(replay_key="a", budget=given), run(replay_key="b", budget=given)).raised(BudgetDenied)
    assert (error.dimension, error.limit, error.settled) == ("cost", 8_000_000, 500_000)
    assert error.requested == INPUT * 1_000 + (2_000 - INPUT) * 4_000
    fits = error.output_cap_fits
    assert fits == (7_500_000 - INPUT * 1_000) // 4_000
    asks = [run(replay_key="b", budget=None, request={"max_output_tokens": n}) for n in (fits + 1, fits)]
    w.ask(asks[0]).raised(BudgetDenied)
    assert w.ask(asks[1]).error is None


# Time


def test_limited_time_needs_a_limit_of_the_call(world: MakeWorld) -> None:
    """An account that limits provider time takes no call that may last for ever."""
    w = world(text("a"), text("b"), limits=Budget(wall_clock_ms=100_000))
    error = w.ask(run()).raised(BudgetUnbounded)
    assert error.dimension == "wall_clock_ms"
    assert nothing_happened(w)
    w.ask(
        run(replay_key="a", timeout=60.0),
        run(replay_key="b", budget=Budget(total_tokens=2_000, wall_clock_ms=30_000)),
    )
    assert [i.reserved.wall_clock_ms for i in w.invocations()] == [60_001, 30_000]
    assert 0 <= w.rt.budgets.show("acme").settled.wall_clock_ms < 60_000
    assert w.rt.budgets.show("acme").held.wall_clock_ms == 0


# Several accounts


def test_a_reservation_charges_all_ancestors_alike(world: MakeWorld) -> None:
    """Every account of the branch has the same amounts, and the first that refuses refuses all."""
    w = world(text("a", usage=usage(10, 5)))
    w.rt.budgets.put("acme/support/eu", Budget(total_tokens=15_000))
    w.ask(run(account="acme/support/eu")).raised(BudgetDenied)
    assert nothing_happened(w)
    assert w.ask(run(account="acme/support/eu", budget=Budget(total_tokens=9_000))).error is None
    branch = ("acme", "acme/support", "acme/support/eu")
    assert {w.balance(path)[0] for path in branch} == {Amounts(15, 10, 5, 1)}


def test_a_call_can_name_another_account(world: MakeWorld) -> None:
    """It is charged instead of the activity's."""
    w = world(text("a", usage=usage(10, 5)))
    w.rt.budgets.put("research", Budget(total_tokens=50_000))
    assert w.ask(run(account="research")).error is None
    assert w.balance("research")[0].total_tokens == 15
    assert w.balance("acme")[0] == Amounts()
    assert w.invocation.accounts == ("research",)


def within_run(w: World, *asks: Any, run_id: str = "1", budget: Budget | None = None, **options: Any) -> Any:
    """Asks in one activity of a run that has a budget of its own under ``acme``."""
    scope = w.rt.run(workflow_id="ticket", run_id=run_id, budget=budget, under="acme")
    return w.ask(*asks, within=scope, **options)


def test_a_run_shares_its_budget_among_its_activities(world: MakeWorld) -> None:
    """What one activity used is gone for the next one, and both stay within the account above."""
    w = world(text("a", usage=usage(300, 100)), text("b"))
    budget = Budget(total_tokens=1_000)
    ask = run(budget=Budget(total_tokens=700))
    assert within_run(w, ask, budget=budget, activity="one").error is None
    error = within_run(w, ask, budget=budget, activity="two").raised(BudgetDenied)
    assert (error.account, error.settled, error.fits) == ("acme/run:ticket:1", 400, 600)
    assert w.balance("acme")[0].total_tokens == 400
    assert within_run(w, ask, budget=budget, run_id="2", activity="two").error is None


def test_an_account_of_a_call_does_not_leave_the_run(world: MakeWorld) -> None:
    """A call's own account stands in for the activity's; the budget of the run counts all the same."""
    w = world(text("a", usage=usage(300, 100)))
    w.rt.budgets.put("research", Budget(total_tokens=50_000))
    budget = Budget(total_tokens=1_000)
    ask = run(budget=Budget(total_tokens=700), account="research")
    assert within_run(w, ask, budget=budget, activity="one").error is None
    assert set(w.invocation.accounts) == {"acme/run:ticket:1", "research"}
    assert (
        within_run(w, ask, budget=budget, activity="two").raised(BudgetDenied).account == "acme/run:ticket:1"
    )


def test_several_accounts_are_charged_together_or_not_at_all(world: MakeWorld) -> None:
    """An account above several leaves is charged once; one that refuses leaves all as they were."""
    w = world(text("a", usage=usage(10, 5)))
    ask = run(budget=Budget(total_tokens=700))
    assert within_run(w, ask, budget=Budget(total_tokens=1_000)).error is None
    assert set(w.invocation.accounts) == {"acme/run:ticket:1", "acme/support"}
    assert w.balance("acme")[0] == w.balance("acme/support")[0] == Amounts(15, 10, 5, 1)
    w.rt.budgets.put("acme/support", Budget(total_tokens=100))
    assert (
        within_run(w, ask, activity="two", budget=Budget(total_tokens=1_000)).raised(BudgetDenied).account
        == "acme/support"
    )
    assert w.balance("acme/run:ticket:1")[1:] == (Amounts(), Amounts())


def test_rounds_of_a_loop_are_admitted_one_by_one(world: MakeWorld) -> None:
    """The round that does not fit any more is refused after the tool's outcome was recorded."""
    bench = Bench()
    limits = Budget(total_tokens=20_500)
    w = world(calls(call("f", {"n": 1}), usage=usage(600, 100)), text("Done."), limits=limits)
    assert w.ask(loop(bench.make("f"), continuation=[LOOP])).raised(BudgetDenied).settled == 700
    assert w.states() == [("DONE", None, 1)]
    w.rt.budgets.put("acme", Budget(total_tokens=100_000))
    assert w.ask(loop(bench.make("f"), continuation=[LOOP])).result.response.output_text == "Done."
    assert (len(bench.ran), w.sent) == (1, 2)


def test_restoring_needs_no_budget(world: MakeWorld) -> None:
    """A recorded call is restored from a closed, exhausted account without a price."""
    w = world(text("Hello.", usage=usage(10, 5)), limits=Budget(total_tokens=20_000))
    w.ask(run())
    w.rt.budgets.put("acme", Budget(total_tokens=0, cost=Money(0)))
    w.rt.budgets.close("acme/support")
    before = w.balance()
    assert w.ask(run(budget=BUDGET)).result.restored
    assert (w.balance(), w.sent) == (before, 1)
