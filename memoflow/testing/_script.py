"""Entries of a script: what the simulated provider does with one generation request.

Entries are plain frozen records, so that a script can also be sent to a provider in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, PlainSerializer, PlainValidator

from memoflow.testing._items import Item
from memoflow.testing._signals import Gate

if TYPE_CHECKING:
    from memoflow.testing._request import ProviderRequest

__all__ = [
    "BEFORE_ARRIVAL",
    "Agent",
    "Cut",
    "CutKind",
    "Delayed",
    "Entry",
    "Forever",
    "Held",
    "MangleKind",
    "Mangled",
    "ModelReply",
    "RawReply",
    "ScriptEntry",
    "StatusFault",
    "Tokens",
    "UsageVariant",
]

CutKind = Literal[
    "connect_refused",
    "dns_failure",
    "connect_timeout",
    "pool_timeout",
    "write_error",
    "read_timeout",
    "reset_before_reply",
    "closed_before_reply",
    "reset_mid_body",
    "truncated_body",
]
MangleKind = Literal[
    "stream_ends_early",
    "error_event",
    "corrupt_chunk",
    "no_events",
    "duplicate_terminal",
    "snapshot_differs",
    "huge",
]
UsageVariant = Literal[
    "absent",
    "null",
    "empty",
    "null_counts",
    "strings",
    "floats",
    "booleans",
    "negative",
    "huge",
    "null_details",
    "wrong_total",
]
BEFORE_ARRIVAL = frozenset(
    {"connect_refused", "dns_failure", "connect_timeout", "pool_timeout", "write_error"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Token counts of a reply; those that are None are counted by the provider."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """What the model says.

    Attributes:
        items: its output; None is an echo of the last user text.
        status: how the generation ended.
        reason: why it is incomplete.
        stop: the stop reason it reports, whatever the rest of it would be.
        error: the error object of a failed reply.
        usage: tokens it took; None bills nothing and reports null.
        usage_variant: how the reported usage is spoilt, while the true one is billed.
        service_tier: the tier the reply reports; by default what was asked for.
        model: the model the reply reports; by default what was asked for.
        honour_cap: whether the output cap of the request cuts it.
        fields: put into the response object as they are.
        more: what the second and further choices say, where a request asks for several.
    """

    entry: Literal["reply"] = "reply"
    items: tuple[Item, ...] | None = None
    status: Literal["completed", "incomplete", "failed"] = "completed"
    reason: str | None = None
    stop: str | None = None
    error: dict[str, Any] | None = None
    usage: Tokens | None = Tokens()
    usage_variant: UsageVariant | None = None
    service_tier: str | None = None
    model: str | None = None
    honour_cap: bool = True
    fields: dict[str, Any] = field(default_factory=dict)
    more: tuple[ModelReply, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFault:
    """A refusal with an HTTP status; ``performed`` bills ``then`` all the same."""

    entry: Literal["status"] = "status"
    status: int
    code: str | None = None
    type: str | None = None
    message: str | None = None
    param: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    performed: bool = False
    then: ModelReply = ModelReply()


@dataclass(frozen=True, slots=True, kw_only=True)
class RawReply:
    """Bytes instead of a reply; ``performed`` bills ``then`` all the same."""

    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    entry: Literal["raw"] = "raw"
    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    performed: bool = True
    then: ModelReply = ModelReply()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A failure of the connection. ``after`` counts the events a stream delivers before it."""

    entry: Literal["cut"] = "cut"
    kind: CutKind
    then: ModelReply = ModelReply()
    performed: bool = True
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mangled:
    """A reply that arrives with status 200 and is not what the API promises."""

    entry: Literal["mangled"] = "mangled"
    kind: MangleKind
    then: ModelReply = ModelReply()
    performed: bool = True
    after: int | None = None
    code: str = "server_error"
    message: str = "The simulated provider was told to fail here."
    nested: bool = False
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delayed:
    """An entry that starts, or goes on after ``after`` events, ``seconds`` later."""

    entry: Literal["delayed"] = "delayed"
    seconds: float
    then: Entry
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An entry that waits at its gate, before the reply or after ``after`` events of it."""

    entry: Literal["held"] = "held"
    gate: Annotated[Gate, PlainValidator(Gate), PlainSerializer(lambda gate: gate.name)]
    then: Entry
    after: int | None = None

    def release(self) -> None:
        """Let the reply go on."""
        self.gate.released.set()

    def wait_entered(self, timeout: float = 10.0) -> bool:
        """Block until the request is held here; False after ``timeout`` seconds."""
        return self.gate.entered.wait(timeout)

    async def wait_entered_async(self, timeout: float = 10.0) -> bool:
        """`wait_entered` for asyncio."""
        return await self.gate.entered.wait_async(timeout)

    def wait_abandoned(self, timeout: float = 10.0) -> bool:
        """Block until the client has gone away while held; False after ``timeout`` seconds."""
        return self.gate.abandoned.wait(timeout)

    @property
    def client_gone(self) -> bool:
        """Whether the client went away while the reply was held."""
        return self.gate.abandoned.is_set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A model that works in rounds: the entry is chosen by how many rounds the request has answered.

    It stays in the script, so any number of conversations may run at once.
    """

    entry: Literal["agent"] = "agent"
    rounds: tuple[Entry, ...]
    final: Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Forever:
    """An entry that stays in the script."""

    entry: Literal["forever"] = "forever"
    then: Entry


Entry = Annotated[
    ModelReply | StatusFault | RawReply | Cut | Mangled | Delayed | Held | Agent | Forever,
    Discriminator("entry"),
]
ScriptEntry = (
    Entry | str | Mapping[str, Any] | Callable[["ProviderRequest"], "Entry | str | Mapping[str, Any]"]
)
