"""The accounts and balances of one batch: loading, posting, and the journal.

This is the only code that changes a balance. Every change is posted: it becomes a journal row
with signed differences, chained to the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from sqlalchemy import select

from memoflow.budget import DIMENSIONS, Amounts
from memoflow.errors import BudgetNotConfigured, LedgerUnavailable
from memoflow.ledger import schema as s
from memoflow.ledger.holdings import ACCOUNTS, PATH, ZERO, Account, Balance, account_of, chain_of
from memoflow.ledger.journal import GENESIS, Entry, entry_hash
from memoflow.ledger.statements import Keys, Sets, columns_of
from memoflow.periods import window

__all__ = ["BalanceBook"]


class BalanceBook:
    """The accounts and balances a batch works on."""

    def __init__(self, sets: Sets, now: int) -> None:
        self._sets = sets
        self._now = now
        self._accounts: dict[tuple[str, str], Account] = {}
        self._balances: dict[int, Balance] = {}
        self._current: dict[int, int] = {}
        self._legs: dict[str, list[int]] = {}
        self._entries: list[Entry] = []
        self._hashes: list[str] = []
        self.changes = 0

    # Loading

    def load(self, paths: Iterable[tuple[str, str]], reservations: Iterable[str]) -> None:
        """Load accounts with their ancestors and current balances, and the balances of reservations.

        All balances are locked together in the order of their ids.
        """
        accounts = {(ns, link) for ns, path in paths for link in chain_of(path)} - self._accounts.keys()
        fresh = set(reservations) - self._legs.keys()
        with self._sets.at_once():
            found = self._ask(ACCOUNTS, PATH, accounts)
            legs = self._ask(_LEGS, (s.journal.c.reservation_id,), fresh)
        self._adopt_accounts(found())
        self._adopt_legs(fresh, legs())
        self._find_current()
        wanted = {*self._current.values(), *(b for legs in self._legs.values() for b in legs)}
        with self._sets.at_once():
            locked = self._ask(s.balances, (s.balances.c.id,), wanted - self._balances.keys(), lock=True)
            # Whoever changes limits locks the balance too: only from here on they stay as they are. Those
            # that were read before may have been replaced while this waited for the lock.
            again = self._ask(ACCOUNTS, PATH, set() if self._sets.alone else accounts & self._accounts.keys())
        self._balances.update((row[0], _balance_of(row)) for row in locked())
        self._adopt_accounts(again())

    def _ask(
        self, what: Any, keys: Keys, values: Collection[Any], *, lock: bool = False
    ) -> Callable[[], list[Any]]:
        return self._sets.ask(what, keys, sorted(values), lock=lock)

    def _adopt_accounts(self, rows: list[Any]) -> None:
        for account in map(account_of, rows):
            self._accounts[account.namespace, account.path] = account

    def _adopt_legs(self, reservations: set[str], rows: list[Any]) -> None:
        for id in reservations:
            self._legs[id] = []
        for event, reservation, balance in rows:
            if event == "reserve":
                self._legs[reservation].append(balance)

    def _find_current(self) -> None:
        """Find the balance of the current period of every loaded account, and open it where it is missing."""
        spans = {
            account.id: window(account.period, account.time_zone, self._now)
            for account in self._accounts.values()
            if account.id not in self._current
        }
        wanted = {(id, span.start_us) for id, span in spans.items()}
        self._look_up(wanted)
        missing = [
            (id, start, spans[id].end_us, 0, GENESIS)
            for id, start in sorted(wanted)
            if id not in self._current
        ]
        if missing:
            names = ("account_id", "period_start", "period_end", "seq", "head")
            self._sets.insert(s.balances, names, missing, unless_there=_PERIOD)
            self._look_up(wanted)

    def _look_up(self, keys: set[tuple[int, int]]) -> None:
        self._current.update(self._ask(_CURRENT, _PERIOD, keys)())

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
        self._entries.append(entry)
        self._hashes.append(balance.head)

    # Writing

    def flush_balances(self) -> Callable[[], None]:
        """Write the changed balances. Each must still stand where it was loaded: the result checks that."""
        changed = [b for b in self._balances.values() if b.seq != b.loaded_seq]
        if not changed:
            return lambda: None
        rows = [(*b.settled, *b.held, *b.unknown, b.seq, b.head, b.id, b.loaded_seq) for b in changed]
        moved = self._sets.update(s.balances, ("id", "seq"), _MOVING, rows)

        def check() -> None:
            if moved() != len(changed):
                raise LedgerUnavailable(
                    "A balance was changed by somebody outside the ledger's locks. Run `memoflow verify`."
                )
            for balance in changed:
                balance.loaded_seq = balance.seq

        return check

    def flush_journal(self) -> None:
        """Write the journal rows of this batch."""
        if self._entries:
            rows = [
                (*entry[:6], *entry.settled, *entry.held, *entry.unknown, digest)
                for entry, digest in zip(self._entries, self._hashes, strict=True)
            ]
            self._sets.insert(s.journal, columns_of(s.journal), rows)
            self._entries, self._hashes = [], []


def _balance_of(row: Sequence[Any]) -> Balance:
    # The columns of the table, in their order.
    width = len(DIMENSIONS)
    id, account, start, end, *sums, seq, head = row
    settled, held, unknown = (Amounts(*sums[i : i + width]) for i in range(0, 3 * width, width))
    return Balance(id, account, start, end, settled, held, unknown, seq, head, seq)


_MOVING: Final = (*columns_of(s.balances)[4:],)
_PERIOD: Final = (s.balances.c.account_id, s.balances.c.period_start)
_CURRENT: Final = select(s.balances.c.account_id, s.balances.c.id)
_LEGS: Final = select(s.journal.c.event, s.journal.c.reservation_id, s.journal.c.balance_id)
