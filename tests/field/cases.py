"""The field cases: failures that people have reported of the tools they use, and where each can show itself.

A number is never used again, so there are gaps. ``apis`` is where the case has a face: the adapters of these
APIs are each held to it. None is a case below the adapters, where there is one implementation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["CASES", "Case"]

ALL: Final = frozenset({"responses", "chat", "messages"})


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        title: the failure.
        apis: the APIs on which it has to be tested.
        databases: whether it has to be tested on PostgreSQL beside SQLite.
    """

    title: str
    apis: frozenset[str] = frozenset()
    databases: bool = False


CASES: Final[dict[str, Case]] = {
    "01": Case("empty or blank arguments of a tool without parameters", ALL),
    "02": Case("a call from a truncated turn is executed", ALL),
    "03": Case("an SDK repairs truncated tool input into a runnable value", frozenset({"chat", "messages"})),
    "04": Case("malformed, non-object or double-encoded arguments", ALL),
    "06": Case("NaN, Infinity and overflowing floats", ALL),
    "08": Case("lone surrogates and NUL", ALL, databases=True),
    "09": Case("two calls in one turn share an id", ALL),
    "10": Case("identical calls, and one failing sibling", ALL),
    "11": Case("an unknown or blank tool name; a call under tool_choice none", ALL),
    "13": Case("invalid, over-long or non-ASCII tool names", ALL),
    "15": Case("freeform custom tools", ALL),
    "16": Case("provider-run and unknown items are treated as local calls", ALL),
    "18": Case("a reasoning item is dropped or reordered", ALL),
    "20": Case("oversized tool output or arguments", ALL, databases=True),
    "21": Case("a stream ends without its terminal event", ALL),
    "22": Case("incomplete and failed are terminal and carry usage", ALL),
    "24": Case("usage is missing, null or mistyped", ALL),
    "26": Case("a disconnect or a cancellation in a stream loses usage", ALL),
    "27": Case("a refusal is retried like a fault of the infrastructure", ALL),
    "28": Case("hidden retries of an SDK multiply the runtime's own", ALL),
    "29": Case("a client's timeout means a duplicate execution", ALL),
    "30": Case("429: a long Retry-After, and an exhausted quota", ALL),
    "31": Case("a race overspends", databases=True),
    "33": Case("a settlement fails, repeats or fails open", ALL),
    "34": Case("actual use exceeds the reservation", ALL),
    "35": Case("a retry runs a tool that has already succeeded", ALL),
    "36": Case("a crash between an effect and its record", ALL),
    "37": Case("an in-progress record is stuck, reclaimed too early or not exclusive"),
    "40": Case("the same key for a different request", ALL),
    "41": Case("unstable digests", ALL),
    "42": Case("replay after a change of code, prompt, tools or order", ALL),
    "43": Case("results and exceptions that do not survive recording", ALL),
    "45": Case("races at the start: the switch to WAL, and migrations", databases=True),
    "46": Case("a serialization failure of PostgreSQL is not retried", databases=True),
    "49": Case("synchronous calls of the ledger block the event loop", ALL),
    "50": Case("time zones and clocks"),
    "e3": Case("call ids of more than 64 characters", ALL, databases=True),
    "e7": Case("the window in which a background response can be recovered", ALL),
    "e8": Case("digests are not anonymous", ALL),
    "e12": Case("a tool runs although a guard has tripped", ALL),
}
