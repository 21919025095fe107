"""Endpoints that cost nothing: they are passed through to those whose they are, and nothing is reserved."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import httpx2

from memoflow.canonical import StrictJSONError, parse_strict
from memoflow.gateway.apis import COUNT, MODELS, RESPONSES
from memoflow.gateway.client import Client
from memoflow.gateway.endpoints import Endpoint, dialect
from memoflow.gateway.forward import Whole
from memoflow.gateway.headers import Headers, returned
from memoflow.gateway.refusals import HttpRefusal
from memoflow.gateway.service import Service
from memoflow.gateway.upstream import Upstream, body_of
from memoflow.ledger.virtual_keys import VirtualKey
from memoflow.sdk.answers import TooLargeError
from memoflow.turn import CancelSignal

__all__ = ["Counting", "Model", "Models", "StoredResponse"]

_SECONDS: Final = 60.0
_RESPONSE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_MODEL: Final = re.compile(r"[A-Za-z0-9._:@-]{1,200}")
_LISTING: Final = frozenset(
    {"after", "after_id", "before", "before_id", "include", "include[]", "limit", "order"}
)
"""What a listing may be asked for. Not a stream: what was stored is given whole."""


async def _passed(
    upstream: Upstream,
    method: str,
    path: str,
    headers: Headers,
    content: bytes | None = None,
    *,
    query: str = "",
    max_bytes: int,
) -> Whole:
    """The provider's answer, whole.

    Raises:
        HttpRefusal: there was none that could be read.
    """
    try:
        async with (
            asyncio.timeout(_SECONDS),
            upstream.open(method, path, headers, content, query=query, timeout=_SECONDS) as response,
        ):
            body = await body_of(response, max_bytes)
    except (TimeoutError, httpx2.HTTPError, TooLargeError) as error:
        # It costs nothing, so an SDK may try it again.
        raise HttpRefusal(
            502, "provider_not_reached", f"The provider did not answer ({type(error).__name__}).", retry=True
        ) from None
    return Whole(response.status_code, returned(response.headers.raw), body)


def _query(scope: Any) -> str:
    given = parse_qsl(scope["query_string"].decode("latin-1"), max_num_fields=64)
    return urlencode([(name, value) for name, value in given if name in _LISTING])


class _Passing(Endpoint):
    """An endpoint that is passed through on behalf of a key that is good now."""

    async def serve(self, scope: Any, receive: Any, client: Client, signal: CancelSignal) -> None:
        """Pass it through."""
        key = await self.service.keys.fresh(scope["headers"])
        self.check_endpoint(key)
        await client.give(await self.answer(scope, receive, key), [])

    async def answer(self, scope: Any, receive: Any, key: VirtualKey) -> Whole:
        """The answer for a key; refusals are raised."""
        raise NotImplementedError

    async def passed(self, scope: Any, provider: str, method: str, path: str, **options: Any) -> Whole:
        """What the provider says."""
        limit = self.service.settings.max_reply_bytes
        upstream = self.service.upstream(provider)
        return await _passed(upstream, method, path, scope["headers"], max_bytes=limit, **options)


class Counting(_Passing):
    """Counts the input of a request."""

    def __init__(self, service: Service, provider: str, path: str) -> None:
        super().__init__(service, COUNT, provider)
        self._of, self._path = provider, path

    async def answer(self, scope: Any, receive: Any, key: VirtualKey) -> Whole:
        """The provider's count."""
        incoming = await self.read(scope, receive)
        await self.check_request(key, incoming)
        return await self.passed(
            scope, self._of, "POST", self._path, content=incoming.raw, query=incoming.query
        )


class Models(_Passing):
    """The models that a key may use, in the shape of the provider whose SDK asks."""

    def __init__(self, service: Service) -> None:
        super().__init__(service, MODELS)

    async def answer(self, scope: Any, receive: Any, key: VirtualKey) -> Whole:
        """The provider's list, without those that the key is not for."""
        provider = dialect(scope["headers"])
        whole = await self.passed(scope, provider, "GET", "/v1/models", query=_query(scope))
        return whole if whole.status != 200 else Whole(200, whole.headers, _allowed(whole.body, key))


def _allowed(body: bytes, key: VirtualKey) -> bytes:
    try:
        listed = json.loads(body)
        models = [one for one in listed["data"] if key.allows_model(str(one["id"]))]
    except (ValueError, KeyError, TypeError):
        raise HttpRefusal(502, "provider_failed", "The provider's list of models cannot be read.") from None
    return json.dumps({**listed, "data": models}, ensure_ascii=False).encode()


class Model(_Passing):
    """One model."""

    def __init__(self, service: Service) -> None:
        super().__init__(service, MODELS)

    async def answer(self, scope: Any, receive: Any, key: VirtualKey) -> Whole:
        """What the provider says of it, if the key is for it."""
        model = scope["path_params"]["model"]
        if not _MODEL.fullmatch(model) or not key.allows_model(model):
            raise HttpRefusal(404, "model_not_found", "There is no such model for this key.")
        return await self.passed(scope, dialect(scope["headers"]), "GET", f"/v1/models/{model}")


class StoredResponse(_Passing):
    """What is done with a reply that the provider stores: for the account that it was made for, alone.

    Args:
        method: how the provider is asked; suffix: what stands after the id of the reply.
    """

    def __init__(self, service: Service, method: str, suffix: str = "") -> None:
        super().__init__(service, RESPONSES.name, RESPONSES.provider)
        self._method, self._suffix = method, suffix

    async def answer(self, scope: Any, receive: Any, key: VirtualKey) -> Whole:
        """The provider's answer."""
        id = scope["path_params"]["response_id"]
        if not _RESPONSE_ID.fullmatch(id) or not await self.service.owns_reply(key, id):
            raise HttpRefusal(
                404, "response_not_found", "No reply with this id was made for the account of this key."
            )
        path, content = f"{RESPONSES.path}/{id}{self._suffix}", b"" if self._method == "POST" else None
        whole = await self.passed(
            scope, RESPONSES.provider, self._method, path, content=content, query=_query(scope)
        )
        watcher = self.service.watcher
        if watcher is None or whole.status != 200:
            return whole
        refusal = await asyncio.to_thread(watcher.look_again, id, _items(whole.body))
        if refusal is not None:
            return Whole(refusal.status, refusal.headers(), refusal.body(RESPONSES.provider))
        return whole


def _items(body: bytes) -> dict[str, Any] | None:
    """What a stored reply, or the list of what it was made of, holds; None if that cannot be read."""
    try:
        said = parse_strict(body, max_bytes=len(body))
    except StrictJSONError:
        return None
    if not isinstance(said, dict):
        return None
    return {"output": said["data"]} if said.get("object") == "list" else said
