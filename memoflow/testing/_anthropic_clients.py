"""Official clients of Anthropic whose requests go to a simulated provider. Import it late, too."""

from __future__ import annotations

from typing import Any

import httpx2

try:
    from anthropic import Anthropic, AsyncAnthropic
except ModuleNotFoundError as error:
    if error.name != "anthropic":
        raise
    raise ModuleNotFoundError(
        "A client of Anthropic needs its SDK: pip install 'memoflow-runtime[anthropic]'.", name="anthropic"
    ) from None

from memoflow.testing._transport import AsyncSimulatedTransport, Opens, SimulatedTransport

__all__ = ["async_client", "async_loopback_client", "loopback_client", "sync_client"]

API_KEY = "sk-ant-simulated"
# A reserved name: a request that escapes the transport reaches nobody.
BASE_URL = "http://simulated.invalid"


def sync_client(provider: Opens, **options: Any) -> Anthropic:
    """An ``Anthropic`` client that talks to ``provider`` in process."""
    transport = httpx2.Client(transport=SimulatedTransport(provider))
    return Anthropic(**{"api_key": API_KEY, "base_url": BASE_URL, "http_client": transport, **options})


def async_client(provider: Opens, **options: Any) -> AsyncAnthropic:
    """An ``AsyncAnthropic`` client that talks to ``provider`` in process."""
    transport = httpx2.AsyncClient(transport=AsyncSimulatedTransport(provider))
    return AsyncAnthropic(**{"api_key": API_KEY, "base_url": BASE_URL, "http_client": transport, **options})


def loopback_client(base_url: str, **options: Any) -> Anthropic:
    """An ``Anthropic`` client of a provider served at ``base_url``, with or without its ``/v1``."""
    # Loading certificates takes longer than most tests, and loopback needs none.
    http = httpx2.Client(verify=False)
    root = base_url.removesuffix("/v1")
    return Anthropic(**{"api_key": API_KEY, "base_url": root, "http_client": http, **options})


def async_loopback_client(base_url: str, **options: Any) -> AsyncAnthropic:
    """An ``AsyncAnthropic`` client of a provider served at ``base_url``, with or without its ``/v1``."""
    http = httpx2.AsyncClient(verify=False)
    root = base_url.removesuffix("/v1")
    return AsyncAnthropic(**{"api_key": API_KEY, "base_url": root, "http_client": http, **options})
