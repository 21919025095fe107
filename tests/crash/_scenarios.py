"""What is interrupted at every point: calls of every shape, and the ways they may fail by themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["ASKING", "AT_MOST_ONCE", "EFFECTS", "SCENARIOS", "Scenario"]

EFFECTS = {"look": "read_only", "put": "idempotent", "send": "at_most_once", "pay": "at_most_once"}
"""The tools there are, by what may be done when it is not known whether they ran."""

AT_MOST_ONCE = ("send", "pay")
ASKING = ("pay",)
"""The tools whose calls a person has to allow."""

First = Literal["answered", "rejected", "timed_out", "cancelled"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One activity, carried on by further attempts until it has an output.

    Attributes:
        rounds: the tools that the model asks for, reply by reply, before its last one.
        streamed: whether replies are streamed.
        first: what becomes of the first request.
        stopped: the cancel signal comes before the reservation, or between it and the request.
        together: the tools of a reply run side by side, and are all done when the first is recorded.
        broken: every tool raises the first time it is entered, before it does anything.
        counted: whether the provider is asked to count the input.
        asks: whether there is any request at all.
    """

    name: str
    rounds: tuple[tuple[str, ...], ...] = ()
    streamed: bool = False
    first: First = "answered"
    stopped: Literal["never", "at_once", "when_started"] = "never"
    together: bool = False
    broken: bool = False
    counted: bool = False
    asks: bool = True

    @property
    def calls(self) -> list[tuple[int, int, str]]:
        """Round, ordinal and name of every tool call."""
        return [(r, o, name) for r, names in enumerate(self.rounds) for o, name in enumerate(names)]


SCENARIOS = [
    Scenario("completion", asks=False),
    Scenario("plain_call"),
    Scenario("tool_loop", rounds=(("put",), ("send",))),
    Scenario("tools_in_turn", rounds=(("look", "put", "send"),), counted=True),
    Scenario("two_read_only", rounds=(("look", "look"),), together=True),
    Scenario("two_idempotent", rounds=(("put", "put"),), together=True),
    Scenario("two_at_most_once", rounds=(("send", "send"),), together=True),
    Scenario("broken_idempotent", rounds=(("put",),), broken=True),
    Scenario("broken_at_most_once", rounds=(("send",),), broken=True),
    Scenario("one_has_to_be_allowed", rounds=(("look", "pay"), ("put",))),
    Scenario("stream_with_one_that_has_to_be_allowed", rounds=(("pay",),), streamed=True),
    Scenario("stream", streamed=True),
    Scenario("stream_with_a_broken_tool", rounds=(("put",),), streamed=True, broken=True),
    Scenario("rejected", first="rejected"),
    Scenario("read_timeout", first="timed_out"),
    Scenario("cancelled_before_the_reservation", stopped="at_once"),
    Scenario("cancelled_before_the_request", stopped="when_started"),
    Scenario("cancelled_after_the_request", first="cancelled"),
    Scenario("stream_cancelled", first="cancelled", streamed=True),
]
