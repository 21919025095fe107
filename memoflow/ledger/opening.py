"""An activity that begins with its first request: claimed and started in one operation, both or neither."""

from __future__ import annotations

from dataclasses import dataclass

from memoflow.budget import Amounts
from memoflow.errors import MemoflowError, VirtualKeyRefused
from memoflow.ledger.activities import ClaimActivity
from memoflow.ledger.holdings import Account, Balance
from memoflow.ledger.invocations import Started, StartInvocation
from memoflow.ledger.transaction import Needs, Refused, Transaction
from memoflow.ledger.virtual_keys import VirtualKey

__all__ = ["IdentityTaken", "OpenActivity", "Opened"]


class IdentityTaken(MemoflowError):
    """There is an activity of this identity already; claim it like any other."""


@dataclass(frozen=True, slots=True)
class Opened(Started):
    """A started request, with what it holds and what its accounts have left beside it.

    ``left`` has the least over all accounts that are charged, None in a dimension that none of them limits.
    """

    held: Amounts
    left: tuple[int | None, ...]
    currency: str | None


@dataclass(frozen=True, slots=True, eq=False)
class OpenActivity:
    """Claim an activity that is new, on behalf of a virtual key, and start its first request.

    A claim that names the activity of the request's fence is the only one that goes with it. Whatever is
    refused leaves nothing behind: neither the activity nor an attempt that would have to be ended.
    """

    claim: ClaimActivity
    start: StartInvocation
    key: VirtualKey

    def needs(self, needs: Needs) -> None:
        """What both need, and whether the key was revoked."""
        self.claim.needs(needs)
        self.start.needs(needs)
        needs.virtual_keys.add(self.key.id)

    def apply(self, tx: Transaction) -> Opened | Refused:
        """Claim and start.

        Raises:
            IdentityTaken: the activity exists.
            VirtualKeyRefused: the key was revoked or has expired.
            BudgetError: the reservation is refused.
        """
        there = tx.activity(self.claim.key)
        if there is None:
            self._check_key(tx)
            # All decisions come before the first change.
            self.start.admit(tx)
            self.claim.apply(tx)
        elif there.id != self.claim.id:
            raise IdentityTaken("An activity of this identity exists.")
        started = self.start.apply(tx)
        return started if isinstance(started, Refused) else self._opened(tx, started)

    def _check_key(self, tx: Transaction) -> None:
        if tx.revoked(self.key.id):
            raise VirtualKeyRefused(reason="revoked", id=self.key.id)
        if self.key.expired(tx.now):
            raise VirtualKeyRefused(reason="expired", id=self.key.id)

    def _opened(self, tx: Transaction, started: Started) -> Opened:
        chain = tx.book.chain(self.start.fence.namespace, self.start.accounts)
        currency = next((account.currency for account, _ in chain if account.currency), None)
        return Opened(
            started.invocation_id,
            started.turn_id,
            started.alerts,
            held=self.start.ask.hold(),
            left=_least([_left_on(*pair) for pair in chain]),
            currency=currency,
        )


def _left_on(account: Account, balance: Balance) -> list[int | None]:
    pairs = zip(account.hard, balance.used, strict=True)
    return [None if limit is None else max(0, limit - used) for limit, used in pairs]


def _least(rows: list[list[int | None]]) -> tuple[int | None, ...]:
    columns = [[value for value in column if value is not None] for column in zip(*rows, strict=True)]
    return tuple(min(column, default=None) for column in columns)
