"""Accounts, limits and balances of one batch: admission, posting, and the journal.

This is the only code that changes a balance. Every change is posted: it becomes a journal row
with signed differences, chained to the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, tuple_, update

from memoflow.budget import DIMENSIONS, Amounts
from memoflow.errors import (
    BudgetDenied,
    BudgetNotConfigured,
    BudgetUnbounded,
    InvalidBudget,
    LedgerUnavailable,
    PriceUnknown,
)
from memoflow.ledger import schema as s
from memoflow.ledger.journal import GENESIS, Entry, entry_hash
from memoflow.periods import Period, to_datetime, window

__all__ = ["Account", "Ask", "Balance", "BalanceBook", "SoftLimit", "account_of", "chain_of"]

ZERO = Amounts()
_TOKENS_OUT = ("total_tokens", "output_tokens")
_HINTS = {
    "total_tokens": "Reserve total_tokens, or set an output cap on the request.",
    "output_tokens": "Reserve output_tokens or total_tokens, or set an output cap on the request.",
    "input_tokens": "Reserve input_tokens, or declare the input with input_tokens=….",
    "wall_clock_ms": "Pass timeout=… or reserve wall_clock_ms.",
}


@dataclass(slots=True)
class Account:
    """An account with the policy now in force."""

    id: int
    path: str
    period: Period
    time_zone: str
    currency: str | None
    state: str
    policy_version: int
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


@dataclass(frozen=True, slots=True)
class Ask:
    """What a reservation wants to hold. None in a dimension means: no upper bound is known."""

    amounts: tuple[int | None, ...]
    currency: str | None
    model: str
    allow_unpriced: bool = False

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


def account_of(row: Any) -> Account:
    """The account in a row of `ACCOUNTS`."""
    return Account(
        row.id,
        row.path,
        row.period,
        row.time_zone,
        row.currency,
        row.state,
        row.policy_version,
        tuple(getattr(row, f"hard_{name}") for name in DIMENSIONS),
        tuple(getattr(row, f"soft_{name}") for name in DIMENSIONS),
    )


def chain_of(path: str) -> list[str]:
    """The account's path and those of all its ancestors, root first."""
    parts = path.split("/")
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


