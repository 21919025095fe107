"""May a reservation be held? The rules of admission, and the figures of a refusal."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from typing import Final

from memoflow.budget import DIMENSIONS
from memoflow.errors import (
    BudgetDenied,
    BudgetError,
    BudgetUnbounded,
    EstimateRefused,
    InvalidBudget,
    PriceUnknown,
)
from memoflow.ledger.holdings import Account, Ask, Balance, SoftLimit
from memoflow.periods import to_datetime

__all__ = ["admit"]

Chain = Sequence[tuple[Account, Balance]]
_HINTS: Final = {
    "total_tokens": "Reserve total_tokens, or set an output cap on the request.",
    "output_tokens": "Reserve output_tokens or total_tokens, or set an output cap on the request.",
    "input_tokens": "Reserve input_tokens, or declare the input with input_tokens=….",
    "wall_clock_ms": "Pass timeout=… or reserve wall_clock_ms.",
}


class _Short(Exception):
    """An account does not take the reservation: it is closed, or has too little left in a dimension."""

    def __init__(self, account: Account, balance: Balance, dimension: int, reason: str) -> None:
        self.account, self.balance, self.dimension, self.reason = account, balance, dimension, reason


def admit(chain: Chain, ask: Ask) -> list[SoftLimit]:
    """Check a reservation against every account it touches; nothing is changed.

    Returns:
        The soft limits it would go over.

    Raises:
        BudgetDenied, BudgetUnbounded, EstimateRefused, PriceUnknown, InvalidBudget.
    """
    try:
        return _admit(chain, ask)
    except _Short as short:
        denied = _denied(short, chain, ask)
    raise denied


def _admit(chain: Chain, ask: Ask) -> list[SoftLimit]:
    if ask.unpriced and not ask.allow_unpriced:
        raise PriceUnknown(model=ask.model)
    return [alert for account, balance in chain for alert in _admit_on(account, balance, ask)]


def _admit_on(account: Account, balance: Balance, ask: Ask) -> list[SoftLimit]:
    _check_currency(account, ask)
    if account.state != "OPEN":
        raise _Short(account, balance, 0, "closed")
    if account.strict_input and ask.estimated:
        raise EstimateRefused(account=account.path)
    alerts = []
    used = balance.used
    for i, name in enumerate(DIMENSIONS):
        hard, soft, amount = account.hard[i], account.soft[i], ask.amounts[i]
        # An account that is over its limit takes nothing new, not even what does not use that dimension.
        if hard is not None and used[i] + _bounded(account, name, amount, ask) > hard:
            raise _Short(account, balance, i, "over_limit" if used[i] > hard else "limit")
        if soft is not None and used[i] + (amount or 0) > soft:
            alerts.append(SoftLimit(account.path, name, soft, used[i] + (amount or 0)))
    return alerts


def _bounded(account: Account, name: str, amount: int | None, ask: Ask) -> int:
    """The amount asked for in a limited dimension, in which an upper bound must be known."""
    if amount is not None:
        return amount
    if name != "cost":
        hint = _HINTS.get(name, f"Reserve {name}.")
        raise BudgetUnbounded(account=account.path, dimension=name, hint=hint)
    if ask.allow_unpriced:
        return 0
    if ask.currency is None:
        raise PriceUnknown(model=ask.model, account=account.path)
    raise BudgetUnbounded(account=account.path, dimension=name, hint=_HINTS["output_tokens"])


def _check_currency(account: Account, ask: Ask) -> None:
    if account.currency is not None and ask.currency is not None and account.currency != ask.currency:
        raise InvalidBudget(
            f"Budget account {account.path!r} counts cost in {account.currency}, but the call is priced in "
            f"{ask.currency}. Price the model in the account's currency."
        )


def _denied(short: _Short, chain: Chain, ask: Ask) -> BudgetDenied:
    account, balance, i = short.account, short.balance, short.dimension
    return BudgetDenied(
        account=account.path,
        dimension=DIMENSIONS[i],
        limit=account.hard[i] or 0,
        settled=balance.settled[i],
        held=balance.held[i],
        unknown=balance.unknown[i],
        requested=ask.amounts[i] or 0,
        currency=account.currency,
        resets_at=None if balance.period_end is None else to_datetime(balance.period_end),
        output_cap_fits=_output_that_fits(short, chain, ask),
        reason=short.reason,
    )


def _output_that_fits(short: _Short, chain: Chain, ask: Ask) -> int | None:
    """The largest output cap that every account would admit now, the rest of the request unchanged."""
    asked = dict(zip(DIMENSIONS, ask.amounts, strict=True))
    of_output = {"total_tokens", "output_tokens"} | ({"cost"} if ask.price is not None else set())
    if short.reason == "closed" or DIMENSIONS[short.dimension] not in of_output:
        return None
    if asked["input_tokens"] is None or not ask.choices:
        return None
    least = ask.cap_minimum
    most = max(asked["total_tokens"] or 0, asked["output_tokens"] or 0) // ask.choices
    caps = range(least, most + 1)
    # By the rules of admission themselves, so that it cannot promise what they refuse; the least cap
    # first, because where nothing is left everybody is refused, and often.
    if not caps or not _admits(chain, ask.capped(least)):
        return 0
    return caps[bisect(caps, False, key=lambda cap: not _admits(chain, ask.capped(cap))) - 1]


def _admits(chain: Chain, ask: Ask) -> bool:
    try:
        _admit(chain, ask)
    except (_Short, BudgetError):
        return False
    return True
