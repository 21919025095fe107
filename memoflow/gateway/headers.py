"""Which headers pass, in both directions, and those that the gateway adds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from memoflow.budget import DIMENSIONS
from memoflow.figures import nanos
from memoflow.ledger.opening import Opened

__all__ = ["Headers", "figures", "forwarded", "named", "returned"]

Headers = list[tuple[bytes, bytes]]

_HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"expect",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# What the upstream is to have of its own: who asks, for which account, in what form.
_OURS: Final = frozenset(
    {
        b"accept-encoding",
        b"api-key",
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"cookie",
        b"forwarded",
        b"host",
        b"idempotency-key",
        b"openai-organization",
        b"openai-project",
        b"via",
        b"x-api-key",
        b"x-real-ip",
    }
)
_OUR_FAMILIES: Final = (b"memoflow-", b"x-forwarded-", b"x-memoflow-")

_RETURNED: Final = frozenset(
    {
        b"content-type",
        b"openai-model",
        b"openai-processing-ms",
        b"openai-version",
        b"request-id",
        b"retry-after",
        b"retry-after-ms",
        b"x-request-id",
        b"x-should-retry",
    }
)
_RETURNED_FAMILIES: Final = (b"anthropic-ratelimit-", b"x-ratelimit-")
_UNFIT: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def forwarded(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """What goes on to the provider of a client's headers. Their names are in lower case."""
    given = list(headers)
    listed = {
        token.strip().lower() for name, value in given if name == b"connection" for token in value.split(b",")
    }
    return [
        (name, value)
        for name, value in given
        if name not in _HOP_BY_HOP
        and name not in _OURS
        and name not in listed
        and not name.startswith(_OUR_FAMILIES)
        and not _UNFIT.search(value)
    ]


def returned(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """What goes back to the client of a provider's headers: nothing that tells whose account it is."""
    return [
        (lower, value)
        for name, value in headers
        if ((lower := name.lower()) in _RETURNED or lower.startswith(_RETURNED_FAMILIES))
        and not _UNFIT.search(value)
    ]


def named(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """The value of a header, or None if it is not there or is no plain text."""
    found = [value for key, value in headers if key == name]
    if len(found) != 1:
        return None
    text = found[0].decode("latin-1").strip()
    return text if text.isascii() and text.isprintable() else None


def figures(opened: Opened) -> Headers:
    """What a request holds, and what its accounts have left beside it in the dimensions that are limited."""
    rows: Headers = []
    for name, held, left in zip(DIMENSIONS, opened.held, opened.left, strict=True):
        label = name.replace("_", "-").encode()
        if held:
            rows.append((b"memoflow-reservation-" + label, _figure(name, held)))
        if left is not None:
            rows.append((b"memoflow-remaining-" + label, _figure(name, left)))
    if opened.currency is not None:
        rows.append((b"memoflow-currency", opened.currency.encode()))
    return rows


def _figure(dimension: str, amount: int) -> bytes:
    return (nanos(amount) if dimension == "cost" else str(amount)).encode()
