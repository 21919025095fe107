"""The sans-I/O protocol of one call, and the two drivers that carry it out."""

from __future__ import annotations

from memoflow.turn.async_driver import AsyncDriver
from memoflow.turn.bracket import Bracket
from memoflow.turn.call import MAX_ROUNDS, Attempt, Call, InvocationRecord, Terms, ToolResult, TurnResult
from memoflow.turn.driver import Driver
from memoflow.turn.ports import AsyncEvents, AsyncPort, Ledger, SyncEvents, SyncPort
from memoflow.turn.protocol import turn
from memoflow.turn.signal import CancelSignal

__all__ = [
    "MAX_ROUNDS",
    "AsyncDriver",
    "AsyncEvents",
    "AsyncPort",
    "Attempt",
    "Bracket",
    "Call",
    "CancelSignal",
    "Driver",
    "InvocationRecord",
    "Ledger",
    "SyncEvents",
    "SyncPort",
    "Terms",
    "ToolResult",
    "TurnResult",
    "turn",
]
