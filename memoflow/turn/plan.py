"""What a request is going to reserve: its measured input, its output cap, and the amounts to hold."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Final

from memoflow.budget import Budget
from memoflow.errors import BudgetTooSmall, InvalidBudget, InvalidRequest, PriceUnknown
from memoflow.ledger.holdings import Ask
from memoflow.providers.base import Measurement, PreparedRequest
from memoflow.turn.call import Call
from memoflow.turn.steps import Compute, Count, Step

__all__ = ["Plan", "plan_round"]

# The bound is about four times the true input. Below this share of the reservation it costs the
# output cap so little that nothing better has to be computed.
BOUND_SHARE: Final = 8
FREE_BOUND: Final = 1_024


@dataclass(frozen=True, slots=True)
class Plan:
    """A request that fits its reservation."""

    body: dict[str, Any] = field(repr=False)
    ask: Ask
    input: Measurement | None
    output_cap: int | None
    tool_calls: int
    timeout: float | None


def plan_round(call: Call, prepared: PreparedRequest, number: int) -> Generator[Step, Any, Plan]:
    """Measure the input, bound the output and say what to hold for a round.

    Raises:
        InvalidRequest: a part of the input cannot be measured and nothing was declared.
        BudgetTooSmall: the request does not fit the amounts given for it.
        PriceUnknown: money is reserved and the model has no price.
    """
    budget = call.budgets[number] or Budget()
    if budget.model_calls not in (None, 1):
        raise InvalidBudget(
            f"A round reserves exactly one model call, not {budget.model_calls}. "
            "Pass a budget for each round."
        )
    measured = yield from _measure(call, prepared, budget, first=number == 0)
    cap = _output_cap(call, prepared, budget, measured)
    body = (
        prepared.body
        if cap is None or cap == prepared.output_cap
        else call.codec.with_cap(prepared.body, cap)
    )
    timeout = _timeout(call, budget)
    return Plan(
        body=body,
        ask=_ask(call, prepared, budget, measured, cap, timeout),
        input=measured,
        output_cap=cap,
        tool_calls=budget.tool_calls or 0,
        timeout=timeout,
    )


def _measure(
    call: Call, prepared: PreparedRequest, budget: Budget, *, first: bool
) -> Generator[Step, Any, Measurement | None]:
    terms = call.terms
    if terms.input_tokens is not None and first:
        return Measurement(terms.input_tokens, "declared")
    if terms.count_input:
        counted = yield Count(prepared.body)
        return Measurement(counted, "counted")
    if prepared.prior is None and (unmeasurable := call.codec.needs_declaration(prepared)):
        if budget.total_tokens is None and budget.input_tokens is None:
            return None
        raise InvalidRequest(
            f"The input tokens of this request cannot be measured locally ({', '.join(unmeasurable)}). "
            "Pass input_tokens=…, or count_input=True to ask the provider."
        )
    bound = call.codec.measure(prepared, "bound")
    if terms.strict_input or _decides(bound.tokens, prepared, budget):
        return bound
    estimate: Measurement = yield Compute(lambda: call.codec.measure(prepared, "estimate"))
    return estimate if estimate.tokens < bound.tokens else bound


def _decides(bound: int, prepared: PreparedRequest, budget: Budget) -> bool:
    """Whether the free upper bound is good enough, so that nothing else has to be computed."""
    if budget.input_tokens is not None and bound > budget.input_tokens:
        return False
    if budget.total_tokens is None:
        return bound <= FREE_BOUND
    if prepared.output_cap is not None:
        return bound + prepared.output_cap <= budget.total_tokens
    return bound * BOUND_SHARE <= budget.total_tokens


def _output_cap(
    call: Call, prepared: PreparedRequest, budget: Budget, measured: Measurement | None
) -> int | None:
    """The cap to send. The provider is told to stop where the reservation ends."""
    if call.terms.output_cap == "caller":
        return prepared.output_cap
    tokens, basis = (0, "none") if measured is None else (measured.tokens, measured.basis)
    if budget.input_tokens is not None and tokens > budget.input_tokens:
        raise BudgetTooSmall(
            dimension="input_tokens",
            reserved=budget.input_tokens,
            needed=tokens,
            output_cap_fits=0,
            basis=basis,
        )
    room = [] if budget.output_tokens is None else [budget.output_tokens]
    if budget.total_tokens is not None:
        room.append(budget.total_tokens - tokens)
    if not room:
        return prepared.output_cap
    fits = min(room)
    wanted = prepared.output_cap
    least = call.codec.cap_minimum if wanted is None else wanted
    if least > fits:
        by_total = budget.total_tokens is not None and budget.total_tokens - tokens == fits
        raise BudgetTooSmall(
            dimension="total_tokens" if by_total else "output_tokens",
            reserved=(budget.total_tokens if by_total else budget.output_tokens) or 0,
            needed=least + (tokens if by_total else 0),
            output_cap_fits=max(0, fits),
            basis=basis,
        )
    return fits if wanted is None else wanted


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
) -> Ask:
    tokens_in = budget.input_tokens if measured is None else measured.tokens
    both = None if tokens_in is None or cap is None else tokens_in + cap
    cost, currency = _cost(call, prepared.model, budget, tokens_in, cap)
    wall_clock = budget.wall_clock_ms
    if wall_clock is None and timeout is not None:
        wall_clock = int(timeout * 1000) + 1
    return Ask(
        amounts=(
            budget.total_tokens if budget.total_tokens is not None else both,
            budget.input_tokens if budget.input_tokens is not None else tokens_in,
            budget.output_tokens if budget.output_tokens is not None else cap,
            1,
            budget.tool_calls or 0,
            cost,
            wall_clock,
        ),
        currency=currency,
        model=prepared.model,
    )


def _cost(
    call: Call, model: str, budget: Budget, tokens_in: int | None, cap: int | None
) -> tuple[int | None, str | None]:
    """The money to hold: the dearest this request can become, or what the caller reserves for it."""
    price = call.attempt.prices.get(model)
    if price is None:
        if budget.cost is not None:
            raise PriceUnknown(model=model)
        return None, None
    if budget.cost is not None and budget.cost.currency != price.currency:
        raise InvalidBudget(
            f"Model {model!r} is priced in {price.currency}, but the call reserves {budget.cost.currency}."
        )
    dearest = (
        None if tokens_in is None or cap is None else price.ceiling(input_tokens=tokens_in, output_tokens=cap)
    )
    if budget.cost is None:
        return dearest, price.currency
    if dearest is not None and dearest > budget.cost.nanos:
        raise BudgetTooSmall(
            dimension="cost",
            reserved=budget.cost.nanos,
            needed=dearest,
            output_cap_fits=0,
            basis="price",
        )
    return budget.cost.nanos, price.currency
