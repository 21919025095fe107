"""Constructors of faults: what a script says goes wrong.

``then`` is always the reply that would have come. ``performed`` says whether the provider generated
and billed it although the client never learns so; it is True wherever nobody could know better.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from memoflow.testing._replies import as_entry, as_reply
from memoflow.testing._script import Cut, Delayed, Held, Mangled, ScriptEntry, StatusFault
from memoflow.testing._signals import Gate

__all__ = [
    "closed_before_reply",
    "connect_refused",
    "connect_timeout",
    "corrupt_chunk",
    "delay",
    "dns_failure",
    "duplicate_terminal",
    "error_event",
    "hold",
    "huge",
    "no_events",
    "pool_timeout",
    "read_timeout",
    "reset_before_reply",
    "reset_mid_body",
    "snapshot_differs",
    "status",
    "stream_ends_early",
    "truncated_body",
    "write_error",
]

_names = itertools.count(1)


def status(
    status: int,
    *,
    code: str | None = None,
    type: str | None = None,
    message: str | None = None,
    param: str | None = None,
    retry_after: int | str | None = None,
    retry_after_ms: int | str | None = None,
    headers: Mapping[str, str] | None = None,
    performed: bool = False,
    then: ScriptEntry | None = None,
) -> StatusFault:
    """A refusal with this HTTP status and the API's error body.

    Args:
        status: the HTTP status.
        code: the structured error code; what the API usually sends with this status by default. Anthropic
            has types in place of most codes, so a code is translated where one is known.
        type: the error type, likewise.
        message: its text.
        param: the request parameter it names; OpenAI only.
        retry_after: seconds, an HTTP date or anything else, put into ``retry-after``.
        retry_after_ms: put into ``retry-after-ms``.
        headers: further headers, for example ``x-should-retry``.
        performed: whether ``then`` was generated and billed all the same.
        then: the reply that would have come.
    """
    sent = dict(headers or {})
    if retry_after is not None:
        sent["retry-after"] = str(retry_after)
    if retry_after_ms is not None:
        sent["retry-after-ms"] = str(retry_after_ms)
    return StatusFault(
        status=status,
        code=code,
        type=type,
        message=message,
        param=param,
        headers=sent,
        performed=performed,
        then=as_reply(then),
    )


def connect_refused() -> Cut:
    """Nobody listens; nothing was sent. In process only: over sockets use `refused_url`."""
    return Cut(kind="connect_refused", performed=False)


def dns_failure() -> Cut:
    """The host name does not resolve; nothing was sent. In process only."""
    return Cut(kind="dns_failure", performed=False)


def connect_timeout() -> Cut:
    """Connecting took too long; nothing was sent. In process only."""
    return Cut(kind="connect_timeout", performed=False)


def pool_timeout() -> Cut:
    """No connection of the pool became free; nothing was sent. In process only."""
    return Cut(kind="pool_timeout", performed=False)


def write_error() -> Cut:
    """The connection broke while the request was being written. In process only."""
    return Cut(kind="write_error", performed=False)


def read_timeout(then: ScriptEntry | None = None, *, performed: bool = True) -> Cut:
    """No reply in time. In process it is raised at once; a server never answers."""
    return Cut(kind="read_timeout", then=as_reply(then), performed=performed)


def reset_before_reply(then: ScriptEntry | None = None, *, performed: bool = True) -> Cut:
    """The connection is reset after the request was read."""
    return Cut(kind="reset_before_reply", then=as_reply(then), performed=performed)


def closed_before_reply(then: ScriptEntry | None = None, *, performed: bool = True) -> Cut:
    """The connection is closed in good order, without a reply, after the request was read."""
    return Cut(kind="closed_before_reply", then=as_reply(then), performed=performed)


def reset_mid_body(
    then: ScriptEntry | None = None, *, after: int | None = None, performed: bool = True
) -> Cut:
    """The connection is reset within the body: in its middle, or after so many events of a stream."""
    return Cut(kind="reset_mid_body", then=as_reply(then), after=after, performed=performed)


def truncated_body(
    then: ScriptEntry | None = None, *, after: int | None = None, performed: bool = True
) -> Cut:
    """The connection is closed within the body: in its middle, or after so many events of a stream."""
    return Cut(kind="truncated_body", then=as_reply(then), after=after, performed=performed)


def stream_ends_early(
    then: ScriptEntry | None = None, *, after: int | None = None, performed: bool = True
) -> Mangled:
    """A stream that ends in good order after so many events, by default before it says how the reply ended.

    That is all but the terminal event of a response, all but the last finish reason and what follows it of a
    completion, all but ``message_delta`` and ``message_stop`` of a message. A negative number counts from the
    end. Without streaming the body is cut off.
    """
    return Mangled(kind="stream_ends_early", then=as_reply(then), after=after, performed=performed)


def error_event(
    code: str = "server_error",
    message: str = "The simulated provider was told to fail here.",
    *,
    after: int | None = None,
    nested: bool = False,
    performed: bool = True,
    then: ScriptEntry | None = None,
) -> Mangled:
    """A stream that ends in an error after so many events, by default in its middle.

    Args:
        code: its error code.
        message: its text.
        after: events before it.
        nested: put code and message into an ``error`` object, as some deployments of the Responses API do.
            The other APIs always do.
        performed: whether the reply was generated and billed.
        then: the reply that would have come. Without streaming it becomes a 500.
    """
    return Mangled(
        kind="error_event",
        then=as_reply(then),
        after=after,
        performed=performed,
        code=code,
        message=message,
        nested=nested,
    )


def corrupt_chunk(
    then: ScriptEntry | None = None, *, after: int | None = None, performed: bool = True
) -> Mangled:
    """An event whose data is not JSON, after so many events; without streaming, a body that is not."""
    return Mangled(kind="corrupt_chunk", then=as_reply(then), after=after, performed=performed)


def no_events(then: ScriptEntry | None = None, *, performed: bool = True) -> Mangled:
    """A 200 without any event, or with an empty body."""
    return Mangled(kind="no_events", then=as_reply(then), performed=performed)


def duplicate_terminal(then: ScriptEntry | None = None) -> Mangled:
    """A stream with its terminal event twice: of a completion, the chunk with its last finish reason."""
    return Mangled(kind="duplicate_terminal", then=as_reply(then))


def snapshot_differs(then: ScriptEntry | None = None) -> Mangled:
    """A stream whose terminal snapshot is not what was streamed before it. Only a response has one."""
    return Mangled(kind="snapshot_differs", then=as_reply(then))


def huge(size: int, then: ScriptEntry | None = None, *, performed: bool = True) -> Mangled:
    """A reply of at least ``size`` bytes: the body, or one event of a stream, is padded to it."""
    return Mangled(kind="huge", then=as_reply(then), size=size, performed=performed)


def delay(seconds: float, then: ScriptEntry | None = None, *, after: int | None = None) -> Delayed:
    """An entry that comes ``seconds`` later; the client's own read timeout applies meanwhile.

    Args:
        seconds: how long it really takes.
        then: the entry that follows.
        after: wait after so many events of a stream, instead of before the reply.
    """
    return Delayed(seconds=seconds, then=as_entry(then), after=after)


def hold(then: ScriptEntry | None = None, *, after: int | None = None, name: str | None = None) -> Held:
    """An entry that waits until it is released or the client goes away.

    Args:
        then: the entry that follows.
        after: wait after so many events of a stream, instead of before the reply.
        name: how a `ProviderProcess` refers to it.
    """
    gate = Gate(name if name is not None else f"hold-{next(_names)}")
    return Held(gate=gate, then=as_entry(then), after=after)
