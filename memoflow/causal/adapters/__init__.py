"""From what providers send to causal records: calls, results, parallel calls, errors and hosted tools.

The id of a call is transport: it says which result belongs to which call. The parent is lineage: it says what
caused the call. They are never merged, and a model says neither.
"""

from __future__ import annotations

from memoflow.causal.adapters import anthropic_messages, openai_chat, openai_responses
from memoflow.causal.adapters.calls import Terms, call_envelope, call_record
from memoflow.causal.adapters.correlation import Pair, Problem, correlate
from memoflow.causal.adapters.seen import Seen, SeenCall, SeenResult
from memoflow.causal.adapters.tracer import Tracer

__all__ = [
    "Pair",
    "Problem",
    "Seen",
    "SeenCall",
    "SeenResult",
    "Terms",
    "Tracer",
    "anthropic_messages",
    "call_envelope",
    "call_record",
    "correlate",
    "openai_chat",
    "openai_responses",
]
