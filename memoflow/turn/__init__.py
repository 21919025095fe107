"""The sans-I/O protocol of one call, and the two drivers that carry it out."""

from __future__ import annotations

from memoflow.turn.async_driver import AsyncDriver
from memoflow.turn.bracket import Bracket
from memoflow.turn.call import APPROVAL_LAPSES_US, MAX_ROUNDS, Attempt, Call, Terms
from memoflow.turn.driver import Driver
from memoflow.turn.judging import (
    Bench,
    Exchange,
    Judge,
    Judgement,
    NeedsApproval,
    Permit,
    ProposedCall,
    Refuse,
    Ruling,
    plain_codes,
)
from memoflow.turn.ports import AsyncEvents, AsyncPort, Ledger, SyncEvents, SyncPort
from memoflow.turn.protocol import turn
from memoflow.turn.results import InvocationRecord, ToolResult, TurnResult
from memoflow.turn.signal import CancelSignal

__all__ = [
    "APPROVAL_LAPSES_US",
    "MAX_ROUNDS",
    "AsyncDriver",
    "AsyncEvents",
    "AsyncPort",
    "Attempt",
    "Bench",
    "Bracket",
    "Call",
    "CancelSignal",
    "Driver",
    "Exchange",
    "InvocationRecord",
    "Judge",
    "Judgement",
    "Ledger",
    "NeedsApproval",
    "Permit",
    "ProposedCall",
    "Refuse",
    "Ruling",
    "SyncEvents",
    "SyncPort",
    "Terms",
    "ToolResult",
    "TurnResult",
    "plain_codes",
    "turn",
]
