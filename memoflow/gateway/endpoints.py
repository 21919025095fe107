"""Endpoints as ASGI applications: they admit requests, and answer whatever happens in a provider's shape."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Final

from memoflow.errors import CallCancelled, RequestNotAllowed
from memoflow.gateway.apis import GeneratingApi
from memoflow.gateway.calling import check_allowed
from memoflow.gateway.client import Client
from memoflow.gateway.exchange import Exchange
from memoflow.gateway.forward import Whole
from memoflow.gateway.headers import Headers
from memoflow.gateway.incoming import ClientGone, Incoming, read_incoming
from memoflow.gateway.refusals import HttpRefusal, Refusal, refusal_of
from memoflow.gateway.service import Service
from memoflow.ledger.virtual_keys import VirtualKey
from memoflow.turn import CancelSignal

__all__ = ["Endpoint", "Generating", "dialect", "give_refusal"]

log = logging.getLogger("memoflow.gateway")
_CLOSE: Final = (b"connection", b"close")
_STOPPED: Final = HttpRefusal(
    503, "gateway_stopped", "The gateway was stopped before the reply was there; how it ended is recorded."
)
_TAKEN_OVER: Final = HttpRefusal(
    409, "lease_lost", "Another process has taken this request over. Ask again for its reply.", retry=None
)
_QUERIES: Final = (b"beta=true",)
"""The only query that a generating request may have; an SDK adds it."""


def dialect(headers: Headers) -> str:
    """In whose words a client is answered that asks for what both providers have, or neither."""
    names = {name for name, _ in headers}
    return "anthropic" if b"anthropic-version" in names or b"x-api-key" in names else "openai"


async def give_refusal(client: Client, refusal: Refusal, provider: str) -> None:
    """Answer with a refusal in a provider's shape. A client that is still sending is not listened to."""
    headers = refusal.headers()
    if refusal.status in (408, 413, 415):
        headers.append(_CLOSE)
    await client.give(Whole(refusal.status, headers, refusal.body(provider)), [])


class Endpoint:
    """One endpoint.

    Args:
        service: what all requests share.
        name: how a virtual key names it.
        provider: whose it is; None where both have it.
    """

    def __init__(self, service: Service, name: str, provider: str | None = None) -> None:
        self.service = service
        self.name = name
        self._provider = provider

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        settings, signal = self.service.settings, CancelSignal()
        patience = settings.drain_seconds if settings.on_disconnect == "drain" else 0.0
        leave = partial(_cancel_after, patience, signal)
        client = Client(receive, send, seconds=settings.send_timeout, left=leave)
        try:
            with self.service.admitted():
                await self.serve(scope, receive, client, signal)
        except ClientGone:
            log.debug("a client left before its request was there")
        except CallCancelled:
            await self._cancelled(client, scope)
        except asyncio.CancelledError:
            # Nobody but the server does that, when it stops and has waited long enough; all is recorded.
            await self._refuse(client, _STOPPED, self._provider or dialect(scope["headers"]))
        except Exception as error:
            await self._refuse(client, error, self._provider or dialect(scope["headers"]))

    async def serve(self, scope: Any, receive: Any, client: Client, signal: CancelSignal) -> None:
        """Serve a request; refusals are raised."""
        raise NotImplementedError

    def check_endpoint(self, key: VirtualKey) -> None:
        """Refuse a key that is not for this endpoint; raises RequestNotAllowed."""
        if not key.allows_endpoint(self.name):
            raise RequestNotAllowed(what="endpoint", name=self.name, allowed=key.endpoints)

    async def read(self, scope: Any, receive: Any) -> Incoming:
        """The request with its body; raises as `read_incoming`."""
        settings = self.service.settings
        query = scope["query_string"] if scope["query_string"] in _QUERIES else b""
        return await read_incoming(
            scope["headers"],
            receive,
            query=query.decode(),
            max_bytes=settings.max_body_bytes,
            seconds=settings.read_timeout,
        )

    async def check_request(self, key: VirtualKey, incoming: Incoming) -> None:
        """Refuse what the key is not for, and to go on from a reply that is not its account's."""
        check_allowed(key, self.service.settings, incoming.model, incoming.body)
        previous = incoming.body.get("previous_response_id")
        if self.service.settings.provider_objects == "allow" or not isinstance(previous, str):
            return
        if not await self.service.owns_reply(key, previous):
            raise HttpRefusal(
                404,
                "previous_response_not_found",
                "No reply with the id in previous_response_id was made for the account of this key. Check "
                "the id, or send the conversation itself.",
            )

    async def _cancelled(self, client: Client, scope: Any) -> None:
        if client.gone:
            log.debug("a client left before its reply was there")
        else:
            # Somebody else has taken the request over, as after a pause of this process.
            await self._refuse(client, _TAKEN_OVER, self._provider or dialect(scope["headers"]))

    async def _refuse(self, client: Client, error: Exception, provider: str) -> None:
        refusal = refusal_of(error)
        if refusal.code == "internal_error":
            # Not its text, which may hold anything.
            log.error("a request failed here (%s)", type(error).__name__)
        if not client.started:
            await give_refusal(client, refusal, provider)


def _cancel_after(seconds: float, signal: CancelSignal) -> None:
    if seconds:
        asyncio.get_running_loop().call_later(seconds, signal.cancel)
    else:
        signal.cancel()


class Generating(Endpoint):
    """An endpoint whose requests are reserved, forwarded and settled."""

    def __init__(self, service: Service, api: GeneratingApi) -> None:
        super().__init__(service, api.name, api.provider)
        self._api = api

    async def serve(self, scope: Any, receive: Any, client: Client, signal: CancelSignal) -> None:
        """Reserve, forward and settle."""
        key = await self.service.keys.find(scope["headers"])
        self.check_endpoint(key)
        self.service.upstream(self._api.provider)
        incoming = await self.read(scope, receive)
        await self.check_request(key, incoming)
        async with client.watched():
            await Exchange(self.service, self._api, key, incoming, client, signal).run()
