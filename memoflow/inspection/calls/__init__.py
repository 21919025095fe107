"""Calls and results in the traffic of the three APIs, streamed and whole."""

from __future__ import annotations

from memoflow.inspection.calls.history import calls_in_reply, continues, history, results_in_reply
from memoflow.inspection.calls.holder import Holder, Out, Refusal
from memoflow.inspection.calls.records import API, AssembledCall

__all__ = [
    "API",
    "AssembledCall",
    "Holder",
    "Out",
    "Refusal",
    "calls_in_reply",
    "continues",
    "history",
    "results_in_reply",
]
