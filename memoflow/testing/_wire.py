"""One request and what happens to it on the wire, without doing any I/O.

An `Exchange` is a list of steps. The in-process transports and the server carry them out; what is
billed, stored and recorded is decided here, once for all of them.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from memoflow.providers.base import Usage
from memoflow.testing._signals import Gate, Signal

__all__ = [
    "Body",
    "Exchange",
    "Fail",
    "FailKind",
    "Head",
    "Perform",
    "RecordedRequest",
    "Split",
    "Step",
    "Wait",
    "WireRequest",
    "add_usage",
]

FailKind = Literal[
    "connect_refused",
    "dns_failure",
    "connect_timeout",
    "pool_timeout",
    "write_error",
    "read_timeout",
    "reset",
    "closed",
    "truncated",
]
Split = int | Sequence[int] | None


def add_usage(left: Usage, right: Usage) -> Usage:
    """The sum of two usages."""
    return Usage(
        input_tokens=left.input_tokens + right.input_tokens,
        output_tokens=left.output_tokens + right.output_tokens,
        cached_input_tokens=left.cached_input_tokens + right.cached_input_tokens,
        cache_write_tokens=left.cache_write_tokens + right.cache_write_tokens,
        reasoning_tokens=left.reasoning_tokens + right.reasoning_tokens,
    )


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A request as it stands on the wire; header names are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class RecordedRequest:
    """What the provider knows about one request.

    Attributes:
        index: its position among all requests, from 0.
        operation: ``create`` for whatever generates, ``retrieve``, ``cancel``, ``delete``,
            ``input_items``, ``count`` or ``unknown``.
        route: method and path without ids, for example ``GET /v1/responses/{id}``.
        arrived: the provider read it. False for failures of connecting and writing.
        performed: a generation was completed and billed for it.
        finished: the whole reply was handed over.
        client_gone: the client went away before that.
        failure: the failure of the connection that the script asked for.
        status: the HTTP status of the reply, once it was sent.
        billed: tokens billed for it, or None.
        response_id: the id of the response it created.
        api: ``responses``, ``chat.completions``, ``embeddings`` or ``messages``.
        ended: happens when the exchange is over.
    """

    index: int
    operation: str
    route: str
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    arrived: bool = False
    performed: bool = False
    finished: bool = False
    client_gone: bool = False
    failure: FailKind | None = None
    status: int | None = None
    billed: Usage | None = None
    response_id: str | None = None
    api: str = "responses"
    ended: Signal = field(default_factory=Signal, repr=False, compare=False)

    def wait_ended(self, timeout: float = 10.0) -> bool:
        """Block until the exchange is over, however it ended; False after ``timeout`` seconds.

        A client learns the end of a reply before a server has noted it down.
        """
        return self.ended.wait(timeout)

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Perform:
    """The generation is complete; ``commit`` bills and stores it. Its argument: the client is gone."""

    commit: Callable[[bool], None]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing happens for ``seconds``, or until the gate is released."""

    seconds: float | None = None
    gate: Gate | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """Status line and headers. ``length`` is None for a chunked body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    length: int | None


@dataclass(frozen=True, slots=True)
class Body:
    """A piece of the body."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Fail:
    """The connection fails; nothing follows."""

    kind: FailKind


Step = Perform | Wait | Head | Body | Fail


class Exchange:
    """The steps of one request. Iterate it once for what a driver has to do: wait, head, body, fail.

    A driver that loses its client calls `abandon`.
    """

    def __init__(
        self,
        record: RecordedRequest,
        steps: Sequence[Step],
        *,
        lock: threading.RLock,
        finish_abandoned: bool,
        split: Split = None,
    ) -> None:
        self.record = record
        self._lock, self._finish_abandoned = lock, finish_abandoned
        self._steps = list(_resplit(steps, split))
        self._next = 0

    def __iter__(self) -> Iterator[Wait | Head | Body | Fail]:
        while (step := self._advance()) is not None:
            if not isinstance(step, Perform):
                yield step

    def _advance(self) -> Step | None:
        with self._lock:
            if self._next == len(self._steps):
                self._finish()
                return None
            step = self._steps[self._next]
            self._next += 1
            self._take(step)
            return step

    def _take(self, step: Step) -> None:
        if isinstance(step, Perform):
            step.commit(False)
        elif isinstance(step, Head):
            self.record.status = step.status
        elif isinstance(step, Fail):
            self.record.failure = step.kind
            self.record.ended.set()
        elif isinstance(step, Wait) and step.gate is not None:
            step.gate.entered.set()

    def _finish(self) -> None:
        if not self.record.client_gone and self.record.failure is None:
            self.record.finished = True
        self.record.ended.set()

    def abandon(self, *, undelivered: bool = False) -> None:
        """The client went away. Whether the generation is finished and billed is the provider's choice.

        Args:
            undelivered: the last step did not reach the client either.
        """
        with self._lock:
            if self.record.ended.is_set():
                return
            if self._next == len(self._steps) and not undelivered:
                # Whoever has read all of a stream need not read on until its end.
                self._finish()
                return
            self.record.client_gone = True
            waiting = self._steps[self._next - 1] if self._next else None
            if self._finish_abandoned:
                self._perform_the_rest()
            self._next = len(self._steps)
            self.record.ended.set()
        if isinstance(waiting, Wait) and waiting.gate is not None:
            waiting.gate.abandoned.set()

    def _perform_the_rest(self) -> None:
        for step in self._steps[self._next :]:
            if isinstance(step, Perform):
                step.commit(True)


def _resplit(steps: Sequence[Step], split: Split) -> Iterator[Step]:
    """The same steps with the body cut into pieces of other sizes, across the borders of events."""
    if split is None:
        yield from steps
        return
    sizes = itertools.cycle([split] if isinstance(split, int) else split)
    buffer, size = b"", next(sizes)
    for step in steps:
        if not isinstance(step, Body):
            if buffer and not isinstance(step, Perform):
                yield Body(buffer)
                buffer = b""
            yield step
            continue
        buffer += step.data
        while len(buffer) >= size:
            yield Body(buffer[:size])
            buffer, size = buffer[size:], next(sizes)
    if buffer:
        yield Body(buffer)
