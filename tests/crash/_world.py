"""The world outside of the ledger: it survives the program, and remembers what was really done to it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any
from uuid import NAMESPACE_URL, uuid5
from weakref import WeakValueDictionary

from memoflow import CancelSignal, Runtime, Tool, ToolCall, faults, tool
from memoflow.testing import (
    Held,
    ProviderRequest,
    SimulatedProvider,
    call,
    calls,
    hold,
    read_timeout,
    status,
    text,
    usage,
)
from tests.crash._scenarios import ASKING, EFFECTS, Scenario

__all__ = ["ASYNC_TOOLS", "SYNC_TOOLS", "TOKENS", "Broken", "World"]

TOKENS = 15
"""What every reply reports and bills."""
PATIENCE_S = 30.0


class Broken(Exception):
    """What a broken tool raises."""


class World:
    """A provider, and the receivers of what the tools do.

    Args:
        scenario: what is played.
        name: names the run; no other world of this process has it.
        dies_at: how many points the program passes before it dies; None if it lives.

    Attributes:
        done: how often each effect was really brought about, by idempotency key.
        entered: how often its tool was entered.
        keys: the idempotency keys each call came with.
    """

    def __init__(self, scenario: Scenario, name: str, dies_at: int | None = None) -> None:
        self.scenario, self.name = scenario, name
        self.provider = SimulatedProvider(self._reply)
        self.done: Counter[str] = Counter()
        self.entered: Counter[str] = Counter()
        self.keys: dict[str, set[str]] = defaultdict(set)
        self.denied: Counter[str] = Counter()
        self._said: dict[str, str] = {}
        self._dies_at = dies_at
        self._passed: list[str] = []
        self._changed = threading.Condition()
        self._signal: CancelSignal | None = None
        self._task: asyncio.Task[Any] | None = None
        self._late: Held | None = None
        self._first_life = True
        self.meeting = threading.Barrier(2)
        self.async_meeting = asyncio.Barrier(2)
        _worlds[name] = self

    # The provider

    def _reply(self, request: ProviderRequest) -> Any:
        first = self.scenario.first if len(self.provider.requests) == 1 else "answered"
        if first == "rejected":
            return status(429)
        if first == "timed_out":
            return read_timeout(text("Lost.", usage=usage(10, 5)))
        if first == "cancelled":
            # A stream is held after its head and its first event, which names the reply.
            self._late = hold(text("Late.", usage=usage(10, 5)), after=2 if request.streaming else None)
            self._late.gate.entered.subscribe(self._cancel)
            return self._late
        rounds, answered = self.scenario.rounds, request.answered_rounds
        if answered < len(rounds):
            wanted = [call(name, {"item": f"{answered}.{n}"}) for n, name in enumerate(rounds[answered])]
            return calls(*wanted, usage=usage(10, 5))
        outputs = "; ".join(item["output"] for item in request.outputs)
        return text(outputs or "Hello.", usage=usage(10, 5))

    @property
    def requests(self) -> int:
        """How many requests for a reply arrived."""
        return self.provider.wire_requests["POST /v1/responses"]

    # Cancelling

    def new_signal(self) -> CancelSignal | None:
        """The signal of the next call, for scenarios that use one."""
        scenario = self.scenario
        if scenario.stopped == "never" and (scenario.first != "cancelled" or self._task is not None):
            return None
        self._signal = CancelSignal()
        if scenario.stopped == "at_once" and self._first_life:
            self._signal.cancel()
            self._first_life = False
        return self._signal

    def cancel_task(self, task: asyncio.Task[Any]) -> None:
        """Cancel by way of this task rather than by a signal."""
        self._task = task

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif self._signal is not None:
            self._signal.cancel()

    def failed(self) -> None:
        """An attempt ended without an output; the next is not cancelled."""
        self._first_life = False

    # Points

    def note(self, point: str) -> None:
        """Take notice that the program passed a point. To be installed as a hook."""
        with self._changed:
            self._passed.append(point)
            first_start = point == "after:Commit" and self._passed.count(point) == 1
            self._changed.notify_all()
        if first_start and self.scenario.stopped == "when_started" and self._signal is not None:
            self._signal.cancel()

    def wait_until_kept(self) -> None:
        """Wait for the commit that keeps a stream's response id, which nobody waits for, or for death."""
        with self._changed:
            assert self._changed.wait_for(self._kept_or_dead, PATIENCE_S)

    def _kept_or_dead(self) -> bool:
        if self._dies_at is not None and len(self._passed) > self._dies_at:
            return True
        *_, last = (n for n, name in enumerate(self._passed) if name == "before:Dispatch")
        return "commit:after" in self._passed[last:]

    def next_life(self) -> None:
        """The program died; what it left running ends, and nobody watches the next one."""
        self._first_life = False
        self._dies_at = 0
        self._passed.append("dead")
        self.close()

    def close(self) -> None:
        """Let go of whoever still waits here."""
        if self._late is not None:
            self._late.release()

    # Tools

    def act(self, name: str, item: str, call: ToolCall) -> str:
        """Bring an effect about."""
        key = call.idempotency_key
        self._said[key] = f"{name} {item}"
        self.keys[f"{name} {item}"].add(key)
        self.entered[key] += 1
        if self.scenario.broken and self.entered[key] == 1:
            raise Broken
        pass_point = (lambda point: None) if self.scenario.together else faults.point
        pass_point(f"tool:entered:{name}")
        self.done[key] += 1
        pass_point(f"tool:done:{name}")
        return self._said[key]

    @property
    def meets(self) -> bool:
        """Whether two tools wait for each other before they return."""
        return self.scenario.together and self._first_life

    # The operator

    def allow(self, runtime: Runtime, id: str) -> None:
        """Let a call run that waits."""
        runtime.approvals.approve(id, approver="operator", reason="it is as it should be")

    def decide(self, runtime: Runtime, effect_id: str) -> None:
        """Find out whether an effect came about, and say so."""
        effect = runtime.reconcile.show(effect_id).effect
        assert effect is not None
        assert effect.idempotency_key is not None
        key = effect.idempotency_key
        decide: Callable[..., Any] = runtime.reconcile.did_not_happen
        known: dict[str, Any] = {"actor": "operator", "reason": "the receiver was asked"}
        if self.done[key]:
            decide, known["result"] = runtime.reconcile.happened, self._said[key]
        else:
            self.denied[key] += 1
            known["evidence"] = "the receiver has nothing"
        decide(effect_id, decision_id=str(uuid5(NAMESPACE_URL, effect_id)), **known)


_worlds: WeakValueDictionary[str, World] = WeakValueDictionary()


def _tool(name: str) -> Tool[..., Any]:
    def act(item: str, *, call: ToolCall) -> str:
        world = _worlds[call.identity.run_id]
        said = world.act(name, item, call)
        if world.meets:
            world.meeting.wait(PATIENCE_S)
        return said

    return _made(act, name)


def _async_tool(name: str) -> Tool[..., Any]:
    async def act(item: str, *, call: ToolCall) -> str:
        world = _worlds[call.identity.run_id]
        said = world.act(name, item, call)
        if world.meets:
            await world.async_meeting.wait()
        return said

    return _made(act, name)


def _made(act: Callable[..., Any], name: str) -> Tool[..., Any]:
    approval = "human" if name in ASKING else None
    return tool(act, name=name, version="v1", effect=EFFECTS[name], approval=approval)  # type: ignore[arg-type]


SYNC_TOOLS = [_tool(name) for name in EFFECTS]
ASYNC_TOOLS = [_async_tool(name) for name in EFFECTS]
