"""Output caps and measured input: what is sent, what is reserved, and what is refused beforehand."""

from __future__ import annotations

from typing import Any

import pytest

from memoflow import (
    Budget,
    BudgetTooSmall,
    BudgetUnbounded,
    ConfigurationError,
    InvalidBudget,
    InvalidRequest,
    ProviderError,
)
from memoflow.budget import Amounts
from memoflow.testing import call, calls, missing_usage, raw, status, text, usage
from tests.turn._asks import LOOP, loop, run, stream
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld, World

KINDS = {"whole": run, "streamed": stream}
INPUT = 117  # the upper bound of "Hello" with its scaffolding
IMAGE = [
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "image_url": "https://example.invalid/a.png", "detail": "auto"},
        ],
    }
]


def sent(w: World, index: int = -1) -> dict[str, Any]:
    """The body of a generation request."""
    creating = [record for record in w.provider.requests if record.operation == "create"]
    body: dict[str, Any] = creating[index].json
    return body


def nothing_happened(w: World) -> bool:
    """Whether nothing was reserved and nobody was asked to generate."""
    return w.invocations() == [] and w.balance() == (Amounts(),) * 3 and w.sent == 0


# Caps


@pytest.mark.parametrize("kind", KINDS)
def test_the_cap_that_is_sent_is_what_the_reservation_leaves(world: MakeWorld, kind: str) -> None:
    """Without a cap of its own a request is told to stop at the reserved total minus its input."""
    w = world(text("Hello."))
    w.ask(KINDS[kind](budget=Budget(total_tokens=2_000)))
    assert sent(w)["max_output_tokens"] == w.invocation.output_cap == 2_000 - INPUT
    assert (w.invocation.input_measured, w.invocation.input_basis) == (INPUT, "bound")
    assert w.invocation.reserved == Amounts(2_000, INPUT, 2_000 - INPUT, 1)


def test_the_tightest_amount_decides_the_cap(world: MakeWorld) -> None:
    """A reserved output caps below what the total would leave, and the other way round."""
    w = world(text("a"), text("b"), text("c"))
    w.ask(
        run(replay_key="a", budget=Budget(total_tokens=2_000, output_tokens=100)),
        run(replay_key="b", budget=Budget(total_tokens=200, output_tokens=100), strict_input=True),
        run(replay_key="c", budget=Budget(output_tokens=64)),
    )
    assert [sent(w, i)["max_output_tokens"] for i in range(3)] == [100, 200 - INPUT, 64]
    assert [i.reserved.total_tokens for i in w.invocations()] == [2_000, 200, INPUT + 64]


def test_a_cap_of_the_request_that_fits_is_sent_as_it_is(world: MakeWorld) -> None:
    """The caller's cap stands, and the reservation is what was asked for."""
    w = world(text("Hello."))
    w.ask(run(request={"max_output_tokens": 50}, budget=Budget(total_tokens=2_000)))
    assert sent(w)["max_output_tokens"] == 50
    assert w.invocation.reserved == Amounts(2_000, INPUT, 50, 1)


@pytest.mark.parametrize(
    ("budget", "dimension", "reserved", "needed", "fits"),
    [
        (Budget(total_tokens=1_000), "total_tokens", 1_000, 1_000 + INPUT, 1_000 - INPUT),
        (Budget(output_tokens=900), "output_tokens", 900, 1_000, 900),
        (Budget(total_tokens=9_000, output_tokens=900), "output_tokens", 900, 1_000, 900),
    ],
)
def test_a_cap_that_does_not_fit_is_refused_with_what_would_fit(
    world: MakeWorld, budget: Budget, dimension: str, reserved: int, needed: int, fits: int
) -> None:
    """`BudgetTooSmall` has the figures, and nothing was reserved or sent."""
    w = world()
    error = w.ask(run(request={"max_output_tokens": 1_000}, budget=budget, strict_input=True)).raised(
        BudgetTooSmall
    )
    assert (error.dimension, error.reserved, error.needed) == (dimension, reserved, needed)
    assert (error.output_cap_fits, error.basis) == (fits, "bound")
    assert nothing_happened(w)


def test_what_would_fit_fits(world: MakeWorld) -> None:
    """The cap that a refusal names is accepted, to the token; one more is not."""
    w = world(text("Hello."))
    budget = Budget(total_tokens=1_000)
    fits = (
        w.ask(run(request={"max_output_tokens": 1_000}, budget=budget)).raised(BudgetTooSmall).output_cap_fits
    )
    w.ask(run(request={"max_output_tokens": fits + 1}, budget=budget)).raised(BudgetTooSmall)
    assert (
        w.ask(run(request={"max_output_tokens": fits}, budget=budget)).result.response.output_text == "Hello."
    )


