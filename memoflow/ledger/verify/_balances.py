"""Accounts, and balances against their journal: the chain, the limits at every reservation, the sums."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select

from memoflow.budget import DIMENSIONS, Amounts
from memoflow.ledger.journal import GENESIS, Entry, entry_hash
from memoflow.ledger.schema import accounts, balances, journal, policies, read_amounts
from memoflow.ledger.verify._finding import Children, Finding, stream

__all__ = ["balance_findings"]


def balance_findings(connection: Connection, namespace: str | None) -> Iterator[Finding]:
    """What does not hold for accounts, policies, balances and the journal's rows as such."""
    for account in stream(connection, _accounts(namespace)):
        yield from _check_account(account)
    entries = Children(stream(connection, _entries(namespace)), attrgetter("balance_id"))
    limits: dict[int, Row[Any]] = {}
    account_id = None
    for balance in stream(connection, _balances(namespace)):
        if balance.account_id != account_id:
            account_id = balance.account_id
            limits = {row.version: row for row in connection.execute(_policies(account_id))}
        yield from _Recount(balance, limits).run(entries.of(balance.id))


def _accounts(namespace: str | None) -> Select[Any]:
    parent = accounts.alias("parent")
    versions = (
        select(
            policies.c.account_id,
            func.count().label("versions"),
            func.min(policies.c.version).label("first"),
            func.max(policies.c.version).label("last"),
        )
        .group_by(policies.c.account_id)
        .subquery()
    )
    now = policies.alias("now")
    query = (
        select(
            accounts,
            parent.c.path.label("parent_path"),
            parent.c.namespace.label("parent_namespace"),
            versions.c.versions,
            versions.c.first,
            versions.c.last,
            now.c.state.label("policy_state"),
        )
        .outerjoin(parent, parent.c.id == accounts.c.parent_id)
        .outerjoin(versions, versions.c.account_id == accounts.c.id)
        .outerjoin(now, (now.c.account_id == accounts.c.id) & (now.c.version == accounts.c.policy_version))
        .order_by(accounts.c.id)
    )
    return query if namespace is None else query.where(accounts.c.namespace == namespace)


def _check_account(account: Row[Any]) -> Iterator[Finding]:
    id, name = str(account.id), f"Account {account.path!r} of namespace {account.namespace!r}"
    above = account.path.rpartition("/")[0] or None
    wanted = (above, None if above is None else account.namespace)
    if (account.parent_path, account.parent_namespace) != wanted:
        yield Finding(
            "ACCOUNT_PARENT", "accounts", id, f"{name} has parent {account.parent_path!r}, not {above!r}."
        )
    counted = (account.versions, account.first, account.last)
    if counted != (account.policy_version, 1, account.policy_version):
        yield Finding(
            "POLICY_VERSIONS",
            "accounts",
            id,
            f"{name} is at policy version {account.policy_version}, but has {account.versions or 0} "
            f"versions, from {account.first} to {account.last}.",
        )
    elif account.policy_state != account.state:
        message = f"{name} is {account.state}, its policy says {account.policy_state}."
        yield Finding("ACCOUNT_STATE", "accounts", id, message)


def _balances(namespace: str | None) -> Select[Any]:
    query = (
        select(balances, accounts.c.path)
        .join(accounts, accounts.c.id == balances.c.account_id)
        .order_by(balances.c.id)
    )
    return query if namespace is None else query.where(accounts.c.namespace == namespace)


def _entries(namespace: str | None) -> Select[Any]:
    query = select(journal).join(balances, balances.c.id == journal.c.balance_id)
    if namespace is not None:
        query = query.join(accounts, accounts.c.id == balances.c.account_id)
        query = query.where(accounts.c.namespace == namespace)
    return query.order_by(journal.c.balance_id, journal.c.seq)


def _policies(account_id: int) -> Select[Any]:
    return select(policies).where(policies.c.account_id == account_id)


def _id(row: Row[Any]) -> str:
    return f"{row.balance_id}/{row.seq}"


class _Recount:
    """One balance, added up again from its journal."""

    def __init__(self, balance: Row[Any], limits: dict[int, Row[Any]]) -> None:
        self._balance = balance
        self._limits = limits
        self._sums = {"settled": Amounts(), "held": Amounts(), "unknown": Amounts()}
        self._seq = 0
        self._head = GENESIS

    def run(self, rows: Iterator[Row[Any]]) -> Iterator[Finding]:
        """Read the journal to its end, then compare."""
        for row in rows:
            entry = _entry(row)
            yield from self._check_chain(row, entry)
            for kind in self._sums:
                self._sums[kind] = self._sums[kind].plus(getattr(entry, kind))
            if row.event == "reserve":
                yield from self._check_limits(row)
            # Going on from what is recorded, each further difference is one of its own.
            self._seq, self._head = row.seq, row.hash
        yield from self._compare()

    def _check_chain(self, row: Row[Any], entry: Entry) -> Iterator[Finding]:
        if row.seq != self._seq + 1:
            message = f"Journal row {_id(row)} follows {self._seq}; the rows between them are missing."
            yield Finding("JOURNAL_GAP", "journal", _id(row), message)
        elif entry_hash(self._head, entry) != row.hash:
            message = (
                f"Journal row {_id(row)} ({row.event} of {row.reservation_id}) does not have the hash that "
                "follows from its figures and the row before it."
            )
            yield Finding("CHAIN_BROKEN", "journal", _id(row), message)

    def _check_limits(self, row: Row[Any]) -> Iterator[Finding]:
        path = self._balance.path
        policy = self._limits.get(row.policy_version)
        if policy is None:
            message = (
                f"Journal row {_id(row)} reserved under policy version {row.policy_version} of {path!r}, "
                "which does not exist."
            )
            yield Finding("POLICY_MISSING", "journal", _id(row), message)
            return
        if policy.state != "OPEN":
            message = f"Journal row {_id(row)} reserved on account {path!r} while it was {policy.state}."
            yield Finding("ACCOUNT_CLOSED", "journal", _id(row), message)
        used = self._sums["settled"].plus(self._sums["held"]).plus(self._sums["unknown"])
        for name, amount in zip(DIMENSIONS, used, strict=True):
            hard = getattr(policy, f"hard_{name}")
            if hard is not None and amount > hard:
                message = (
                    f"Journal row {_id(row)} ({row.reservation_id}) brought account {path!r} to {amount} "
                    f"{name}; the hard limit was {hard}."
                )
                yield Finding("LIMIT_EXCEEDED", "journal", _id(row), message)

    def _compare(self) -> Iterator[Finding]:
        balance = self._balance
        recorded: dict[str, object] = {"seq": balance.seq, "head": balance.head}
        counted: dict[str, object] = {"seq": self._seq, "head": self._head}
        for kind, sums in self._sums.items():
            for name, value in zip(DIMENSIONS, sums, strict=True):
                recorded[f"{kind}_{name}"] = getattr(balance, f"{kind}_{name}")
                counted[f"{kind}_{name}"] = value
        for column, found in recorded.items():
            if found != counted[column]:
                message = (
                    f"Balance {balance.id} of account {balance.path!r} has {column} {found}, its journal "
                    f"says {counted[column]}."
                )
                yield Finding("BALANCE_DIFFERS", "balances", str(balance.id), message)


def _entry(row: Row[Any]) -> Entry:
    return Entry(
        row.balance_id,
        row.seq,
        row.at,
        row.event,
        row.reservation_id,
        row.policy_version,
        read_amounts(row, "settled"),
        read_amounts(row, "held"),
        read_amounts(row, "unknown"),
    )
