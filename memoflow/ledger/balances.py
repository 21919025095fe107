"""The accounts and balances of one batch: loading, posting, and the journal.

This is the only code that changes a balance. Every change is posted: it becomes a journal row
with signed differences, chained to the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, tuple_, update

from memoflow.budget import DIMENSIONS, Amounts
from memoflow.errors import BudgetNotConfigured, LedgerUnavailable
from memoflow.ledger import schema as s
from memoflow.ledger.holdings import ZERO, Account, Balance, account_of, chain_of
from memoflow.ledger.journal import GENESIS, Entry, entry_hash
from memoflow.periods import window

__all__ = ["BalanceBook"]


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

    # Posting

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
        """Replace the hold of a reservation.

        The event says by what: ``settle`` by actual usage, ``release`` by nothing, ``unknown`` keeps it.
        """
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
        s.policies.c.strict_input,
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