def test_room_for_less_than_the_provider_accepts_is_too_small(world: MakeWorld) -> None:
    """A cap below the provider's minimum would be rejected there, and cost a model call."""
    w = world(text("Hello."))
    budget = Budget(total_tokens=INPUT + 15)
    error = w.ask(run(budget=budget, strict_input=True)).raised(BudgetTooSmall)
    assert (error.needed, error.output_cap_fits) == (INPUT + 16, 0)
    own = run(request={"max_output_tokens": 20}, budget=budget, strict_input=True)
    error = w.ask(own).raised(BudgetTooSmall)
    assert (error.needed, error.output_cap_fits) == (INPUT + 20, 0)
    assert nothing_happened(w)
    assert w.ask(run(budget=Budget(total_tokens=INPUT + 16), strict_input=True)).error is None


def test_an_input_above_its_own_amount_is_too_small(world: MakeWorld) -> None:
    """No cap helps when the input alone is more than what is reserved for it."""
    w = world()
    budget = Budget(input_tokens=50, total_tokens=2_000)
    error = w.ask(run(budget=budget)).raised(BudgetTooSmall)
    assert (error.dimension, error.reserved, error.needed, error.output_cap_fits) == (
        "input_tokens",
        50,
        114,
        0,
    )
    assert error.basis == "estimate"


def test_the_callers_cap_can_be_left_alone(world: MakeWorld) -> None:
    """`output_cap="caller"` adds no cap, and sends one that does not fit."""
    w = world(text("a"), text("b"))
    free = {"budget": Budget(total_tokens=500), "output_cap": "caller"}
    w.ask(run(replay_key="a", **free), run(replay_key="b", request={"max_output_tokens": 9_000}, **free))
    assert "max_output_tokens" not in sent(w, 0)
    assert sent(w, 1)["max_output_tokens"] == 9_000
    assert [i.reserved.total_tokens for i in w.invocations()] == [500, 500]


def test_a_reservation_is_derived_from_the_request(world: MakeWorld) -> None:
    """Without a budget the measured input and the request's own cap are what is held."""
    w = world(text("Hello."))
    w.ask(run(budget=None, request={"max_output_tokens": 300}))
    assert w.invocation.reserved == Amounts(INPUT + 300, INPUT, 300, 1)


def test_a_call_without_any_bound_is_refused_where_tokens_are_limited(world: MakeWorld) -> None:
    """An account that limits tokens takes no call that could use any number of them."""
    w = world()
    error = w.ask(run(budget=None)).raised(BudgetUnbounded)
    assert (error.account, error.dimension) == ("acme", "total_tokens")
    assert nothing_happened(w)


def test_a_call_without_any_bound_goes_where_nothing_is_limited(world: MakeWorld) -> None:
    """Nothing is held in a dimension without a bound; the actual use is settled all the same."""
    w = world(text("Hello.", usage=usage(10, 5)), limits=Budget(model_calls=5))
    w.ask(run(budget=None))
    assert w.invocation.reserved == Amounts(input_tokens=INPUT, model_calls=1)
    assert w.balance()[0] == Amounts(15, 10, 5, 1)
    assert "max_output_tokens" not in sent(w)


def test_a_round_is_one_model_call(world: MakeWorld) -> None:
    """A budget for several model calls is none of a round."""
    w = world()
    w.ask(run(budget=Budget(total_tokens=2_000, model_calls=2))).raised(InvalidBudget)
    w.ask(loop(Bench().make("f"), budget=Budget(model_calls=0))).raised(InvalidBudget)
    for further in (Budget(wall_clock_ms=0), Budget(total_tokens=2_000, wall_clock_ms=0)):
        error = w.ask(loop(Bench().make("f"), continuation=[LOOP, further])).raised(InvalidBudget)
        assert "round 2 reserves 0 wall_clock_ms" in str(error)
    assert nothing_happened(w)


# Measuring


def test_an_estimate_is_made_where_the_bound_does_not_decide(world: MakeWorld) -> None:
    """A long text is not bounded by its bytes when that would take most of the output."""
    words, budget = "word " * 400, Budget(total_tokens=2_500)
    w = world(text("a"), text("b"))
    w.ask(
        run(words, budget=budget, replay_key="a"),
        run(words, budget=budget, replay_key="b", strict_input=True),
    )
    estimated, bounded = w.invocations()
    assert (estimated.input_basis, bounded.input_basis) == ("estimate", "bound")
    assert (estimated.input_measured or 0) * 2 < (bounded.input_measured or 0)
    caps = [sent(w, i)["max_output_tokens"] for i in range(2)]
    assert caps == [2_500 - (i.input_measured or 0) for i in (estimated, bounded)]


