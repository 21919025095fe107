"""What a server is told beside the arguments of a call."""

from __future__ import annotations

import re
from typing import Any, Final

from memoflow.errors import InvalidTool
from memoflow.tools import ToolCall

__all__ = ["ATTEMPT", "IDEMPOTENCY_KEY", "check_key_name", "make_meta"]

IDEMPOTENCY_KEY: Final = "memoflow/idempotencyKey"
"""Key in ``_meta`` of the call's idempotency key: the same in every attempt, another for any other effect."""

ATTEMPT: Final = "memoflow/attempt"
"""Key in ``_meta`` of the activity's attempt, from 1."""

# https://modelcontextprotocol.io/specification/2025-11-25/basic#_meta
_LABEL: Final = "[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME: Final = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*/)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_RESERVED: Final = re.compile(r"[^./]+\.(?:mcp|modelcontextprotocol)(?:\.[^/]*)?/.*")
_MAX_NAME: Final = 256
_TAKEN: Final = frozenset({"progressToken", "traceparent", "tracestate", "baggage", ATTEMPT})


def check_key_name(given: object, tool: str) -> str:
    """The ``_meta`` key under which a server wants the idempotency key.

    Raises:
        InvalidTool: it is no key, or one that the protocol keeps for itself.
    """
    plain = isinstance(given, str) and len(given) <= _MAX_NAME and _NAME.fullmatch(given)
    if isinstance(given, str) and plain and given not in _TAKEN and not _RESERVED.fullmatch(given):
        return given
    raise InvalidTool(
        f"key_name of MCP tool {tool!r} cannot be a key of _meta: write a name after a prefix in reverse DNS "
        'notation, such as "com.example/idempotencyKey", that the protocol does not reserve.'
    )


def make_meta(call: ToolCall, key_name: str | None) -> dict[str, Any]:
    """The ``_meta`` of a call."""
    meta: dict[str, Any] = {IDEMPOTENCY_KEY: call.idempotency_key, ATTEMPT: call.attempt}
    if key_name is not None:
        meta[key_name] = call.idempotency_key
    return meta
