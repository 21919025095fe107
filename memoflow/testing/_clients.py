"""Official clients whose requests go to a simulated provider. Importing openai takes a while: do it late."""

from __future__ import annotations

from typing import Any

import httpx2
from openai import AsyncOpenAI, OpenAI

from memoflow.testing._transport import AsyncSimulatedTransport, Opens, SimulatedTransport

__all__ = ["API_KEY", "BASE_URL", "async_client", "async_loopback_client", "loopback_client", "sync_client"]

API_KEY = "sk-simulated"
# A reserved name: a request that escapes the transport reaches nobody.
BASE_URL = "http://simulated.invalid/v1"


def sync_client(provider: Opens, **options: Any) -> OpenAI:
    """An ``OpenAI`` client that talks to ``provider`` in process."""
    transport = httpx2.Client(transport=SimulatedTransport(provider))
    return OpenAI(**{"api_key": API_KEY, "base_url": BASE_URL, "http_client": transport, **options})


def async_client(provider: Opens, **options: Any) -> AsyncOpenAI:
    """An ``AsyncOpenAI`` client that talks to ``provider`` in process."""
    transport = httpx2.AsyncClient(transport=AsyncSimulatedTransport(provider))
    return AsyncOpenAI(**{"api_key": API_KEY, "base_url": BASE_URL, "http_client": transport, **options})


def loopback_client(base_url: str, **options: Any) -> OpenAI:
    """An ``OpenAI`` client of a provider served at ``base_url``."""
    # Loading certificates takes longer than most tests, and loopback needs none.
    http = httpx2.Client(verify=False)
    return OpenAI(**{"api_key": API_KEY, "base_url": base_url, "http_client": http, **options})


def async_loopback_client(base_url: str, **options: Any) -> AsyncOpenAI:
    """An ``AsyncOpenAI`` client of a provider served at ``base_url``."""
    http = httpx2.AsyncClient(verify=False)
    return AsyncOpenAI(**{"api_key": API_KEY, "base_url": base_url, "http_client": http, **options})