def test_a_strict_input_is_never_estimated(world: MakeWorld) -> None:
    """Where only a true bound will do, a text that fits by estimate is refused."""
    w = world()
    ask = run("word " * 400, budget=Budget(total_tokens=1_500), strict_input=True)
    assert w.ask(ask).raised(BudgetTooSmall).basis == "bound"


def test_the_provider_can_count(world: MakeWorld) -> None:
    """`count_input` asks the counting endpoint, whose figure is reserved and recorded."""
    w = world(text("Hello."))
    w.ask(run(count_input=True, strict_input=True))
    counting, creating = w.provider.requests
    assert (counting.route, creating.route) == ("POST /v1/responses/input_tokens", "POST /v1/responses")
    assert (w.invocation.input_basis, w.invocation.input_measured) == ("counted", w.invocation.input_tokens)


@pytest.mark.parametrize(
    "answer", [status(429), status(500), raw(b'{"input_tokens": null}'), raw(b"[]"), raw(b"no")]
)
def test_a_count_that_fails_refuses_the_call(world: MakeWorld, answer: Any) -> None:
    """Without the figure nothing is reserved, and nothing is generated; the error is memoflow's own."""
    w = world(text("never"))
    w.provider.push(answer, to="count")
    error = w.ask(run(count_input=True)).raised(ProviderError)
    assert "input_tokens=" in str(error)
    assert nothing_happened(w)


def test_parts_that_cannot_be_measured_have_to_be_declared(world: MakeWorld) -> None:
    """An image has no local measure: the call is refused with what to pass, and goes with that."""
    w = world(text("A cat."), text("A dog."))
    error = w.ask(run(request={"input": IMAGE})).raised(InvalidRequest)
    assert "image" in str(error)
    assert "input_tokens=" in str(error)
    assert nothing_happened(w)
    w.ask(
        run(request={"input": IMAGE}, input_tokens=1_234),
        run(request={"input": IMAGE}, replay_key="c", count_input=True),
    )
    declared, counted = w.invocations()
    assert (declared.input_basis, declared.input_measured) == ("declared", 1_234)
    assert (counted.input_basis, counted.input_measured) == ("counted", counted.input_tokens)


def test_history_at_the_provider_has_to_be_declared(world: MakeWorld) -> None:
    """`previous_response_id` stands for input nobody here can see."""
    w = world(text("One."), text("Two."))
    first = w.ask(run(replay_key="first")).result.response.id
    follow = {"previous_response_id": first}
    assert "previous_response_id" in str(w.ask(run(request=follow)).raised(InvalidRequest))
    assert w.ask(run(request=follow, input_tokens=500)).result.response.output_text == "Two."
    assert w.invocations()[1].reserved.input_tokens == 500


def test_what_cannot_be_measured_goes_where_no_input_is_reserved(world: MakeWorld) -> None:
    """Without an amount that depends on the input there is nothing to measure it for."""
    w = world(text("A cat."), limits=Budget(output_tokens=1_000))
    assert w.ask(run(request={"input": IMAGE}, budget=Budget(output_tokens=100))).error is None
    assert (w.invocation.input_basis, w.invocation.input_measured) == ("none", None)


def test_a_further_round_is_measured_by_the_usage_of_the_one_before(world: MakeWorld) -> None:
    """The input of a continuation is known: what the round before used, and what was appended since."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1}), usage=usage(4_000, 200)), text("Done."))
    w.ask(loop(bench.make("f")))
    second = w.invocations()[1]
    assert 4_200 < (second.input_measured or 0) < 4_400
    assert sent(w)["max_output_tokens"] == 20_000 - (second.input_measured or 0)


def test_a_further_round_without_a_usage_before_it_is_measured_whole(world: MakeWorld) -> None:
    """What is not known is not taken from it."""
    bench = Bench()
    w = world(missing_usage(calls(call("f", {"n": 1}))), text("Done."))
    assert w.ask(loop(bench.make("f"))).result.response.output_text == "Done."
    first, second = w.invocations()
    assert (second.input_measured or 0) > (first.input_measured or 0)


def test_a_declared_input_counts_for_the_first_round_only(world: MakeWorld) -> None:
    """The further rounds know better than what was said before the first one."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1}), usage=usage(300, 20)), text("Done."))
    w.ask(loop(bench.make("f"), input_tokens=5_000))
    assert w.invocations()[0].input_basis == "declared"
    assert [(i.input_measured or 0) >= 5_000 for i in w.invocations()] == [True, False]


