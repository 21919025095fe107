"""What counts as the provider itself. This is decided here alone, from the URL that requests go to."""

from __future__ import annotations

import httpx2

from certification.live.boundaries import HOSTS

__all__ = ["host_of"]


def host_of(provider: str, url: httpx2.URL) -> str:
    """The provider's own host, or ``elsewhere``.

    Its own is HTTPS on the usual port to exactly its name, in ASCII, with nobody's name before it: no other
    host that ends alike or looks alike, no gateway, no region.
    """
    own = HOSTS[provider]
    plain = url.scheme == "https" and url.port is None and not url.userinfo
    return own if plain and url.raw_host == own.encode() else "elsewhere"
