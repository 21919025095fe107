"""What the protocol asks for (steps) and what it is told (answers).

The protocol is a generator: it yields a step, and whoever drives it carries the step out and
sends the answer back in. Every yield is a point at which the process may die.

None of these is ever compared with another, so they are made without equality, which would cost
time in every import.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from memoflow.ledger.transaction import Operation, Outcome
from memoflow.providers.base import Reply
from memoflow.tools import BoundArguments, Tool, ToolCall

__all__ = [
    "Answered",
    "Arrived",
    "Collect",
    "Collected",
    "Commit",
    "Committed",
    "Compute",
    "Count",
    "Dispatch",
    "Dispatched",
    "Execution",
    "Finished",
    "IdKept",
    "Interrupted",
    "Launch",
    "NotSent",
    "NotStarted",
    "Proceed",
    "Raised",
    "Read",
    "Repeat",
    "Returned",
    "Step",
    "TimedOut",
    "Wire",
]


# Steps


class Proceed:
    """May the call go on? Answered with None, or with the cancellation that has been asked for."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """Run a query on the ledger. Answered with its result."""

    query: Callable[[Any], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Compute:
    """Run a pure but slow function where it blocks nobody. Answered with its result, or raises."""

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Count:
    """Ask the provider to count a request's input tokens. Answered with an int, or raises.

    ``timeout`` is for this question alone, in seconds.
    """

    body: dict[str, Any] = field(repr=False)
    timeout: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """Record these operations durably, in one commit. Answered with `Committed`."""

    operations: tuple[Operation[Any], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Wire:
    """One provider request as it goes out.

    ``timeout`` is for the whole request and ``idle_timeout`` for the wait between two events, in seconds;
    ``choices`` are the replies that it asks for.
    """

    body: dict[str, Any] = field(repr=False)
    streaming: bool
    timeout: float | None
    idle_timeout: float | None
    choices: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Dispatch:
    """Send a request to the provider. Answered with `Dispatched`.

    ``keep_id`` makes the operation that keeps the provider's response id, as soon as a stream names it.
    """

    wire: Wire
    keep_id: Callable[[str], Operation[Any]] = field(repr=False)


class IdKept:
    """Has `Dispatch.keep_id` been recorded for the last request? Answered with a bool once it is certain."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """Give the consumer of a stream the events that make a recorded reply. Answered with None."""

    reply: Reply


@dataclass(frozen=True, slots=True, eq=False)
class Execution:
    """One tool execution whose effect is recorded as STARTED."""

    effect_id: str
    tool: Tool[..., Any]
    arguments: BoundArguments
    call: ToolCall


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """Run tools side by side. Answered with None at once; `Collect` brings what finishes."""

    executions: tuple[Execution, ...]


class Collect:
    """Wait until at least one launched tool has finished. Answered with `Collected`."""

    __slots__ = ()


Step = Proceed | Read | Compute | Count | Commit | Dispatch | IdKept | Repeat | Launch | Collect


# Answers


@dataclass(frozen=True, slots=True, eq=False)
class Committed:
    """What became of each operation, in order."""

    outcomes: tuple[Outcome, ...]

    def check(self) -> list[Any]:
        """The values; raises the first refusal."""
        for outcome in self.outcomes:
            if outcome.error is not None:
                raise outcome.error
        return [outcome.value for outcome in self.outcomes]


@dataclass(frozen=True, slots=True, eq=False)
class Arrived:
    """A whole reply of the API. ``raw`` is its JSON text, which is what is kept for replay."""

    reply: Reply
    raw: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """An HTTP status other than success, and what the body says in structured form."""

    status: int
    code: str | None
    retry_after: float | None
    retryable: bool
    type: str | None = None
    param: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class NotSent:
    """Proof that no byte of the request was written: the connection failed, or it was never tried.

    ``entered`` tells whether the SDK's method had been entered; under ``strict_outcomes`` that alone counts.
    """

    cause: str
    error: BaseException | None = None
    entered: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Interrupted:
    """Anything else: the request may have been received, and what came of it is not known."""

    reason: str
    error: BaseException | None = None
    response_id: str | None = None
    status: int | None = None
    code: str | None = None
    cancelled: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Dispatched:
    """How a request ended and how long it took, by a clock that cannot step."""

    answer: Arrived | Answered | NotSent | Interrupted
    elapsed_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class Returned:
    """A tool returned."""

    value: Any = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Raised:
    """A tool raised, or was cancelled while it ran."""

    error: BaseException


@dataclass(frozen=True, slots=True, eq=False)
class TimedOut:
    """A tool took longer than it may; it may still be running."""

    seconds: float


class NotStarted:
    """A tool was never entered, because a sibling failed or the call was cancelled before its turn."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """One execution and how it ended."""

    execution: Execution
    ending: Returned | Raised | TimedOut | NotStarted


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """Executions that have finished since the last look (at least one), and a cancellation if one came."""

    finished: tuple[Finished, ...]
    abort: BaseException | None = None
