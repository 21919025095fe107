"""One call as the protocol sees it: who calls, what for, and on which terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from memoflow.budget import Budget
from memoflow.canonical import Digester
from memoflow.identity import ActivityIdentity
from memoflow.ledger.activities import Fence
from memoflow.ledger.invocations import Binding
from memoflow.ledger.outputs import Vault
from memoflow.pricing import PriceBook
from memoflow.providers.base import Codec
from memoflow.tools import MAX_RESULT_BYTES, Toolset
from memoflow.turn.bracket import Bracket
from memoflow.turn.judging import Bench

__all__ = ["APPROVAL_LAPSES_US", "MAX_ROUNDS", "Attempt", "Call", "Terms"]

MAX_ROUNDS: Final = 32
"""Most provider requests of one tool loop."""

APPROVAL_LAPSES_US: Final = 7 * 86_400_000_000
"""How long a person may be waited for, unless a runtime says otherwise (microseconds)."""


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """The attempt on whose behalf calls are made, and what it records with.

    ``running`` has the calls that are being made now, and a mark once one of them ended in an exception;
    ``keys`` has their replay keys, each with what it is bound to; ``undecided`` the effects it left open
    that are not run again before somebody has decided about them; ``claimed`` the replay keys that were used.
    ``requester`` is on whose behalf approvals are asked for, which lapse after ``approval_us`` microseconds.
    """

    identity: ActivityIdentity
    fence: Fence
    digester: Digester
    vault: Vault
    prices: PriceBook
    requester: str = "agent"
    bench: Bench = field(default_factory=Bench)
    approval_us: int = APPROVAL_LAPSES_US
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
        cause: the record that the call descends from; None for the activity itself.
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
    cause: str | None = None
    bracket: Bracket | None = None
