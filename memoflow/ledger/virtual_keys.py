"""Virtual keys of the gateway: making, revoking and finding them. A row holds no key, only a digest of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, select

from memoflow.budget import check_amount
from memoflow.errors import BudgetNotConfigured, InvalidRequest, NotFound
from memoflow.identity import check_name
from memoflow.ledger import schema as s
from memoflow.ledger.accounts import check_path, check_reason
from memoflow.ledger.transaction import Needs, Transaction

__all__ = [
    "AddVirtualKey",
    "RevokeVirtualKey",
    "VirtualKey",
    "check_patterns",
    "find_virtual_key",
    "list_virtual_keys",
    "read_virtual_key",
]

MAX_PATTERNS: Final = 64


@dataclass(frozen=True, slots=True)
class VirtualKey:
    """What a virtual key is for. Times are UTC microseconds.

    Attributes:
        hint: the last characters of the key, to tell it from others.
        account: the budget account that its requests are charged to.
        models: names, or beginnings of names that end in ``*``.
        endpoints: names of endpoints, or ``*`` for all.
        output_tokens: the output to reserve for a request that names no cap; None is the gateway's own.
        revoked_at: when it was revoked, None if it was not.
    """

    id: str
    namespace: str
    name: str
    hint: str
    account: str
    models: tuple[str, ...]
    endpoints: tuple[str, ...]
    output_tokens: int | None
    actor: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None = None
    revoked_by: str | None = None
    revoked_because: str | None = None

    def expired(self, now: int) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and self.expires_at <= now

    def allows_model(self, model: str) -> bool:
        """Whether it is for a model."""
        return any(_fits(pattern, model) for pattern in self.models)

    def allows_endpoint(self, endpoint: str) -> bool:
        """Whether it is for an endpoint."""
        return any(_fits(pattern, endpoint) for pattern in self.endpoints)


def _fits(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def check_patterns(what: str, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return names, or beginnings of names with a ``*`` at their end, if they can be such.

    Raises:
        InvalidRequest: there is none, there are more than 64, or one has a ``*`` before its end.
    """
    if not 1 <= len(patterns) <= MAX_PATTERNS:
        raise InvalidRequest(f"A virtual key is for 1 to {MAX_PATTERNS} {what}s, not {len(patterns)}.")
    for pattern in patterns:
        check_name(f"a {what}", pattern)
        if "*" in pattern[:-1]:
            raise InvalidRequest(f"The {what} {pattern!r} has a '*' before its end. Use it at the end only.")
    return patterns


@dataclass(frozen=True, slots=True, eq=False)
class AddVirtualKey:
    """Record a new virtual key; ``expires_in_us`` counts from when it is written."""

    id: str
    namespace: str
    digest: str
    hint: str
    name: str
    account: str
    models: tuple[str, ...]
    endpoints: tuple[str, ...]
    output_tokens: int | None
    expires_in_us: int | None
    actor: str

    def __post_init__(self) -> None:
        check_name("the name of a virtual key", self.name)
        check_path(self.account)
        check_patterns("model", self.models)
        check_patterns("endpoint", self.endpoints)
        check_name("actor", self.actor)
        if self.output_tokens is not None and check_amount("output_tokens", self.output_tokens) < 1:
            raise InvalidRequest("A request reserves at least 1 output token, not 0.")

    def needs(self, needs: Needs) -> None:
        """The account."""
        needs.accounts.add((self.namespace, self.account))

    def apply(self, tx: Transaction) -> VirtualKey:
        """Record it; returns it as it is now.

        Raises:
            BudgetNotConfigured: the account does not exist.
        """
        if tx.book.account(self.namespace, self.account) is None:
            raise BudgetNotConfigured(account=self.account, namespace=self.namespace)
        expires_at = None if self.expires_in_us is None else tx.now + self.expires_in_us
        tx.insert(
            s.virtual_keys,
            id=self.id,
            namespace=self.namespace,
            digest=self.digest,
            name=self.name,
            hint=self.hint,
            account=self.account,
            models=json.dumps(self.models),
            endpoints=json.dumps(self.endpoints),
            output_tokens=self.output_tokens,
            actor=self.actor,
            created_at=tx.now,
            expires_at=expires_at,
        )
        return VirtualKey(
            self.id,
            self.namespace,
            self.name,
            self.hint,
            self.account,
            self.models,
            self.endpoints,
            self.output_tokens,
            self.actor,
            tx.now,
            expires_at,
        )


@dataclass(frozen=True, slots=True, eq=False)
class RevokeVirtualKey:
    """Revoke a virtual key for good. A second revocation changes nothing; the first one stands."""

    namespace: str
    id: str
    actor: str
    reason: str

    def __post_init__(self) -> None:
        check_name("actor", self.actor)
        check_reason(self.reason, required=True)

    def needs(self, needs: Needs) -> None:
        """Nothing."""

    def apply(self, tx: Transaction) -> VirtualKey:
        """Revoke; returns the key as it is now.

        Raises:
            NotFound: there is no such key in this namespace.
        """
        key = read_virtual_key(tx.connection, self.namespace, self.id)
        if key.revoked_at is None:
            row = {"namespace": self.namespace, "actor": self.actor, "reason": self.reason, "at": tx.now}
            tx.execute(s.virtual_key_revocations.insert().values(key_id=self.id, **row))
        return read_virtual_key(tx.connection, self.namespace, self.id)


_k, _r = s.virtual_keys.c, s.virtual_key_revocations.c


def _keys(*conditions: ColumnElement[bool]) -> Select[Any]:
    return (
        select(
            *(_k.id, _k.namespace, _k.name, _k.hint, _k.account, _k.models, _k.endpoints, _k.output_tokens),
            *(_k.actor, _k.created_at, _k.expires_at),
            *(_r.at, _r.actor.label("by"), _r.reason),
        )
        .outerjoin(s.virtual_key_revocations, _r.key_id == _k.id)
        .where(*conditions)
    )


def _key(row: Any) -> VirtualKey:
    id, namespace, name, hint, account, models, endpoints, *rest = row
    return VirtualKey(
        id, namespace, name, hint, account, tuple(json.loads(models)), tuple(json.loads(endpoints)), *rest
    )


def find_virtual_key(connection: Connection, namespace: str, digest: str) -> VirtualKey | None:
    """The key with this digest, revoked or not, or None."""
    row = connection.execute(_keys(_k.namespace == namespace, _k.digest == digest)).one_or_none()
    return None if row is None else _key(row)


def read_virtual_key(connection: Connection, namespace: str, id: str) -> VirtualKey:
    """The key with this id.

    Raises:
        NotFound: there is none.
    """
    row = connection.execute(_keys(_k.namespace == namespace, _k.id == id)).one_or_none()
    if row is None:
        raise NotFound(what="virtual key", id=id, namespace=namespace)
    return _key(row)


def list_virtual_keys(connection: Connection, namespace: str, account: str | None = None) -> list[VirtualKey]:
    """All keys of a namespace, or those of one account, oldest first."""
    only = [_k.namespace == namespace, *([] if account is None else [_k.account == account])]
    return [_key(row) for row in connection.execute(_keys(*only).order_by(_k.created_at, _k.id))]
