"""What the rules of budgets work on: accounts with their policy, balances, and what a call asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import select

from memoflow.budget import DIMENSIONS, Amounts
from memoflow.ledger import schema as s
from memoflow.periods import Period
from memoflow.pricing import Price

__all__ = ["Account", "Ask", "Balance", "SoftLimit", "account_of", "chain_of"]

ZERO: Final = Amounts()


@dataclass(slots=True)
class Account:
    """An account with the policy now in force."""

    id: int
    namespace: str
    path: str
    period: Period
    time_zone: str
    currency: str | None
    state: str
    policy_version: int
    strict_input: bool
    hard: tuple[int | None, ...]
    soft: tuple[int | None, ...]


@dataclass(slots=True)
class Balance:
    """The running sums of one account in one period."""

    id: int
    account_id: int
    period_start: int
    period_end: int | None
    settled: Amounts
    held: Amounts
    unknown: Amounts
    seq: int
    head: str
    loaded_seq: int

    @property
    def used(self) -> Amounts:
        """Settled, held and unknown together: what a hard limit is compared with."""
        return self.settled.plus(self.held).plus(self.unknown)


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """What a reservation wants to hold. None in a dimension means: no upper bound is known.

    ``unpriced``: the call itself limits money, and its model has no price. ``estimated``: the input is
    estimated, and may turn out larger. ``price``: what cost follows from, where it is known.
    ``cap_minimum``: the smallest output cap that the provider accepts. ``choices``: replies that are each
    generated up to the cap.
    """

    amounts: tuple[int | None, ...]
    currency: str | None
    model: str
    allow_unpriced: bool = False
    unpriced: bool = False
    estimated: bool = False
    price: Price | None = None
    cap_minimum: int = 1
    choices: int = 1

    def capped(self, cap: int) -> Ask:
        """The same call with this output cap, and no more reserved than it needs; its input must be known."""
        asked = dict(zip(DIMENSIONS, self.amounts, strict=True))
        tokens_in = asked["input_tokens"] or 0
        output = cap * self.choices
        asked |= {"output_tokens": output, "total_tokens": tokens_in + output}
        if self.price is not None:
            asked["cost"] = self.price.ceiling(input_tokens=tokens_in, output_tokens=output)
        return replace(self, amounts=tuple(asked.values()))

    def hold(self) -> Amounts:
        """The amounts held: unbounded dimensions hold nothing (no limit may exist on them)."""
        return Amounts(*[amount or 0 for amount in self.amounts])


@dataclass(frozen=True, slots=True)
class SoftLimit:
    """A soft limit that an admitted reservation went over: an alert, not a refusal."""

    account: str
    dimension: str
    limit: int
    used: int


def account_of(row: Sequence[Any]) -> Account:
    """The account in a row of `ACCOUNTS`."""
    id, namespace, path, period, zone, currency, state, version, strict, *limits = row
    hard, soft = tuple(limits[: len(DIMENSIONS)]), tuple(limits[len(DIMENSIONS) :])
    return Account(id, namespace, path, period, zone, currency, state, version, bool(strict), hard, soft)


def chain_of(path: str) -> list[str]:
    """The account's path and those of all its ancestors, root first."""
    parts = path.split("/")
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


_a, _p = s.accounts.c, s.policies.c
ACCOUNTS: Final = select(
    *(_a.id, _a.namespace, _a.path, _a.period, _a.time_zone, _a.currency, _a.state, _a.policy_version),
    _p.strict_input,
    *[_p[f"{kind}_{name}"] for kind in ("hard", "soft") for name in DIMENSIONS],
).join(s.policies, (_p.account_id == _a.id) & (_p.version == _a.policy_version))
"""Accounts with the policy now in force."""
PATH: Final = (_a.namespace, _a.path)
"""What names an account."""
