"""May a reservation be held? The rules of admission, and the figures of a refusal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from memoflow.budget import DIMENSIONS
from memoflow.errors import BudgetDenied, BudgetUnbounded, EstimateRefused, InvalidBudget, PriceUnknown
from memoflow.ledger.holdings import Account, Ask, Balance, SoftLimit
from memoflow.periods import to_datetime

__all__ = ["admit"]

_TOKENS_OUT: Final = ("total_tokens", "output_tokens")
_HINTS: Final = {
    "total_tokens": "Reserve total_tokens, or set an output cap on the request.",
    "output_tokens": "Reserve output_tokens or total_tokens, or set an output cap on the request.",
    "input_tokens": "Reserve input_tokens, or declare the input with input_tokens=….",
    "wall_clock_ms": "Pass timeout=… or reserve wall_clock_ms.",
}


def admit(chain: Iterable[tuple[Account, Balance]], ask: Ask) -> list[SoftLimit]:
    """Check a reservation against every account it touches; nothing is changed.

    Returns:
        The soft limits it would go over.

    Raises:
        BudgetDenied, BudgetUnbounded, EstimateRefused, PriceUnknown, InvalidBudget.
    """
    if ask.unpriced and not ask.allow_unpriced:
        raise PriceUnknown(model=ask.model)
    return [alert for account, balance in chain for alert in _admit(account, balance, ask)]


def _admit(account: Account, balance: Balance, ask: Ask) -> list[SoftLimit]:
    _check_currency(account, ask)
    if account.state != "OPEN":
        raise _denied(account, balance, 0, ask, reason="closed")
    if account.strict_input and ask.estimated:
        raise EstimateRefused(account=account.path)
    alerts = []
    used = balance.used
    for i, name in enumerate(DIMENSIONS):
        hard, soft, amount = account.hard[i], account.soft[i], ask.amounts[i]
        # An account that is over its limit takes nothing new, not even what does not use that dimension.
        if hard is not None and used[i] + _bounded(account, name, amount, ask) > hard:
            raise _denied(account, balance, i, ask)
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


def _denied(account: Account, balance: Balance, i: int, ask: Ask, reason: str = "limit") -> BudgetDenied:
    hard = account.hard[i] or 0
    used = balance.used[i]
    requested = ask.amounts[i] or 0
    # No output cap fits on a closed account, and it may limit nothing.
    of_output = reason == "limit" and DIMENSIONS[i] in _TOKENS_OUT
    return BudgetDenied(
        account=account.path,
        dimension=DIMENSIONS[i],
        limit=hard,
        settled=balance.settled[i],
        held=balance.held[i],
        unknown=balance.unknown[i],
        requested=requested,
        resets_at=None if balance.period_end is None else to_datetime(balance.period_end),
        output_cap_fits=_output_that_fits(account, balance, ask) if of_output else None,
        reason="over_limit" if reason == "limit" and used > hard else reason,
    )


def _output_that_fits(account: Account, balance: Balance, ask: Ask) -> int:
    """The largest output cap that this account would admit now, the rest of the request unchanged."""
    asked = dict(zip(DIMENSIONS, ask.amounts, strict=True))
    used = dict(zip(DIMENSIONS, balance.used, strict=True))
    hard = dict(zip(DIMENSIONS, account.hard, strict=True))
    fits = []
    if hard["total_tokens"] is not None:
        fits.append(hard["total_tokens"] - used["total_tokens"] - (asked["input_tokens"] or 0))
    if hard["output_tokens"] is not None:
        fits.append(hard["output_tokens"] - used["output_tokens"])
    return max(0, min(fits))
