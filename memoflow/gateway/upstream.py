"""The providers that the gateway forwards to: fixed when it starts, each with its own key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import Final, TypeAlias

import httpx2

from memoflow.errors import ConfigurationError
from memoflow.gateway.connections import Connections
from memoflow.gateway.headers import Headers, forwarded
from memoflow.gateway.settings import GatewaySettings
from memoflow.sdk.answers import TooLargeError

__all__ = ["Upstream", "body_of", "check_keys", "client_maker", "make_upstreams"]

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
        connections: to this provider.
    """

    def __init__(self, provider: str, base_url: str, key: str, connections: Connections) -> None:
        self.provider = provider
        self._base_url = base_url
        self._connections = connections
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
        async with self._connections.one() as client:
            # Not by the client, which would put together headers, cookies and addresses of its own each time.
            request = httpx2.Request(
                method,
                self._url(path, query),
                headers=sent,
                content=content,
                extensions={"timeout": _limits(client, timeout)},
            )
            response = await client.send(request, stream=True)
            try:
                yield response
            finally:
                await response.aclose()

    async def close(self) -> None:
        """Close the connections that nobody uses."""
        await self._connections.close()

    def _url(self, path: str, query: str) -> httpx2.URL:
        # As the SDKs take it: the one's address ends in /v1, the other's does not.
        below = path.removeprefix("/v1") if self.provider == "openai" else path
        return _parsed(f"{self._base_url}{below}{'?' if query else ''}{query}")


def _limits(client: httpx2.AsyncClient, timeout: float | None) -> dict[str, float | None]:
    limit = None if timeout is None else timeout + _GRACE_S
    own = client.timeout
    return {"connect": own.connect, "read": limit, "write": limit, "pool": own.pool}


@lru_cache(256)
def _parsed(address: str) -> httpx2.URL:
    return httpx2.URL(address)


Maker: TypeAlias = Callable[[str, float], Callable[[], httpx2.AsyncClient]]


def client_maker(base_url: str, connect_timeout: float) -> Callable[[], httpx2.AsyncClient]:
    """Makes clients of one connection for an address: they follow nothing and try nothing again."""
    # Loading certificates takes long, so it is done once, and plain addresses need none.
    verify = False if _parsed(base_url).scheme == "http" else httpx2.create_ssl_context()
    return partial(
        httpx2.AsyncClient,
        verify=verify,
        timeout=httpx2.Timeout(None, connect=connect_timeout, pool=connect_timeout),
        limits=httpx2.Limits(max_connections=1, max_keepalive_connections=1),
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


def make_upstreams(settings: GatewaySettings, maker: Maker = client_maker) -> dict[str, Upstream]:
    """Those that a key is configured for; raises as `check_keys`.

    Args:
        maker: makes what makes a client for an address, given the seconds that connecting may take.
    """
    addresses = {"openai": settings.openai_base_url, "anthropic": settings.anthropic_base_url}
    made = {}
    for provider, key in check_keys(settings).items():
        connections = Connections(maker(addresses[provider], settings.connect_timeout))
        made[provider] = Upstream(provider, addresses[provider], key, connections)
    return made


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
