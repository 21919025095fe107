"""One call as the protocol sees it: who calls, what for, and on which terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from memoflow.budget import Budget
from memoflow.canonical import Digester
from memoflow.identity import ActivityIdentity
from memoflow.ledger.activities import Fence
from memoflow.ledger.holdings import SoftLimit
from memoflow.ledger.invocations import Binding
from memoflow.ledger.outputs import Vault
from memoflow.pricing import PriceBook
from memoflow.providers.base import Codec, Reply
from memoflow.tools import MAX_RESULT_BYTES, Toolset
from memoflow.turn.bracket import Bracket

__all__ = ["MAX_ROUNDS", "Attempt", "Call", "InvocationRecord", "Terms", "ToolResult", "TurnResult"]

MAX_ROUNDS: Final = 32
"""Most provider requests of one tool loop."""


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """The attempt on whose behalf calls are made, and what it records with.

    ``running`` has the calls that are being made now, and a mark once one of them ended in an exception;
    ``keys`` has their replay keys, each with what it is bound to; ``undecided`` the effects it left open
    that are not run again before somebody has decided about them; ``claimed`` the replay keys that were used.
    """

    identity: ActivityIdentity
    fence: Fence
    digester: Digester
    vault: Vault
    prices: PriceBook
    running: set[object] = field(default_factory=set, repr=False)
    keys: dict[str, Binding] = field(default_factory=dict, repr=False)
    undecided: set[str] = field(default_factory=set, repr=False)
    claimed: set[str] = field(default_factory=set, repr=False)

    def claim_key(self, replay_key: str) -> bool:
        """Mark a key as used; whether it is new: no attempt and no call of this one went before."""
        new = self.fence.attempt == 1 and replay_key not in self.claimed
        self.claimed.add(replay_key)
        return new


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The options of a call. Times are seconds, sizes bytes.

    ``if_unmeasurable``: ``input_tokens`` and ``count_input`` are for an input that cannot be measured, alone.
    """

    streaming: bool = False
    input_tokens: int | None = None
    count_input: bool = False
    if_unmeasurable: bool = False
    strict_input: bool = False
    output_cap: Literal["reserve", "caller"] = "reserve"
    timeout: float | None = None
    idle_timeout: float | None = None
    on_unknown: Literal["retry", "block"] = "retry"
    strict_outcomes: bool = False
    metadata: str | None = None
    max_result_bytes: int = MAX_RESULT_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call: a single provider request, or a tool loop of several.

    Attributes:
        bracket: what begins and ends together with a call that is a single request.
        budgets: the reservation of each admitted round; None derives it from the request.
        toolset: the executors, or None if the caller answers tool calls itself.
        continues: whether results go back to the model; otherwise the first reply's calls are the last.
    """

    attempt: Attempt
    codec: Codec
    request: Mapping[str, Any] = field(repr=False)
    accounts: tuple[str, ...]
    budgets: tuple[Budget | None, ...]
    toolset: Toolset | None = None
    continues: bool = False
    replay_key: str | None = None
    terms: Terms = Terms()
    bracket: Bracket | None = None


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
        state: ``DONE``, ``FAILED`` (the tool said that nothing happened) or ``REFUSED`` (it was not run).
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
