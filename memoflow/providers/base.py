"""What every provider codec reads and writes: plain records and the two protocols.

A codec is pure functions over plain JSON. It does no I/O, knows no SDK and keeps no state, so
the control flow around it is written once for all providers. No record shows payload in its repr, since
reprs end up in logs and tracebacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol

from memoflow.errors import MemoflowError

if TYPE_CHECKING:
    from memoflow.tools import Toolset

__all__ = [
    "MAX_REPLY_BYTES",
    "AnsweredCall",
    "Assembler",
    "Basis",
    "CallKind",
    "Codec",
    "HostedCall",
    "MeasureMode",
    "Measurement",
    "PreparedRequest",
    "PriorRound",
    "Reply",
    "ReplyStatus",
    "RequestedCall",
    "UnreadableReply",
    "Usage",
]

MAX_REPLY_BYTES: Final = 64 * 1024 * 1024
"""Largest reply that is read, unless an adapter or codec is given another bound."""

Basis = Literal["bound", "estimate", "counted", "declared"]
MeasureMode = Literal["bound", "estimate"]
CallKind = Literal["function", "custom"]
ReplyStatus = Literal["completed", "incomplete", "failed", "cancelled", "pending"]


class UnreadableReply(MemoflowError):
    """A 200 that is not a reply of the API: nothing is read from it and its outcome is unknown.

    Attributes:
        reason: a code such as ``NOT_JSON``, ``TOO_LARGE``, ``WRONG_OBJECT`` or ``UNKNOWN_STATUS``.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"The provider answered 200 with something that is not a reply of this API ({reason}). "
            "Nothing was read from it; look for a proxy or gateway between memoflow and the provider."
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens a provider reports; cached and cache-write tokens are part of input, reasoning of output."""

    input_tokens: int
    output_tokens: int
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A call the model wants answered; ``ordinal`` is its position among the calls of the reply, from 0.

    ``arguments`` is the provider's text, untouched. ``complete`` is False for a call that was cut
    short or stands in a reply that is not completed: such a call is never run.
    """

    ordinal: int
    call_id: str
    name: str
    namespace: str | None
    kind: CallKind
    arguments: str = field(repr=False)
    complete: bool


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A call and what the model is told; ``failed`` when that is not a result but why there is none."""

    request: RequestedCall
    text: str = field(repr=False)
    failed: bool = False


@dataclass(frozen=True, slots=True)
class HostedCall:
    """Something the provider ran or wants; ``ordinal`` is its position among the hosted items, from 0."""

    ordinal: int
    type: str
    id: str | None


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply that was read whole.

    Attributes:
        status: ``pending`` is a reply that is not terminal yet (background).
        finish_reason: ``stop``, ``tool_calls``, ``length``, ``content_filter``, ``refusal``, ``failed``,
            ``cancelled``, ``pending``, or a word of the provider's own, which is never "done".
        usage: None when the provider sent none that can be trusted; never zero for "unknown".
        calls: calls to answer, in order; none may run when ``problem`` is set.
        hosted: items that ran, or wait to run, on the provider's side or elsewhere.
        body: the terminal response as plain JSON, verbatim.
        problem: why the reply contradicts itself, without payload text; else None.
        error_code: the provider's structured code of a failed reply.
        needs_client: item types that expect an answer which memoflow cannot give.
        paused: whether the model has stopped before the end of its turn, and goes on when the reply is
            handed back: the provider said so, or gave a reason that is not known here.
    """

    status: ReplyStatus
    finish_reason: str
    usage: Usage | None
    calls: tuple[RequestedCall, ...]
    hosted: tuple[HostedCall, ...]
    response_id: str | None
    model: str | None
    service_tier: str | None
    body: dict[str, Any] = field(repr=False)
    problem: str | None = None
    error_code: str | None = None
    needs_client: tuple[str, ...] = ()
    paused: bool = False

    def with_problem(self, problem: str) -> Reply:
        """The reply with a contradiction noted, so that none of its calls runs."""
        calls = tuple(replace(call, complete=False) for call in self.calls)
        return replace(self, calls=calls, problem=self.problem or problem)


@dataclass(frozen=True, slots=True)
class Measurement:
    """Input tokens of a request and how they were found."""

    tokens: int
    basis: Basis


