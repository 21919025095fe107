"""Looking at budget accounts. Reading never opens a balance: a period without a reservation reads as zero."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, func, select, tuple_

from memoflow.budget import DIMENSIONS, Amounts, Budget, Money
from memoflow.errors import BudgetNotConfigured
from memoflow.ledger import schema as s
from memoflow.ledger.holdings import ACCOUNTS, PATH, ZERO, Account, account_of, chain_of
from memoflow.ledger.statements import Sets
from memoflow.periods import Window, window

__all__ = [
    "AccountInfo",
    "PolicyVersion",
    "account_info",
    "currencies",
    "list_accounts",
    "policy_history",
    "read_account",
    "remaining",
]

_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class AccountInfo:
    """An account, its limits, and its balance in the current period.

    Attributes:
        hard: limits that refuse; soft: limits that only alert.
        period_start: UTC microseconds; period_end: the same, None if the period never ends.
        settled: spent; held: reserved by calls that are running; unknown: kept until someone decides.
        over_limit: dimensions in which more is used than the hard limit allows.
        alerts: dimensions in which more is used than the soft limit.
        strict_input: whether reservations must hold an upper bound of their input, not an estimate.
    """

    namespace: str
    path: str
    state: str
    period: str
    time_zone: str
    currency: str | None
    policy_version: int
    hard: Budget
    soft: Budget
    period_start: int
    period_end: int | None
    settled: Amounts
    held: Amounts
    unknown: Amounts
    strict_input: bool = False

    @property
    def used(self) -> Amounts:
        """Settled, held and unknown together: what a hard limit is compared with."""
        return self.settled.plus(self.held).plus(self.unknown)

    @property
    def over_limit(self) -> tuple[str, ...]:
        """Dimensions in which more is used than the hard limit allows."""
        return _above(self.used, self.hard)

    @property
    def alerts(self) -> tuple[str, ...]:
        """Dimensions in which more is used than the soft limit."""
        return _above(self.used, self.soft)


def _above(used: Amounts, limits: Budget) -> tuple[str, ...]:
    pairs = zip(DIMENSIONS, used, limits.values(), strict=True)
    return tuple(name for name, amount, limit in pairs if limit is not None and amount > limit)


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """One version of an account's limits: what, who, why, and when (UTC microseconds)."""

    version: int
    state: str
    hard: Budget
    soft: Budget
    actor: str
    reason: str
    at: int


def account_info(
    namespace: str, account: Account, span: Window, settled: Amounts, held: Amounts, unknown: Amounts
) -> AccountInfo:
    """An account with the sums of one of its periods."""
    return AccountInfo(
        namespace=namespace,
        path=account.path,
        state=account.state,
        period=account.period,
        time_zone=account.time_zone,
        currency=account.currency,
        policy_version=account.policy_version,
        hard=_budget(account.hard, account.currency),
        soft=_budget(account.soft, account.currency),
        period_start=span.start_us,
        period_end=span.end_us,
        settled=settled,
        held=held,
        unknown=unknown,
        strict_input=account.strict_input,
    )


def _budget(values: Sequence[int | None], currency: str | None) -> Budget:
    amounts: dict[str, Any] = dict(zip(DIMENSIONS, values, strict=True))
    cost = amounts.pop("cost")
    if cost is None:
        return Budget(**amounts)
    assert currency is not None, "a limit of money gives its account a currency"
    return Budget(cost=Money(cost, currency), **amounts)


def read_account(connection: Connection, namespace: str, path: str, now: int) -> AccountInfo | None:
    """An account with its balance in the period that holds ``now``, or None."""
    rows = Sets(connection).select(ACCOUNTS, PATH, [(namespace, path)])
    return next(_with_balances(connection, namespace, [account_of(row) for row in rows], now), None)


