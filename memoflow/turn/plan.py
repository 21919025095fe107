"""What a request is going to reserve: its measured input, its output cap, and the amounts to hold."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from memoflow.budget import Budget
from memoflow.errors import BudgetNotConfigured, BudgetTooSmall, InvalidBudget, InvalidRequest
from memoflow.ledger.holdings import Ask
from memoflow.pricing import Price
from memoflow.providers.base import Measurement, PreparedRequest
from memoflow.turn.call import Call
from memoflow.turn.steps import Compute, Count, Step

__all__ = ["Plan", "check_rounds", "plan_round"]

# The bound is about four times the true input. Below this share of the reservation it costs the
# output cap so little that nothing better has to be computed.
BOUND_SHARE: Final = 8
FREE_BOUND: Final = 1_024
MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A request that fits its reservation."""

    body: dict[str, Any] = field(repr=False)
    ask: Ask
    input: Measurement | None
    output_cap: int | None
    timeout: float | None


def check_rounds(budgets: tuple[Budget | None, ...]) -> None:
    """Check the budgets of all rounds, before the first of them spends anything.

    Raises:
        InvalidBudget: one is not a budget, or not that of one request.
    """
    for number, budget in enumerate(budgets):
        if not (budget is None or isinstance(budget, Budget)):
            raise InvalidBudget(
                f"The budget of round {number} must be a Budget, not {type(budget).__name__}."
            )
        if budget is not None and budget.model_calls not in (None, 1):
            raise InvalidBudget(
                f"A round reserves exactly one model call, not {budget.model_calls}. "
                "Pass a budget for each round."
            )
        if budget is not None and budget.wall_clock_ms == 0:
            raise InvalidBudget(
                f"The budget of round {number} reserves 0 wall_clock_ms, in which no request can be made. "
                "Reserve the milliseconds that one may take, or leave wall_clock_ms out."
            )


def plan_round(
    call: Call, prepared: PreparedRequest, number: int, *, strict: bool = False
) -> Generator[Step, Any, Plan]:
    """Measure the input, bound the output and say what to hold for a round; ``strict`` without an estimate.

    Raises:
        BudgetNotConfigured: the call is charged to no account at all.
        InvalidRequest: a part of the input cannot be measured and nothing was declared.
        BudgetTooSmall: the request does not fit the amounts given for it.
        InvalidBudget: the amounts are not in the model's currency.
    """
    if not call.accounts:
        raise BudgetNotConfigured(account=None, namespace=call.attempt.identity.namespace)
    budget = call.budgets[number] or Budget()
    price = call.attempt.prices.get(prepared.model)
    if budget.cost is not None and price is not None and budget.cost.currency != price.currency:
        raise InvalidBudget(
            f"Model {prepared.model!r} is priced in {price.currency}, but the call reserves "
            f"{budget.cost.currency}. Reserve cost in the currency of the price."
        )
    strict = strict or call.terms.strict_input
    measured = yield from _measure(call, prepared, budget, first=number == 0, strict=strict)
    cap = _output_cap(call, prepared, budget, measured, price)
    body = (
        prepared.body
        if cap is None or cap == prepared.output_cap
        else call.codec.with_cap(prepared.body, cap)
    )
    timeout = _timeout(call, budget)
    return Plan(
        body=body,
        ask=_ask(call, prepared, budget, measured, cap, timeout, price),
        input=measured,
        output_cap=cap,
        timeout=timeout,
    )


def _measure(
    call: Call, prepared: PreparedRequest, budget: Budget, *, first: bool, strict: bool
) -> Generator[Step, Any, Measurement | None]:
    terms = call.terms
    if terms.input_tokens is not None and first and not terms.if_unmeasurable:
        return Measurement(terms.input_tokens, "declared")
    if terms.count_input and not terms.if_unmeasurable:
        return (yield from _count(call, prepared, budget))
    if unmeasurable := call.codec.needs_declaration(prepared):
        if terms.input_tokens is not None:
            # What was declared for the first round bounds what hosted tools add in the later ones, too.
            known = call.codec.measure(prepared, "bound").tokens
            return Measurement(max(terms.input_tokens, known), "declared")
        if terms.count_input:
            return (yield from _count(call, prepared, budget))
        if budget.total_tokens is None and budget.input_tokens is None:
            return None
        raise InvalidRequest(
            f"The input tokens of this request cannot be measured locally ({', '.join(unmeasurable)}). "
            "Pass input_tokens=…, or count_input=True where the API counts input (Responses and Messages)."
        )
    bound = call.codec.measure(prepared, "bound")
    if strict or _decides(bound.tokens, prepared, budget):
        return bound
    estimate: Measurement = yield Compute(lambda: call.codec.measure(prepared, "estimate"))
    return estimate if estimate.tokens < bound.tokens else bound


def _count(call: Call, prepared: PreparedRequest, budget: Budget) -> Generator[Step, Any, Measurement]:
    counted: int = yield Count(prepared.body, _timeout(call, budget))
    return Measurement(counted, "counted")