class BalanceBook:
    """The accounts and balances a batch works on."""

    def __init__(self, connection: Connection, now: int) -> None:
        self._connection = connection
        self._now = now
        self._accounts: dict[tuple[str, str], Account] = {}
        self._account_by_id: dict[int, Account] = {}
        self._balances: dict[int, Balance] = {}
        self._current: dict[int, int] = {}
        self._legs: dict[str, list[int]] = {}
        self._entries: list[dict[str, Any]] = []
        self.changes = 0

    # Loading

    def load(self, paths: Iterable[tuple[str, str]], reservations: Iterable[str]) -> None:
        """Load accounts with their ancestors and current balances, and the balances of reservations.

        All balances are locked together in the order of their ids.
        """
        self._load_accounts({(ns, link) for ns, path in paths for link in chain_of(path)})
        self._find_current()
        self._load_legs(set(reservations) - self._legs.keys())
        wanted = {*self._current.values(), *(b for legs in self._legs.values() for b in legs)}
        self._lock(wanted - self._balances.keys())

    def _load_accounts(self, keys: set[tuple[str, str]]) -> None:
        missing = sorted(keys - self._accounts.keys())
        if not missing:
            return
        for row in self._connection.execute(ACCOUNTS, {"keys": missing}):
            account = account_of(row)
            self._accounts[row.namespace, row.path] = account
            self._account_by_id[row.id] = account

    def _find_current(self) -> None:
        """Find the balance of the current period of every loaded account, and open it where it is missing."""
        spans = {
            account.id: window(account.period, account.time_zone, self._now)
            for account in self._accounts.values()
            if account.id not in self._current
        }
        wanted = {(id, span.start_us) for id, span in spans.items()}
        if not wanted:
            return
        self._look_up(wanted)
        missing = [
            {
                "account_id": id,
                "period_start": start,
                "period_end": spans[id].end_us,
                "seq": 0,
                "head": GENESIS,
            }
            for id, start in sorted(wanted)
            if id not in self._current
        ]
        if missing:
            self._connection.execute(_open_balance(self._connection.dialect.name), missing)
            self._look_up(wanted)

    def _look_up(self, keys: set[tuple[int, int]]) -> None:
        for row in self._connection.execute(_BALANCE_IDS, {"keys": sorted(keys)}):
            self._current[row.account_id] = row.id

    def _load_legs(self, reservations: set[str]) -> None:
        if reservations:
            for id in reservations:
                self._legs[id] = []
            for row in self._connection.execute(_LEGS, {"ids": sorted(reservations)}):
                self._legs[row.reservation_id].append(row.balance_id)

    def _lock(self, ids: set[int]) -> None:
        if not ids:
            return
        for row in self._connection.execute(_BALANCES, {"ids": sorted(ids)}):
            self._balances[row.id] = Balance(
                row.id,
                row.account_id,
                row.period_start,
                row.period_end,
                s.read_amounts(row, "settled"),
                s.read_amounts(row, "held"),
                s.read_amounts(row, "unknown"),
                row.seq,
                row.head,
                row.seq,
            )

    # Looking

    def chain(self, namespace: str, paths: Iterable[str]) -> list[tuple[Account, Balance]]:
        """The accounts a reservation on these paths touches, ancestors included, in a fixed order.

        Raises:
            BudgetNotConfigured: one of them does not exist.
        """
        links: dict[str, Account] = {}
        for path in paths:
            for link in chain_of(path):
                account = self._accounts.get((namespace, link))
                if account is None:
                    raise BudgetNotConfigured(account=link, namespace=namespace)
                links[link] = account
        chain = [(account, self._balances[self._current[account.id]]) for account in links.values()]
        return sorted(chain, key=lambda pair: pair[1].id)

    def account(self, namespace: str, path: str) -> Account | None:
        """A loaded account, or None if there is none of that path."""
        return self._accounts.get((namespace, path))

    def balance(self, account: Account) -> Balance:
        """The balance of a loaded account in the current period."""
        return self._balances[self._current[account.id]]

    def reload(self, namespace: str, path: str) -> Account:
        """Look again at an account that this batch has just created or changed."""
        self._accounts.pop((namespace, path), None)
        self.load([(namespace, path)], ())
        return self._accounts[namespace, path]

    # Deciding and posting

    def admit(self, namespace: str, paths: Iterable[str], ask: Ask) -> list[SoftLimit]:
        """Check a reservation against every account it touches; nothing is changed.

        Returns:
            The soft limits it would go over.

        Raises:
            BudgetNotConfigured, BudgetDenied, BudgetUnbounded, PriceUnknown, InvalidBudget.
        """
        alerts: list[SoftLimit] = []
        for account, balance in self.chain(namespace, paths):
            _check_currency(account, ask)
            if account.state != "OPEN":
                raise _denied(account, balance, 0, ask, reason="closed")
            used = balance.used
            for i, name in enumerate(DIMENSIONS):
                hard, soft, amount = account.hard[i], account.soft[i], ask.amounts[i]
                if hard is not None:
                    amount = self._bounded(account, name, amount, ask)
                    if used[i] + amount > hard:
                        raise _denied(account, balance, i, ask)
                if soft is not None and used[i] + (amount or 0) > soft:
                    alerts.append(SoftLimit(account.path, name, soft, used[i] + (amount or 0)))
        return alerts

    @staticmethod
    def _bounded(account: Account, name: str, amount: int | None, ask: Ask) -> int:
        if amount is not None:
            return amount
        if name != "cost":
            raise BudgetUnbounded(account=account.path, dimension=name, hint=_HINTS[name])
        if ask.allow_unpriced:
            return 0
        if ask.currency is None:
            raise PriceUnknown(model=ask.model, account=account.path)
        raise BudgetUnbounded(account=account.path, dimension=name, hint=_HINTS["output_tokens"])

    def reserve(self, namespace: str, paths: Iterable[str], reservation: str, amounts: Amounts) -> None:
        """Hold an admitted reservation on every account it touches."""
        legs = []
        for account, balance in self.chain(namespace, paths):
            self._post(balance, "reserve", reservation, account.policy_version, held=amounts)
            legs.append(balance.id)
        self._legs[reservation] = legs

    def resolve(
        self, reservation: str, event: str, reserved: Amounts, *, was_unknown: bool, actual: Amounts = ZERO
    ) -> None:
        """Replace the hold of a reservation: ``settle`` by actual usage, ``release`` by nothing, or keep it as ``unknown``."""
        gone = reserved.negated()
        for id in sorted(self._legs_of(reservation)):
            balance = self._balances[id]
            self._post(
                balance,
                event,
                reservation,
                0,
                settled=actual if event == "settle" else ZERO,
                held=ZERO if was_unknown else gone,
                unknown=gone if was_unknown else reserved if event == "unknown" else ZERO,
            )

    def _legs_of(self, reservation: str) -> list[int]:
        if reservation not in self._legs:
            self.load((), (reservation,))
        return self._legs[reservation]

    def _post(
        self,
        balance: Balance,
        event: str,
        reservation: str,
        policy_version: int,
        *,
        settled: Amounts = ZERO,
        held: Amounts = ZERO,
        unknown: Amounts = ZERO,
    ) -> None:
        self.changes += 1
        balance.seq += 1
        if settled is not ZERO:
            balance.settled = balance.settled.plus(settled)
        if held is not ZERO:
            balance.held = balance.held.plus(held)
        if unknown is not ZERO:
            balance.unknown = balance.unknown.plus(unknown)
        entry = Entry(
            balance.id, balance.seq, self._now, event, reservation, policy_version, settled, held, unknown
        )
        balance.head = entry_hash(balance.head, entry)
        self._entries.append(_entry_values(entry, balance.head))

    # Writing

    def flush_balances(self) -> None:
        """Write the changed balances. Each must still stand where it was loaded."""
        changed = [b for b in self._balances.values() if b.seq != b.loaded_seq]
        if not changed:
            return
        result = self._connection.execute(
            _UPDATE_BALANCE,
            [
                {
                    "_id": b.id,
                    "_seq": b.loaded_seq,
                    "seq": b.seq,
                    "head": b.head,
                    **s.amount_values("settled", b.settled),
                    **s.amount_values("held", b.held),
                    **s.amount_values("unknown", b.unknown),
                }
                for b in changed
            ],
        )
        if result.rowcount != len(changed):
            raise LedgerUnavailable(
                "A balance was changed by somebody outside the ledger's locks. Run `memoflow verify`."
            )
        for balance in changed:
            balance.loaded_seq = balance.seq

    def flush_journal(self) -> None:
        """Write the journal rows of this batch."""
        if self._entries:
            self._connection.execute(insert(s.journal), self._entries)
            self._entries = []


