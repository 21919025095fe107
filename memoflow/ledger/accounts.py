"""Budget accounts: creating them, changing their limits, closing them.

An account's limits are a policy; every change is a further version, with who and why. Nothing here
moves a balance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, insert, select, update

from memoflow.budget import Budget
from memoflow.errors import BudgetNotConfigured, InvalidBudget
from memoflow.identity import check_name
from memoflow.ledger import schema as s
from memoflow.ledger.account_queries import (
    AccountInfo,
    PolicyVersion,
    account_info,
    list_accounts,
    policy_history,
    read_account,
    remaining,
)
from memoflow.ledger.holdings import Account, chain_of
from memoflow.ledger.transaction import Needs, Transaction
from memoflow.periods import Window, check_period, check_time_zone

__all__ = [
    "AccountInfo",
    "PolicyVersion",
    "PutAccount",
    "SetAccountState",
    "check_path",
    "check_reason",
    "list_accounts",
    "policy_history",
    "read_account",
    "remaining",
]

MAX_DEPTH: Final = 8
MAX_SEGMENT: Final = 200
MAX_REASON: Final = 1000


def check_path(path: object) -> str:
    """Return ``path`` if it can name an account: segments joined by ``/``.

    Raises:
        InvalidBudget: it is not text, has more than 8 segments, or a segment is empty, longer than 200
            characters, or holds a control character or lone surrogate.
    """
    if not isinstance(path, str):
        raise InvalidBudget(f"An account path must be text, not {type(path).__name__}.")
    segments = path.split("/")
    if len(segments) > MAX_DEPTH:
        raise InvalidBudget(f"An account path has at most {MAX_DEPTH} segments, not {len(segments)}.")
    for segment in segments:
        if not 1 <= len(segment) <= MAX_SEGMENT:
            raise InvalidBudget(
                f"Each segment of an account path has 1 to {MAX_SEGMENT} characters, not {len(segment)}; "
                "a path looks like 'acme/support', without a slash at either end."
            )
        if any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) <= 0xDFFF for c in segment):
            raise InvalidBudget("An account path must not hold control characters or lone surrogates.")
    return path


def check_reason(reason: object, *, required: bool = False) -> str:
    """Return a reason if it can be kept: text of at most 1000 characters, in one line."""
    return "" if reason == "" and not required else check_name("reason", reason, limit=MAX_REASON)


@dataclass(frozen=True, slots=True, eq=False)
class PutAccount:
    """Create an account, or give it other limits; the limits given replace those there were, whole.

    Creating needs the parent to exist. The same limits again change nothing. Period and time zone are set
    when an account is created and stay. With ``only_create`` an account that exists is left as it is.
    """

    namespace: str
    path: str
    hard: Budget
    soft: Budget | None
    period: str | None
    time_zone: str | None
    actor: str
    reason: str
    strict_input: bool = False
    only_create: bool = False

    def __post_init__(self) -> None:
        check_name("namespace", self.namespace)
        check_path(self.path)
        check_name("actor", self.actor)
        check_reason(self.reason)
        if self.period is not None:
            check_period(self.period)
        if self.time_zone is not None:
            check_time_zone(self.time_zone)
        _check_limits(self.hard, self.soft)

    @property
    def _soft(self) -> Budget:
        return self.soft or Budget()

    @property
    def _currency(self) -> str | None:
        return self.hard.currency or self._soft.currency

    def needs(self, needs: Needs) -> None:
        """The account and its ancestors."""
        needs.accounts.add((self.namespace, self.path))

    def apply(self, tx: Transaction) -> AccountInfo:
        """Create or change; returns the account as it is now."""
        account = tx.book.account(self.namespace, self.path)
        if account is None:
            parent = self._parent(tx)
            self._check_currency(tx)
            self._create(tx, parent)
        elif self.only_create:
            return _info_of(tx, self.namespace, account)
        else:
            self._check_fixed(account)
            self._check_currency(tx)
            if not self._changes(account):
                return _info_of(tx, self.namespace, account)
            self._replace(tx, account)
        return _info_of(tx, self.namespace, tx.book.reload(self.namespace, self.path))

    def _parent(self, tx: Transaction) -> int | None:
        parent: Account | None = None
        for link in chain_of(self.path)[:-1]:
            parent = tx.book.account(self.namespace, link)
            if parent is None:
                raise BudgetNotConfigured(account=link, namespace=self.namespace)
        return None if parent is None else parent.id

    def _check_fixed(self, account: Account) -> None:
        for what, now, asked in (
            ("period", account.period, self.period),
            ("time zone", account.time_zone, self.time_zone),
        ):
            if asked is not None and asked != now:
                raise InvalidBudget(
                    f"The {what} of budget account {self.path!r} is {now!r} and cannot change to {asked!r}, "
                    "because open holds belong to its periods. Close it and create another account."
                )

    def _check_currency(self, tx: Transaction) -> None:
        # Sums of different currencies mean nothing, and they would meet at the root.
        other = None if self._currency is None else self._counted(tx)
        if other is not None and other[1] != self._currency:
            path, currency = other
            raise InvalidBudget(
                f"Budget account {path!r} counts cost in {currency}, so {self.path!r} cannot count it in "
                f"{self._currency}: a tree of accounts has one currency. Use {currency}."
            )

    def _counted(self, tx: Transaction) -> tuple[str, str] | None:
        """An account of the same tree that counts cost, and in which currency; all of them agree."""
        for link in chain_of(self.path):
            account = tx.book.account(self.namespace, link)
            if account is not None and account.currency is not None:
                return account.path, account.currency
        root = self.path.partition("/")[0]
        c = s.accounts.c
        below = func.substr(c.path, 1, len(root) + 1) == root + "/"
        query = select(c.path, c.currency).where(
            c.namespace == self.namespace, below, c.currency.is_not(None)
        )
        row = tx.connection.execute(query.limit(1)).one_or_none()
        return None if row is None else (row.path, row.currency)

    def _changes(self, account: Account) -> bool:
        now = (account.hard, account.soft, account.strict_input)
        return now != (self.hard.values(), self._soft.values(), self.strict_input)

    def _create(self, tx: Transaction, parent: int | None) -> None:
        new = insert(s.accounts).values(
            namespace=self.namespace,
            path=self.path,
            parent_id=parent,
            period=self.period or "none",
            time_zone=self.time_zone or "UTC",
            currency=self._currency,
            state="OPEN",
            policy_version=1,
            created_at=tx.now,
        )
        id = tx.execute(new.returning(s.accounts.c.id)).scalar_one()
        self._add_version(tx, id, 1, "OPEN")

    def _replace(self, tx: Transaction, account: Account) -> None:
        version = account.policy_version + 1
        self._add_version(tx, account.id, version, account.state)
        tx.execute(
            update(s.accounts)
            .where(s.accounts.c.id == account.id)
            .values(policy_version=version, currency=account.currency or self._currency)
        )

    def _add_version(self, tx: Transaction, account_id: int, version: int, state: str) -> None:
        values = s.amount_values("hard", self.hard.values()) | s.amount_values("soft", self._soft.values())
        values["strict_input"] = int(self.strict_input)
        _add_policy(tx, account_id, version, state, values, self.actor, self.reason)


def _check_limits(hard: object, soft: object) -> None:
    if not isinstance(hard, Budget) or not (soft is None or isinstance(soft, Budget)):
        raise InvalidBudget("Limits are a Budget, for example Budget(total_tokens=100_000).")
    if soft is None:
        return
    if None not in (hard.currency, soft.currency) and hard.currency != soft.currency:
        raise InvalidBudget(
            f"The hard limit is in {hard.currency}, the soft one in {soft.currency}. Use one currency."
        )
    for (name, limit), alert in zip(hard.items(), soft.values(), strict=True):
        if limit is not None and alert is not None and alert > limit:
            raise InvalidBudget(
                f"The soft limit of {name}, {alert}, is above the hard one, {limit}, and would never be "
                "reached. Lower it or raise the hard one."
            )


def _add_policy(
    tx: Transaction,
    account_id: int,
    version: int,
    state: str,
    limits: dict[str, int | None],
    actor: str,
    reason: str,
) -> None:
    row = {"account_id": account_id, "version": version, "state": state, "actor": actor, "reason": reason}
    tx.execute(insert(s.policies).values(**row, at=tx.now, **limits))


@dataclass(frozen=True, slots=True, eq=False)
class SetAccountState:
    """Close an account to new reservations, or open it again; holds are settled either way."""

    namespace: str
    path: str
    state: str
    actor: str
    reason: str

    def __post_init__(self) -> None:
        check_path(self.path)
        check_name("actor", self.actor)
        check_reason(self.reason)
        if self.state not in ("OPEN", "CLOSED"):
            raise InvalidBudget("The state of an account is OPEN or CLOSED.")

    def needs(self, needs: Needs) -> None:
        """The account."""
        needs.accounts.add((self.namespace, self.path))

    def apply(self, tx: Transaction) -> AccountInfo:
        """Change the state; returns the account as it is now."""
        account = tx.book.account(self.namespace, self.path)
        if account is None:
            raise BudgetNotConfigured(account=self.path, namespace=self.namespace)
        if account.state == self.state:
            return _info_of(tx, self.namespace, account)
        version = account.policy_version + 1
        limits = s.amount_values("hard", account.hard) | s.amount_values("soft", account.soft)
        limits["strict_input"] = int(account.strict_input)
        _add_policy(tx, account.id, version, self.state, limits, self.actor, self.reason)
        tx.execute(
            update(s.accounts)
            .where(s.accounts.c.id == account.id)
            .values(policy_version=version, state=self.state)
        )
        return _info_of(tx, self.namespace, tx.book.reload(self.namespace, self.path))


def _info_of(tx: Transaction, namespace: str, account: Account) -> AccountInfo:
    balance = tx.book.balance(account)
    span = Window(balance.period_start, balance.period_end)
    return account_info(namespace, account, span, balance.settled, balance.held, balance.unknown)