def _decides(bound: int, prepared: PreparedRequest, budget: Budget) -> bool:
    """Whether the free upper bound is good enough, so that nothing else has to be computed."""
    if budget.input_tokens is not None and bound > budget.input_tokens:
        return False
    if budget.total_tokens is None:
        return bound <= FREE_BOUND
    if not prepared.choices:
        return bound <= budget.total_tokens
    if prepared.output_cap is not None:
        return bound + prepared.output_cap * prepared.choices <= budget.total_tokens
    return bound * BOUND_SHARE <= budget.total_tokens


def _output_cap(
    call: Call,
    prepared: PreparedRequest,
    budget: Budget,
    measured: Measurement | None,
    price: Price | None,
) -> int | None:
    """The cap to send. The provider is told to stop where the reservation ends."""
    if call.terms.output_cap == "caller":
        return _given_cap(prepared)
    tokens, basis = (0, "none") if measured is None else (measured.tokens, measured.basis)
    if budget.input_tokens is not None and tokens > budget.input_tokens:
        raise BudgetTooSmall(
            dimension="input_tokens",
            reserved=budget.input_tokens,
            needed=tokens,
            output_cap_fits=0,
            basis=basis,
        )
    fits, dimension = min(_room(budget, tokens, price if measured is not None else None), default=(None, ""))
    wanted, choices = prepared.output_cap, prepared.choices
    if fits is None:
        return _given_cap(prepared)
    minimum = prepared.cap_minimum if choices else 0
    least = minimum if wanted is None else wanted
    if least * choices > fits or fits < 0:
        each = fits // (choices or 1)
        _refuse(budget, dimension, tokens, least * choices, each if each >= minimum else 0, basis, price)
    if not choices:
        return None
    return fits // choices if wanted is None else wanted


def _given_cap(prepared: PreparedRequest) -> int | None:
    if prepared.cap_required and prepared.output_cap is None:
        raise InvalidRequest(
            "This API takes no request without an output cap, and nothing reserved bounds the output. "
            "Reserve total_tokens or output_tokens, or name a cap in the request."
        )
    return prepared.output_cap


def _room(budget: Budget, tokens: int, price: Price | None) -> Iterator[tuple[int, str]]:
    """The output that each reserved amount leaves beside an input of so many tokens."""
    if budget.total_tokens is not None:
        yield budget.total_tokens - tokens, "total_tokens"
    if budget.output_tokens is not None:
        yield budget.output_tokens, "output_tokens"
    if budget.cost is not None and price is not None:
        left = budget.cost.nanos - price.ceiling(input_tokens=tokens, output_tokens=0)
        each = price.ceiling(input_tokens=tokens, output_tokens=MILLION) - price.ceiling(
            input_tokens=tokens, output_tokens=0
        )
        if each:
            yield left * MILLION // each, "cost"


def _refuse(
    budget: Budget, dimension: str, tokens: int, least: int, fits: int, basis: str, price: Price | None
) -> NoReturn:
    needed = least + (tokens if dimension == "total_tokens" else 0)
    if dimension == "cost" and price is not None:
        needed = price.ceiling(input_tokens=tokens, output_tokens=least)
    raise BudgetTooSmall(
        dimension=dimension,
        reserved=dict(budget.items())[dimension] or 0,
        needed=needed,
        output_cap_fits=fits,
        basis=basis,
        currency=budget.currency,
    )


def _timeout(call: Call, budget: Budget) -> float | None:
    """The deadline of the request: the one asked for, within the wall clock that is reserved."""
    if budget.wall_clock_ms is None:
        return call.terms.timeout
    reserved = budget.wall_clock_ms / 1000
    return reserved if call.terms.timeout is None else min(reserved, call.terms.timeout)


def _ask(
    call: Call,
    prepared: PreparedRequest,
    budget: Budget,
    measured: Measurement | None,
    cap: int | None,
    timeout: float | None,
    price: Price | None,
) -> Ask:
    tokens_in = budget.input_tokens if measured is None else measured.tokens
    # What comes out at most: of every choice as much as the cap, and nothing where nothing is generated.
    output = cap * prepared.choices if cap is not None else None if prepared.choices else 0
    both = None if tokens_in is None or output is None else tokens_in + output
    cost, currency = _cost(price, budget, tokens_in, output)
    wall_clock = budget.wall_clock_ms
    if wall_clock is None and timeout is not None:
        wall_clock = int(timeout * 1000) + 1
    return Ask(
        amounts=(
            budget.total_tokens if budget.total_tokens is not None else both,
            budget.input_tokens if budget.input_tokens is not None else tokens_in,
            budget.output_tokens if budget.output_tokens is not None else output,
            1,
            budget.tool_calls or 0,
            cost,
            wall_clock,
        ),
        currency=currency,
        estimated=measured is not None and measured.basis == "estimate",
        model=prepared.model,
        unpriced=budget.cost is not None and price is None,
        price=price,
        cap_minimum=prepared.cap_minimum,
        choices=prepared.choices,
    )


def _cost(
    price: Price | None, budget: Budget, tokens_in: int | None, output: int | None
) -> tuple[int | None, str | None]:
    """The money to hold: the dearest this request can become, or what the caller reserves for it."""
    if price is None:
        return None, None
    if budget.cost is not None:
        return budget.cost.nanos, price.currency
    if tokens_in is None or output is None:
        return None, price.currency
    return price.ceiling(input_tokens=tokens_in, output_tokens=output), price.currency