def _entry_values(entry: Entry, digest: str) -> dict[str, Any]:
    return {
        "balance_id": entry.balance_id,
        "seq": entry.seq,
        "at": entry.at,
        "event": entry.event,
        "reservation_id": entry.reservation_id,
        "policy_version": entry.policy_version,
        "hash": digest,
        **s.amount_values("settled", entry.settled),
        **s.amount_values("held", entry.held),
        **s.amount_values("unknown", entry.unknown),
    }


def _check_currency(account: Account, ask: Ask) -> None:
    if account.currency is not None and ask.currency is not None and account.currency != ask.currency:
        raise InvalidBudget(
            f"Budget account {account.path!r} counts cost in {account.currency}, but the call is priced in {ask.currency}. "
            "Price the model in the account's currency."
        )


def _denied(account: Account, balance: Balance, i: int, ask: Ask, reason: str = "limit") -> BudgetDenied:
    hard = account.hard[i] or 0
    used = balance.used[i]
    requested = ask.amounts[i] or 0
    error = BudgetDenied(
        account=account.path,
        dimension=DIMENSIONS[i],
        limit=hard,
        settled=balance.settled[i],
        held=balance.held[i],
        unknown=balance.unknown[i],
        requested=requested,
        resets_at=None if balance.period_end is None else to_datetime(balance.period_end),
        output_cap_fits=_output_that_fits(account, balance, ask) if DIMENSIONS[i] in _TOKENS_OUT else None,
        reason="over_limit" if reason == "limit" and used > hard else reason,
    )
    return error


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


_b = s.balances.c
ACCOUNTS = (
    select(
        s.accounts.c.id,
        s.accounts.c.namespace,
        s.accounts.c.path,
        s.accounts.c.period,
        s.accounts.c.time_zone,
        s.accounts.c.currency,
        s.accounts.c.state,
        s.accounts.c.policy_version,
        *[s.policies.c[f"{kind}_{name}"] for kind in ("hard", "soft") for name in DIMENSIONS],
    )
    .join(
        s.policies,
        (s.policies.c.account_id == s.accounts.c.id) & (s.policies.c.version == s.accounts.c.policy_version),
    )
    .where(tuple_(s.accounts.c.namespace, s.accounts.c.path).in_(bindparam("keys", expanding=True)))
)
_BALANCE_IDS = select(_b.id, _b.account_id).where(
    tuple_(_b.account_id, _b.period_start).in_(bindparam("keys", expanding=True))
)
_BALANCES = (
    select(s.balances).where(_b.id.in_(bindparam("ids", expanding=True))).order_by(_b.id).with_for_update()
)
_LEGS = select(s.journal.c.reservation_id, s.journal.c.balance_id).where(
    s.journal.c.reservation_id.in_(bindparam("ids", expanding=True)), s.journal.c.event == "reserve"
)
_UPDATE_BALANCE = (
    update(s.balances)
    .where(_b.id == bindparam("_id"), _b.seq == bindparam("_seq"))
    .values(
        {
            name: bindparam(name)
            for name in (
                "seq",
                "head",
                *[f"{kind}_{d}" for kind in ("settled", "held", "unknown") for d in DIMENSIONS],
            )
        }
    )
)


@cache
def _open_balance(dialect: str) -> Any:
    if dialect == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as upsert
    else:
        from sqlalchemy.dialects.postgresql import insert as upsert  # type: ignore[assignment]
    return upsert(s.balances).on_conflict_do_nothing(index_elements=["account_id", "period_start"])