def list_accounts(
    connection: Connection, namespace: str, now: int, *, under: str | None = None
) -> list[AccountInfo]:
    """All accounts of a namespace, or one and those below it, each parent before its children."""
    c = s.accounts.c
    query = select(c.path).where(c.namespace == namespace)
    if under is not None:
        query = query.where((c.path == under) | (func.substr(c.path, 1, len(under) + 1) == under + "/"))
    paths = sorted(connection.scalars(query), key=lambda path: path.split("/"))
    found: list[AccountInfo] = []
    for i in range(0, len(paths), _PAGE):
        keys = [(namespace, path) for path in paths[i : i + _PAGE]]
        rows = Sets(connection).select(ACCOUNTS, PATH, keys)
        accounts = {account.path: account for account in map(account_of, rows)}
        page = [accounts[path] for _, path in keys if path in accounts]
        found.extend(_with_balances(connection, namespace, page, now))
    return found


def _with_balances(
    connection: Connection, namespace: str, accounts: Sequence[Account], now: int
) -> Iterator[AccountInfo]:
    spans = {a.id: window(a.period, a.time_zone, now) for a in accounts}
    if not spans:
        return
    b = s.balances.c
    keys = [(id, span.start_us) for id, span in spans.items()]
    rows = connection.execute(select(s.balances).where(tuple_(b.account_id, b.period_start).in_(keys)))
    balances = {row.account_id: row for row in rows}
    for account in accounts:
        row = balances.get(account.id)
        sums = [ZERO if row is None else s.read_amounts(row, kind) for kind in ("settled", "held", "unknown")]
        yield account_info(namespace, account, spans[account.id], *sums)


def currencies(connection: Connection, namespace: str, paths: Iterable[str]) -> dict[str, str]:
    """In which currency each of these accounts, or an ancestor of it, counts cost; only those that do."""
    leaves = set(paths)
    links = sorted({link for leaf in leaves for link in chain_of(leaf)})
    c = s.accounts.c
    known: dict[str, str] = {}
    for i in range(0, len(links), _PAGE):
        query = select(c.path, c.currency).where(
            c.namespace == namespace, c.path.in_(links[i : i + _PAGE]), c.currency.is_not(None)
        )
        known.update((row.path, row.currency) for row in connection.execute(query))
    found = {leaf: next((known[link] for link in chain_of(leaf) if link in known), None) for leaf in leaves}
    return {leaf: currency for leaf, currency in found.items() if currency is not None}


def policy_history(connection: Connection, namespace: str, path: str) -> list[PolicyVersion]:
    """Every version of an account's limits, oldest first.

    Raises:
        BudgetNotConfigured: there is no such account.
    """
    c, p = s.accounts.c, s.policies.c
    query = (
        select(s.policies, c.currency)
        .join(s.accounts, c.id == p.account_id)
        .where(c.namespace == namespace, c.path == path)
        .order_by(p.version)
    )
    versions = [_version(row) for row in connection.execute(query)]
    if not versions:
        raise BudgetNotConfigured(account=path, namespace=namespace)
    return versions


def _version(row: Any) -> PolicyVersion:
    hard, soft = (
        _budget([getattr(row, f"{kind}_{name}") for name in DIMENSIONS], row.currency)
        for kind in ("hard", "soft")
    )
    return PolicyVersion(row.version, row.state, hard, soft, row.actor, row.reason, row.at)


def remaining(connection: Connection, namespace: str, paths: Iterable[str], now: int) -> Budget:
    """What a reservation on these accounts could still take: the least over them and their ancestors.

    None in a dimension means that none of them limits it. A closed account leaves no model calls.

    Raises:
        BudgetNotConfigured: one of them does not exist.
    """
    links = list(dict.fromkeys(link for path in paths for link in chain_of(path)))
    rows = Sets(connection).select(ACCOUNTS, PATH, [(namespace, link) for link in links])
    found = {account.path: account for account in map(account_of, rows)}
    for link in links:
        if link not in found:
            raise BudgetNotConfigured(account=link, namespace=namespace)
    left: list[int | None] = [None] * len(DIMENSIONS)
    currency = None
    for info in _with_balances(connection, namespace, list(found.values()), now):
        currency = currency or info.currency
        left = [_least(a, b) for a, b in zip(left, _left_on(info), strict=True)]
    return _budget(left, currency)


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _left_on(info: AccountInfo) -> list[int | None]:
    pairs = zip(info.hard.values(), info.used, strict=True)
    left = [None if limit is None else max(0, limit - used) for limit, used in pairs]
    if info.state != "OPEN":
        left[DIMENSIONS.index("model_calls")] = 0
    return left
