"""What somebody says an invocation used, as it is charged."""

from __future__ import annotations

from dataclasses import replace

from memoflow.budget import Budget, Money
from memoflow.errors import InvalidBudget
from memoflow.ledger.unknowns import Subject
from memoflow.pricing import Price

__all__ = ["figures"]


def figures(usage: Budget | None, invocation_id: str, subject: Subject, price: Price | None) -> Budget | None:
    """The usage with its cost, where the model has a price in the accounts' currency and none was given.

    Raises:
        InvalidBudget: the cost is in another currency than the accounts'.
    """
    if usage is None:
        return None
    if usage.currency is not None and subject.currencies - {usage.currency}:
        raise InvalidBudget(
            f"Invocation {invocation_id} was reserved in {', '.join(sorted(subject.currencies))}; its "
            f"cost cannot be settled in {usage.currency}. Convert the amount first."
        )
    if usage.cost is not None or price is None or subject.currencies != {price.currency}:
        return usage
    nanos = _nanos(usage, price)
    return usage if nanos is None else replace(usage, cost=Money(nanos, price.currency))


def _nanos(usage: Budget, price: Price) -> int | None:
    tokens_in, tokens_out, total = usage.input_tokens, usage.output_tokens, usage.total_tokens
    if tokens_in is not None and tokens_out is not None:
        return price.cost(input_tokens=tokens_in, output_tokens=tokens_out)
    if total is None:
        return None
    # Which kind they were is not known, and an unknown is charged as the dearer.
    return max(
        price.cost(input_tokens=total, output_tokens=0), price.cost(input_tokens=0, output_tokens=total)
    )
