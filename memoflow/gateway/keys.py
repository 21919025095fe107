"""Virtual keys: making them, and finding what a request's key is for.

A key is 256 random bits, and the ledger has a digest of it, keyed where a digest key is configured. It is
found by that digest, so how long the search takes says nothing about any key.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from datetime import timedelta
from functools import partial
from typing import Any, Final

from memoflow.canonical import Digester
from memoflow.errors import InvalidRequest, VirtualKeyRefused
from memoflow.gateway.apis import ENDPOINTS
from memoflow.gateway.headers import Headers, named
from memoflow.identity import new_id
from memoflow.ledger.database import Database
from memoflow.ledger.virtual_keys import AddVirtualKey, VirtualKey, find_virtual_key, read_virtual_key

__all__ = ["Keys", "new_virtual_key"]

_PREFIX: Final = "mfk_"
_FORM: Final = re.compile(r"mfk_[A-Za-z0-9_-]{43}")
_HINT: Final = 4
_KEPT: Final = 4_096
_MICROSECOND: Final = timedelta(microseconds=1)


def new_virtual_key(
    namespace: str,
    digester: Digester,
    *,
    name: str,
    account: str,
    models: tuple[str, ...],
    endpoints: tuple[str, ...],
    output_tokens: int | None,
    expires_in: timedelta | None,
    actor: str,
) -> tuple[str, AddVirtualKey]:
    """A new key, which is kept nowhere, and the operation that records what it is for.

    Raises:
        InvalidRequest, InvalidBudget: it would be for something that cannot be.
    """
    for endpoint in endpoints:
        if endpoint not in (*ENDPOINTS, "*"):
            raise InvalidRequest(
                f"There is no endpoint {endpoint!r}. Endpoints are {', '.join(ENDPOINTS)}, and '*' for all."
            )
    if expires_in is not None and expires_in <= timedelta(0):
        raise InvalidRequest("A virtual key must be good for some time.")
    key = _PREFIX + secrets.token_urlsafe(32)
    return key, AddVirtualKey(
        id=new_id(),
        namespace=namespace,
        digest=_digest(digester, key),
        hint=key[-_HINT:],
        name=name,
        account=account,
        models=models,
        endpoints=endpoints,
        output_tokens=output_tokens,
        expires_in_us=None if expires_in is None else expires_in // _MICROSECOND,
        actor=actor,
    )


def _digest(digester: Digester, key: str) -> str:
    return digester.bytes(key.encode())


class Keys:
    """Finds virtual keys.

    What a key is for never changes, so it is remembered. Whether it was revoked is asked of the ledger each
    time: by the operation that reserves, or by `fresh` where nothing is reserved.
    """

    def __init__(self, database: Database, namespace: str, digester: Digester) -> None:
        self._database = database
        self._namespace = namespace
        self._digester = digester
        self._known: dict[str, VirtualKey] = {}

    async def find(self, headers: Headers) -> VirtualKey:
        """What the key of a request is for; it may have been revoked.

        Raises:
            VirtualKeyRefused: there is none, or it is not known.
        """
        digest = self._digest_of(headers)
        known = self._known.get(digest)
        return known if known is not None else await self._look_up(digest)

    async def fresh(self, headers: Headers) -> VirtualKey:
        """What the key of a request is for now.

        Raises:
            VirtualKeyRefused: there is none, it is not known, was revoked or has expired.
        """
        key = await self.find(headers)
        await self.check(key)
        return key

    async def check(self, key: VirtualKey) -> None:
        """Refuse a key that is not good any more.

        Raises:
            VirtualKeyRefused: it was revoked or has expired.
        """
        found, now = await asyncio.to_thread(self._database.read, partial(self._now, id=key.id))
        if found.revoked_at is not None:
            raise VirtualKeyRefused(reason="revoked", id=key.id)
        if found.expired(now):
            raise VirtualKeyRefused(reason="expired", id=key.id)

    def _now(self, connection: Any, id: str) -> tuple[VirtualKey, int]:
        return read_virtual_key(connection, self._namespace, id), self._database.clock(connection)

    def _digest_of(self, headers: Headers) -> str:
        key = _key_in(headers)
        if key is None:
            raise VirtualKeyRefused(reason="missing")
        if not _FORM.fullmatch(key):
            raise VirtualKeyRefused(reason="unknown")
        return _digest(self._digester, key)

    async def _look_up(self, digest: str) -> VirtualKey:
        query = partial(find_virtual_key, namespace=self._namespace, digest=digest)
        found = await asyncio.to_thread(self._database.read, query)
        if found is None:
            raise VirtualKeyRefused(reason="unknown")
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[digest] = found
        return found


def _key_in(headers: Headers) -> str | None:
    """The key of a request, in either of the two headers that SDKs have for one."""
    scheme, _, token = (named(headers, b"authorization") or "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    own = named(headers, b"x-api-key") or ""
    given = [key for key in (bearer, own) if key]
    # A program may send a key of its own for something else in the other one.
    ours = [key for key in given if key.startswith(_PREFIX)]
    return next(iter(ours or given), None)
