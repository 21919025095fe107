"""What a turn leaves its caller with: the requests it made, the tools it ran, and the last reply."""

from __future__ import annotations

from dataclasses import dataclass, field

from memoflow.ledger.holdings import SoftLimit
from memoflow.providers.base import Reply

__all__ = ["InvocationRecord", "ToolResult", "TurnResult"]


@dataclass(frozen=True, slots=True)
class InvocationRecord:
    """One provider request of a call, as the ledger has it. Cost is in nano-units."""

    id: str
    round: int
    restored: bool
    state: str
    finish_reason: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost: int | None
    input_basis: str
    alerts: tuple[SoftLimit, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """One tool call and what the model was told.

    Attributes:
        name: the tool's name; ``(unknown)`` for one that is not registered.
        state: ``DONE``, ``FAILED`` (the tool said that nothing happened), ``REFUSED`` (the call was a bad
            one) or ``DENIED`` (a judge or a person did not permit it).
        output: the text given to the model.
    """

    name: str
    call_id: str
    round: int
    ordinal: int
    state: str
    output: str = field(repr=False)
    restored: bool
    idempotency_key: str | None


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a call ended: the last reply, every tool result, every invocation."""

    reply: Reply = field(repr=False)
    tool_results: tuple[ToolResult, ...] = ()
    invocations: tuple[InvocationRecord, ...] = ()

    @property
    def restored(self) -> bool:
        """Whether everything came from the record and nothing was sent."""
        return all(invocation.restored for invocation in self.invocations)