@dataclass(frozen=True, slots=True)
class PriorRound:
    """What is known about the round before a continuation: its actual tokens and what was appended since.

    Attributes:
        tokens: input plus output tokens the provider reported for the earlier round.
        items: how many items of its reply are handed back; each may cost scaffolding once more.
        appended: the items that were not part of that round, which still have to be measured.
    """

    tokens: int
    items: int
    appended: tuple[dict[str, Any], ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A checked, frozen request.

    Attributes:
        body: the JSON that goes on the wire; whoever sends it adds what makes a stream of it (by
            ``Codec.streamed``) and the output cap (by ``Codec.with_cap``), so both forms of a call are bound
            by one digest.
        output_cap: the cap the request itself names, in tokens.
        cap_minimum: smallest cap that the provider accepts for this request.
        cap_required: whether the provider accepts no request without a cap.
        choices: replies that the provider generates, each up to the cap; 0 for a request that generates none.
        streaming: whether the reply comes as events.
        offered: (namespace, name) of every call the model may make; None if the request names no tools.
        calls_allowed: False when the request forbids calls.
        hosted: types of the tools that run on the provider's side, in the order of the request.
        prior: set on a continuation whose earlier round has a usage, so that its input is known.
    """

    body: dict[str, Any] = field(repr=False)
    model: str
    output_cap: int | None
    streaming: bool
    offered: frozenset[tuple[str | None, str]] | None
    calls_allowed: bool
    hosted: tuple[str, ...] = ()
    prior: PriorRound | None = None
    cap_minimum: int = 1
    cap_required: bool = False
    choices: int = 1


class Assembler(Protocol):
    """Puts the events of one stream together in bounded memory."""

    @property
    def skipped(self) -> tuple[str, ...]:
        """Endings of the names of events that it has no use for, which need not be decoded for it."""

    @property
    def response_id(self) -> str | None:
        """Id of the response as soon as an event named it."""

    @property
    def failed(self) -> bool:
        """Whether an error event was seen before any terminal event."""

    @property
    def error_code(self) -> str | None:
        """The structured code of that error event."""

    def feed(self, event: dict[str, Any]) -> None:
        """Take the next event; raises UnreadableReply for a terminal event that cannot be read."""

    def reply(self) -> Reply | None:
        """The terminal reply, or None until all that makes one was seen."""


class Codec(Protocol):
    """One API of one provider.

    Attributes:
        provider: whose API it is.
        api: which API it is.
    """

    provider: ClassVar[str]
    api: ClassVar[str]

    def prepare(
        self, request: Mapping[str, Any], toolset: Toolset | None = None, *, streaming: bool = False
    ) -> PreparedRequest:
        """Check and freeze a request; raises InvalidRequest."""

    def with_cap(self, body: dict[str, Any], cap: int) -> dict[str, Any]:
        """A copy of the body with this output cap."""

    def mismatch(self, prepared: PreparedRequest, reply: Reply) -> str | None:
        """Why a reply cannot be the one to this request, without payload text; else None."""

    def streamed(self, body: dict[str, Any]) -> dict[str, Any]:
        """A copy of the body that asks for events, the usage among them."""

    def measure(self, prepared: PreparedRequest, mode: MeasureMode) -> Measurement:
        """Input tokens of the parts that can be measured locally."""

    def needs_declaration(self, prepared: PreparedRequest) -> tuple[str, ...]:
        """Codes of the parts that cannot be measured locally; empty when a measurement covers everything."""

    def read(self, body: bytes) -> Reply:
        """Read a whole reply; raises UnreadableReply."""

    def assembler(self, choices: int | None = None) -> Assembler:
        """A fresh assembler for one stream, of a request for so many choices if that is known."""

    def events(self, reply: Reply) -> Sequence[dict[str, Any]]:
        """Events, as plain JSON, of a stream that ends in this reply: what a restored one is shown as."""

    def outputs(self, reply: Reply, results: Sequence[AnsweredCall]) -> list[dict[str, Any]]:
        """The items that answer calls, in the given order."""

    def next_request(
        self, prepared: PreparedRequest, reply: Reply, outputs: Sequence[dict[str, Any]]
    ) -> PreparedRequest:
        """The request of the next round; without outputs it lets a paused reply go on."""
