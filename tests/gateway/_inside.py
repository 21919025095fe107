"""A gateway without sockets: its endpoints called as applications, its provider a list of bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx2

from memoflow import Budget, KeyRing, Runtime
from memoflow.gateway import new_virtual_key
from memoflow.gateway.apis import GeneratingApi
from memoflow.gateway.endpoints import Endpoint, Generating
from memoflow.gateway.service import Service
from memoflow.gateway.upstream import make_upstreams
from memoflow.testing import temporary_runtime
from tests.gateway._site import settings

__all__ = ["Got", "Inside", "Scripted", "inside"]


class _Pieces(httpx2.AsyncByteStream):
    def __init__(self, pieces: Sequence[bytes], breaks: bool) -> None:
        self._pieces = pieces
        self._breaks = breaks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        if self._breaks:
            raise httpx2.ReadError("It broke off.")


@dataclass
class Scripted(httpx2.AsyncBaseTransport):
    """A provider that always gives the same bytes, in the same pieces.

    Attributes:
        breaks: whether the connection breaks after them.
        sent: the bodies that it was sent; asked: their addresses.
    """

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    breaks: bool = False
    sent: list[bytes] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Give the bytes."""
        self.sent.append(await request.aread())
        self.asked.append(f"{request.method} {request.url}")
        return httpx2.Response(self.status, headers=self.headers, stream=_Pieces(self.pieces, self.breaks))


@dataclass
class Got:
    """What a client got."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    whole: bool = False

    @property
    def body(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces)


class Inside:
    """Asks one endpoint at a time."""

    def __init__(self, runtime: Runtime, provider: Scripted, **given: Any) -> None:
        chosen = settings("http://provider.invalid/v1", **given)
        self.runtime = runtime
        self.provider = provider
        self.service = Service(runtime, chosen)
        make = partial(httpx2.AsyncClient, transport=provider, timeout=None)
        self.service.upstreams = make_upstreams(chosen, lambda address, seconds: make)
        runtime.budgets.put("app", Budget(model_calls=10**9))
        self.key = self.new_key()

    def new_key(self, *models: str) -> str:
        """A virtual key for some models, or for all."""
        key, add = new_virtual_key(
            self.runtime.namespace,
            self.runtime.digester,
            name="k",
            account="app",
            models=models or ("*",),
            endpoints=("*",),
            output_tokens=100,
            expires_in=None,
            actor="tests",
        )
        self.runtime.commit(add)
        return key

    def ask(self, api: GeneratingApi, body: dict[str, Any] | bytes, **headers: str) -> Got:
        """Send a request and hear all of the reply."""
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.call(Generating(self.service, api), sent, **headers)

    def call(self, endpoint: Endpoint, sent: bytes = b"", path: Any = None, **headers: str) -> Got:
        """The same of any endpoint; ``path`` has what its path names."""
        given = {"authorization": f"Bearer {self.key}", **headers}
        scope = {
            "type": "http",
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()],
            "query_string": b"",
            "path_params": path or {},
        }
        return asyncio.run(self._ask(endpoint, scope, sent))

    async def _ask(self, endpoint: Endpoint, scope: Any, sent: bytes) -> Got:
        got = Got()
        messages = [{"type": "http.request", "body": sent, "more_body": False}]
        never = asyncio.Event()

        async def receive() -> Any:
            if not messages:
                await never.wait()
            return messages.pop()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                got.status, got.headers = message["status"], dict(message["headers"])
            else:
                got.pieces.append(message["body"])
                got.whole = not message.get("more_body", False)

        await endpoint(scope, receive, send)
        return got


@contextmanager
def inside(provider: Scripted, **given: Any) -> Iterator[Inside]:
    """A gateway on a temporary ledger."""
    with temporary_runtime(namespace="tests", keys=KeyRing.generate()) as runtime:
        yield Inside(runtime, provider, **given)