def test_each_round_has_a_budget_of_its_own(world: MakeWorld) -> None:
    """The second round that does not fit is refused; the tool's outcome before it is recorded."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1}), usage=usage(400, 20)), text("Done."))
    tight = Budget(total_tokens=430)
    error = w.ask(loop(bench.make("f"), continuation=[tight])).raised(BudgetTooSmall)
    assert (error.dimension, error.reserved) == ("total_tokens", 430)
    assert w.states() == [("DONE", None, 1)]
    assert w.ask(loop(bench.make("f"), continuation=[LOOP])).result.response.output_text == "Done."
    assert len(bench.ran) == 1


# Options


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"budgets": 1}, ConfigurationError),
        ({"output_cap": "none"}, ConfigurationError),
        ({"on_unknown": "ignore"}, ConfigurationError),
        ({"timeout": 0}, ConfigurationError),
        ({"timeout": True}, ConfigurationError),
        ({"timeout": float("nan")}, ConfigurationError),
        ({"timeout": 1e7}, ConfigurationError),
        ({"idle_timeout": -1}, ConfigurationError),
        ({"idle_timeout": "5"}, ConfigurationError),
        ({"tool_concurrency": 0}, ConfigurationError),
        ({"tool_concurrency": "2"}, ConfigurationError),
        ({"max_result_bytes": 0}, ConfigurationError),
        ({"max_result_bytes": 1e6}, ConfigurationError),
        ({"signal": "stop"}, ConfigurationError),
        ({"on_unknown": "block", "replay_key": None}, ConfigurationError),
        ({"account": 7}, InvalidBudget),
        ({"account": "acme/"}, InvalidBudget),
        ({"budget": 2_000}, InvalidBudget),
        ({"input_tokens": -1}, InvalidBudget),
        ({"input_tokens": 1.5}, InvalidBudget),
        ({"input_tokens": True}, InvalidBudget),
        ({"replay_key": ""}, InvalidRequest),
        ({"replay_key": "a\0"}, InvalidRequest),
        ({"metadata": {"a": [1]}}, InvalidRequest),
        ({"metadata": {"a": float("inf")}}, InvalidRequest),
        ({"metadata": {"a": "\ud83d"}}, InvalidRequest),
        ({"metadata": {"a": "x" * 513}}, InvalidRequest),
        ({"metadata": {"": 1}}, InvalidRequest),
        ({"metadata": {str(n): n for n in range(17)}}, InvalidRequest),
        ({"request": {"max_output_tokens": 0}}, InvalidRequest),
        ({"request": {"max_output_tokens": 10**30}}, InvalidRequest),
        ({"request": {"max_output_tokens": "10"}}, InvalidRequest),
        ({"request": {"max_output_tokens": True}}, InvalidRequest),
        ({"request": {"background": True}}, InvalidRequest),
        ({"request": {"stream": True}}, InvalidRequest),
        ({"request": {"temperature": float("nan")}}, InvalidRequest),
        ({"request": {"input": "\ud83d"}}, InvalidRequest),
    ],
)
def test_options_that_cannot_be_right_are_refused_before_anything(
    world: MakeWorld, options: dict[str, Any], kind: type[Exception]
) -> None:
    """Nothing is reserved, and nothing is sent."""
    w = world(text("never"))
    w.ask(run(**options)).raised(kind)
    assert nothing_happened(w)


@pytest.mark.parametrize("further", [2_000, Budget(total_tokens=2_000, model_calls=2)])
def test_budgets_of_later_rounds_are_checked_before_the_first(world: MakeWorld, further: Any) -> None:
    """A mistake in the last one must not be found when all the others are spent."""
    w = world(calls(call("f", {"n": 1})), text("never"))
    w.ask(loop(Bench().make("f"), continuation=[LOOP, further])).raised(InvalidBudget)
    assert nothing_happened(w)


def test_metadata_is_kept_with_the_invocation(world: MakeWorld) -> None:
    """Small scalars, in a fixed order, in the clear."""
    w = world(text("Hello."))
    w.ask(run(metadata={"team": "x", "n": 1, "ok": True, "none": None, "f": 0.5}))
    assert w.invocation.metadata == '{"f": 0.5, "n": 1, "none": null, "ok": true, "team": "x"}'
