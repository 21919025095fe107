"""The providers that the gateway forwards to: fixed when it starts, each with its own key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Final

import httpx2

from memoflow.errors import ConfigurationError
from memoflow.gateway.headers import Headers, forwarded
from memoflow.gateway.settings import GatewaySettings
from memoflow.sdk.answers import TooLargeError

__all__ = ["Upstream", "body_of", "check_keys", "make_client", "make_upstreams"]

PROVIDERS: Final = ("openai", "anthropic")

# The drivers keep the time limits of a call; the transport's own only ends what nobody waits for any more.
_GRACE_S: Final = 5.0
_JSON: Final = (b"content-type", b"application/json")
_PLAIN: Final = (b"accept-encoding", b"identity")


class Upstream:
    """A provider, as its address and key.

    Args:
        provider: ``openai`` or ``anthropic``.
        key: the gateway's own key; never shown.
        client: shared by all requests of the process.
    """

    def __init__(self, provider: str, base_url: str, key: str, client: httpx2.AsyncClient) -> None:
        self.provider = provider
        self._base_url = base_url
        self._client = client
        self._auth = (
            (b"x-api-key", key.encode())
            if provider == "anthropic"
            else (b"authorization", b"Bearer " + key.encode())
        )

    def __repr__(self) -> str:
        return f"Upstream({self.provider!r}, {self._base_url!r})"

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        headers: Headers,
        content: bytes | None = None,
        *,
        query: str = "",
        timeout: float | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request and give its response as soon as the head of it is there.

        Args:
            path: one of the gateway's own, beginning with ``/v1``; nothing of a client's but checked ids.
            headers: the client's; those that may pass are sent on.
            timeout: seconds after which a read is given up.
        """
        sent = [*forwarded(headers), _PLAIN, self._auth]
        if content is not None:
            sent.append(_JSON)
        # Not by the client, which would put together headers, cookies and addresses of its own each time.
        request = httpx2.Request(
            method,
            self._url(path, query),
            headers=sent,
            content=content,
            extensions={"timeout": self._limits(timeout)},
        )
        response = await self._client.send(request, stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    def _limits(self, timeout: float | None) -> dict[str, float | None]:
        limit = None if timeout is None else timeout + _GRACE_S
        own = self._client.timeout
        return {"connect": own.connect, "read": limit, "write": limit, "pool": own.pool}

    def _url(self, path: str, query: str) -> httpx2.URL:
        # As the SDKs take it: the one's address ends in /v1, the other's does not.
        below = path.removeprefix("/v1") if self.provider == "openai" else path
        return _parsed(f"{self._base_url}{below}{'?' if query else ''}{query}")


@lru_cache(256)
def _parsed(address: str) -> httpx2.URL:
    return httpx2.URL(address)


def make_client(settings: GatewaySettings) -> httpx2.AsyncClient:
    """The client for all upstreams: it follows nothing, tries nothing again, and keeps connections."""
    addresses = (settings.openai_base_url, settings.anthropic_base_url)
    return httpx2.AsyncClient(
        # Loading certificates takes long, and plain addresses need none.
        verify=any(address.startswith("https:") for address in addresses),
        timeout=httpx2.Timeout(None, connect=settings.connect_timeout, pool=settings.connect_timeout),
        limits=httpx2.Limits(
            max_connections=settings.max_requests, max_keepalive_connections=settings.max_requests
        ),
        follow_redirects=False,
    )


def check_keys(settings: GatewaySettings) -> dict[str, str]:
    """The keys that are configured, by provider.

    Raises:
        ConfigurationError: there is none, or one cannot be read.
    """
    keys = {provider: settings.upstream_key(provider) for provider in PROVIDERS}
    found = {provider: key for provider, key in keys.items() if key is not None}
    if not found:
        raise ConfigurationError(
            "The gateway has no key of any provider, so it could forward nothing. Set "
            "MEMOFLOW_GATEWAY_OPENAI_KEY or MEMOFLOW_GATEWAY_ANTHROPIC_KEY, or name a file with one in "
            "MEMOFLOW_GATEWAY_OPENAI_KEY_FILE or MEMOFLOW_GATEWAY_ANTHROPIC_KEY_FILE."
        )
    return found


def make_upstreams(settings: GatewaySettings, client: httpx2.AsyncClient) -> dict[str, Upstream]:
    """Those that a key is configured for; raises as `check_keys`."""
    addresses = {"openai": settings.openai_base_url, "anthropic": settings.anthropic_base_url}
    return {
        provider: Upstream(provider, addresses[provider], key, client)
        for provider, key in check_keys(settings).items()
    }


async def body_of(response: httpx2.Response, max_bytes: int) -> bytes:
    """The whole body of a response.

    Raises:
        TooLargeError: it has more bytes.
    """
    parts, size = [], 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > max_bytes:
            raise TooLargeError
        parts.append(part)
    return b"".join(parts)
