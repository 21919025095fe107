"""A request as it comes in: read within limits, parsed strictly, and changed only where it must be."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from memoflow.budget import MAX_AMOUNT
from memoflow.canonical import StrictJSONError, parse_strict
from memoflow.errors import InvalidRequest
from memoflow.gateway.headers import Headers, named
from memoflow.gateway.refusals import HttpRefusal
from memoflow.identity import check_name

__all__ = ["NO_MODEL", "ClientGone", "Incoming", "edited", "read_incoming"]

Receive = Callable[[], Awaitable[Any]]

_IDEMPOTENCY: Final = b"idempotency-key"
_INPUT_TOKENS: Final = b"memoflow-input-tokens"
_MAX_KEY: Final = 255
NO_MODEL: Final = "(none)"
"""Stands for the model of a request that names none."""


class ClientGone(Exception):
    """The client went away before its request had come in whole."""


@dataclass(frozen=True, slots=True, eq=False)
class Incoming:
    """A request of a client.

    Attributes:
        raw: its body, byte for byte; body: the same, parsed.
        query: what of its query goes on to the provider.
        idempotency_key: what the client names the request by, or None.
        input_tokens: how many tokens the client says that the parts have which nobody can measure.
    """

    headers: Headers = field(repr=False)
    raw: bytes = field(repr=False)
    body: dict[str, Any] = field(repr=False)
    query: str = ""
    idempotency_key: str | None = None
    input_tokens: int | None = None

    @property
    def streaming(self) -> bool:
        """Whether the client wants events."""
        return self.body.get("stream") is True

    @property
    def request(self) -> dict[str, Any]:
        """What is asked for, however the reply is to come."""
        return {name: value for name, value in self.body.items() if name != "stream"}

    @property
    def model(self) -> str:
        """The model; text of some length, or `NO_MODEL`."""
        model = self.body.get("model")
        return model if isinstance(model, str) and model else NO_MODEL


async def read_incoming(
    headers: Headers, receive: Receive, *, query: str = "", max_bytes: int, seconds: float
) -> Incoming:
    """Read a request that has a body.

    Raises:
        InvalidRequest: the body is no JSON object, or a header has no possible value.
        HttpRefusal: it is too large, too slow, or in a form that is not read.
        ClientGone: it has not come in whole.
    """
    _check_form(headers, max_bytes)
    try:
        async with asyncio.timeout(seconds):
            raw = await _read(receive, max_bytes)
    except TimeoutError:
        raise HttpRefusal(
            408,
            "request_timeout",
            f"The body of the request did not come in within {seconds:g} s. Send it again.",
        ) from None
    body = _parsed(raw, max_bytes)
    return Incoming(headers, raw, body, query, _idempotency_key(headers), _input_tokens(headers))


def _check_form(headers: Headers, max_bytes: int) -> None:
    encoding = named(headers, b"content-encoding")
    if any(name == b"content-encoding" for name, _ in headers) and encoding != "identity":
        raise HttpRefusal(
            415,
            "unsupported_encoding",
            "The body of the request is encoded. Send it as plain JSON, uncompressed.",
        )
    length = named(headers, b"content-length")
    if length is not None and length.isdecimal() and int(length[:19]) > max_bytes:
        raise _too_large(max_bytes)


def _too_large(max_bytes: int) -> Exception:
    return HttpRefusal(
        413, "request_too_large", f"The body of the request has more than {max_bytes} bytes. Send less."
    )


async def _read(receive: Receive, max_bytes: int) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _parsed(raw: bytes, max_bytes: int) -> dict[str, Any]:
    try:
        body = parse_strict(raw, max_bytes=max_bytes)
    except StrictJSONError as error:
        raise InvalidRequest(f"The body of the request cannot be read. {error}") from None
    if not isinstance(body, dict):
        raise InvalidRequest("The body of the request must be a JSON object.")
    stream = body.get("stream")
    if not (stream is None or isinstance(stream, bool)):
        raise InvalidRequest("stream must be true or false. Correct it, or leave it out.")
    return body


def _idempotency_key(headers: Headers) -> str | None:
    if not any(name == _IDEMPOTENCY for name, _ in headers):
        return None
    key = named(headers, _IDEMPOTENCY)
    if not key:
        raise InvalidRequest("Idempotency-Key must be given once, as plain text.")
    return check_name("Idempotency-Key", key, limit=_MAX_KEY)


def _input_tokens(headers: Headers) -> int | None:
    if not any(name == _INPUT_TOKENS for name, _ in headers):
        return None
    text = named(headers, _INPUT_TOKENS)
    if text is None or not re.fullmatch("[0-9]{1,16}", text) or int(text) > MAX_AMOUNT:
        raise InvalidRequest(f"memoflow-input-tokens must be a whole number from 0 to {MAX_AMOUNT}.")
    return int(text)


def edited(raw: bytes, body: Mapping[str, Any], changes: Mapping[str, Any]) -> bytes:
    """The bytes of a JSON object with some fields set; everything else stays byte for byte where that can be.

    Args:
        raw: the object as text; body: the same, parsed.
        changes: the fields to set.
    """
    if not changes:
        return raw
    if body.keys() & changes.keys():
        return _json({**body, **changes})
    at = raw.index(b"{") + 1
    # It is an object that has a model, so something follows.
    return raw[:at] + _json(changes)[1:-1] + b"," + raw[at:]


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
