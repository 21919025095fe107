"""Who is acting: the identity of an activity, ids of rows, and idempotency keys of tool effects."""

from __future__ import annotations

import os
import re
import threading
import time
import unicodedata
from dataclasses import dataclass
from typing import Final

from memoflow.canonical import sha256_hex
from memoflow.errors import InvalidRequest
from memoflow.randomness import Drawn

__all__ = [
    "ActivityIdentity",
    "check_name",
    "check_person",
    "idempotency_key",
    "new_id",
    "same_person",
    "tool_label",
]

MAX_NAME: Final = 256
MAX_NAME_BYTES: Final = 512
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# What shows as nothing, though it is printable to Python: from Unicode's default ignorable code points.
_UNSEEN: Final = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_HUMAN: Final = re.compile("^(?:human:)+")
_lock = threading.RLock()  # The collector may run code that makes an id here.
_last = 0
_random = Drawn(8)


def _start_anew_after_fork() -> None:
    # A child forked while another thread held the lock would wait for it forever.
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew_after_fork)


def new_id() -> str:
    """A new UUIDv7 as text (RFC 9562): ordered by creation in one process, random otherwise.

    Order never decides anything; it keeps index inserts local.
    """
    global _last
    with _lock:
        # 48 bits of milliseconds and 12 of sub-millisecond order, made strictly increasing here.
        _last = max(_last + 1, (time.time_ns() << 12) // 1_000_000)
        stamp = _last
    random = _random.take()
    value = (stamp >> 12 & (1 << 48) - 1) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64
    value |= 0b10 << 62 | int.from_bytes(random) & (1 << 62) - 1
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def check_name(what: str, value: object, *, limit: int = MAX_NAME) -> str:
    """Return ``value`` if it can be a name: text of 1 to ``limit`` code points without control characters.

    It takes 512 bytes at most, since four names together are a key, whose size is bounded.

    Raises:
        InvalidRequest: it is not text, is empty or too long, or holds a control character or lone surrogate.
    """
    if not isinstance(value, str):
        raise InvalidRequest(f"{what} must be text, not {type(value).__name__}.")
    if not 1 <= len(value) <= limit:
        raise InvalidRequest(f"{what} must have 1 to {limit} characters, not {len(value)}.")
    if _UNFIT.search(value):
        raise InvalidRequest(f"{what} must not hold control characters or lone surrogates.")
    if limit <= MAX_NAME and (size := len(value.encode())) > MAX_NAME_BYTES:
        raise InvalidRequest(f"{what} must have at most {MAX_NAME_BYTES} bytes as UTF-8, not {size}.")
    return value


def check_person(what: str, value: object) -> str:
    """Return ``value`` if it can name somebody: a name in which there is something to be seen.

    Raises:
        InvalidRequest: as `check_name`, or nothing of it shows.
    """
    name = check_name(what, value)
    if not _shown(name):
        raise InvalidRequest(
            f"{what} must say who it is; it has only blanks and characters that do not show."
        )
    return name


def same_person(one: str, other: str) -> bool:
    """Whether two names are one person's, written in two ways.

    Case, blanks, characters that do not show, compatibility forms (Unicode's NFKC) and the prefix ``human:``
    make no difference. Letters of other alphabets that only look alike do.
    """
    return _shown(one) == _shown(other)


def _shown(name: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    seen = "".join(c for c in _UNSEEN.sub("", folded) if c.isprintable() and not c.isspace())
    return _HUMAN.sub("", seen)


@dataclass(frozen=True, slots=True)
class ActivityIdentity:
    """One unit of work in a run. The first four name it; type and version say what it is."""

    namespace: str
    workflow_id: str
    run_id: str
    activity_id: str
    activity_type: str
    activity_version: str

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_name(name, getattr(self, name))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.workflow_id}/{self.run_id}/{self.activity_id}"


def tool_label(namespace: str | None, name: str) -> str:
    """The name of a tool as people and rules see it: with its namespace in front, where it has one."""
    return f"{namespace}.{name}" if namespace else name


def idempotency_key(
    identity: ActivityIdentity,
    *,
    replay_key: str,
    round: int,
    ordinal: int,
    tool_namespace: str | None,
    tool_name: str,
    tool_version: str,
    arguments_digest: str,
) -> str:
    """The stable key of one tool effect: the same on every attempt, another for any other effect.

    Returns:
        ``mf1_`` and 64 hexadecimal digits.
    """
    return "mf1_" + sha256_hex(
        [
            identity.namespace,
            identity.workflow_id,
            identity.run_id,
            identity.activity_type,
            identity.activity_id,
            replay_key,
            round,
            ordinal,
            tool_namespace,
            tool_name,
            tool_version,
            arguments_digest,
        ]
    )
