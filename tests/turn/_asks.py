"""What a scenario asks of an adapter: the same record is played by the blocking and by the async one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from memoflow import Budget, Tool

__all__ = ["BUDGET", "LEAVE", "LOOP", "REQUEST", "Ask", "ends", "leave_at_the_end", "loop", "run", "stream"]

REQUEST = {"model": "gpt-test", "input": "Hello"}
BUDGET = Budget(total_tokens=20_000)
LOOP = Budget(total_tokens=20_000, tool_calls=8)
LEAVE = object()
"""What a watcher of events returns to leave the stream."""


def ends(event: Any) -> bool:
    """Whether an event is the one with which a streamed reply is whole, in whichever API."""
    kind = getattr(event, "type", None)
    # The last chunk of a completion has the usage, and no choice.
    return not event.choices if kind is None else kind in _ENDS


def leave_at_the_end(event: Any) -> object:
    """A watcher that leaves when the reply is whole."""
    return LEAVE if ends(event) else None


_ENDS = ("response.completed", "response.failed", "response.incomplete", "message_stop")


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One call. ``watch`` sees every event of a stream as it comes."""

    how: Literal["run", "run_with_tools", "stream"]
    request: dict[str, Any]
    tools: Sequence[Tool[..., Any]] | None = None
    continuation: Sequence[Budget] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    watch: Callable[[Any], object] = lambda event: None


def run(text: str = "Hello", *, request: dict[str, Any] | None = None, **options: Any) -> Ask:
    """A single request under the replay key ``k``, unless the options say otherwise."""
    given = {"budget": BUDGET, "replay_key": "k", **options}
    return Ask(how="run", request={**REQUEST, "input": text, **(request or {})}, options=given)


def loop(
    *tools: Tool[..., Any],
    rounds: int = 3,
    request: dict[str, Any] | None = None,
    continuation: Sequence[Budget] | None = None,
    **options: Any,
) -> Ask:
    """A tool loop under the replay key ``k`` with ``rounds`` rounds in all; 0 rounds does not continue."""
    further = [LOOP] * (rounds - 1) if continuation is None and rounds else continuation
    return Ask(
        how="run_with_tools",
        request={**REQUEST, **(request or {})},
        tools=tools,
        continuation=further,
        options={"budget": LOOP, "replay_key": "k", **options},
    )


def stream(
    *tools: Tool[..., Any],
    rounds: int = 3,
    request: dict[str, Any] | None = None,
    watch: Callable[[Any], object] = lambda event: None,
    **options: Any,
) -> Ask:
    """The same streamed; without tools a single request."""
    return Ask(
        how="stream",
        request={**REQUEST, **(request or {})},
        tools=tools or None,
        continuation=[LOOP] * (rounds - 1) if tools else None,
        options={"budget": LOOP if tools else BUDGET, "replay_key": "k", **options},
        watch=watch,
    )
