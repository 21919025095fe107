"""Budgeted, recorded, safely retried model calls, with one SQL database as the only infrastructure."""

from __future__ import annotations

from memoflow.activity import Activity, Retry
from memoflow.budget import Budget, Money
from memoflow.canonical import Digester
from memoflow.errors import *  # noqa: F403
from memoflow.errors import __all__ as _errors
from memoflow.keyring import KeyRing
from memoflow.pricing import Price, PriceBook
from memoflow.runtime import Runtime
from memoflow.tools import Tool, ToolCall, tool
from memoflow.turn import CancelSignal

__all__ = [
    "Activity",
    "Budget",
    "CancelSignal",
    "Digester",
    "KeyRing",
    "Money",
    "Price",
    "PriceBook",
    "Retry",
    "Runtime",
    "Tool",
    "ToolCall",
    "__version__",
    "tool",
    *_errors,
]

__version__ = "0.1.0"
