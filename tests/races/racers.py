"""What the processes of a race do. Each opens the ledger for itself and meets the others at a barrier."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from threading import Barrier
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from memoflow import (
    ActivityBusy,
    AlreadyDecided,
    ApprovalRequired,
    Budget,
    BudgetDenied,
    KeyRing,
    OutcomeUnknown,
    ReservationConflict,
    Runtime,
    ToolCall,
    tool,
)
from memoflow.ledger.dialect import database_now
from memoflow.ledger.migrate import upgrade
from memoflow.openai import OpenAIResponses
from memoflow.testing import SimulatedProvider, agent, call, calls, forever, text, usage
from tests.crash._scenarios import ASKING, EFFECTS

__all__ = [
    "NEED",
    "REQUEST",
    "Place",
    "approve",
    "ask_first",
    "claim",
    "come_back",
    "decide",
    "die_in_activity",
    "die_in_tool",
    "finish",
    "first_open",
    "loop",
    "note",
    "notes",
    "spend",
    "spend_on_own",
]

NEED = 1_000
LEASE_S = 60
REQUEST = {"model": "gpt-5-mini", "input": "Where is my order?"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a race is run.

    Attributes:
        url, key: the database, and the key of its outputs.
        log: a file that takes notes of what was really done.
        later: whether the leases of before have run out.
    """

    url: str
    key: str
    log: str
    later: bool = False

    def open(self) -> Runtime:
        """The ledger."""
        ahead = (LEASE_S + 1) * 1_000_000 if self.later else 0
        return Runtime.open(
            self.url,
            keys=KeyRing.parse(self.key),
            lease_seconds=LEASE_S,
            clock=lambda connection: database_now(connection) + ahead,
        )


def note(place: Place, what: str) -> None:
    """Write down that something was done, for all processes to see."""
    descriptor = os.open(place.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{what}\n".encode())
    os.close(descriptor)


def notes(place: Place) -> list[str]:
    """What was done."""
    if not os.path.exists(place.log):
        return []
    with open(place.log, encoding="utf-8") as lines:
        return lines.read().split("\n")[:-1]


def spend(barrier: Barrier, index: int, place: Place, accounts: list[str]) -> list[str]:
    """Make one call on each account, together with the others: ``admitted``, or what did not fit."""
    llm = OpenAIResponses(SimulatedProvider(default=text("Yes.", usage=usage(400, 600))).client())
    outcomes = []
    with place.open() as runtime:
        for account in accounts:

            @runtime.activity(version="v1", name="spend", budget=account)
            def activity() -> str:
                barrier.wait()
                try:
                    llm.run(REQUEST, budget=Budget(total_tokens=NEED))
                except BudgetDenied as denied:
                    return denied.dimension
                return "admitted"

            outcomes.append(activity.run(workflow_id=account, run_id=str(index)))
    return outcomes


def spend_on_own(barrier: Barrier, index: int, place: Place, parents: int) -> list[str]:
    """The same on an account of one's own under each of some parents."""
    return spend(barrier, index, place, [f"{parent}/{index}" for parent in range(parents)])


def claim(barrier: Barrier, index: int, place: Place) -> tuple[str, str]:
    """Run one activity together with the others: what became of it at first, and once one has finished it."""
    with place.open() as runtime:

        @runtime.activity(version="v1")
        def activity() -> str:
            note(place, f"run by {index}")
            # Nobody finishes before all others have tried.
            barrier.wait()
            return f"output of {index}"

        barrier.wait()
        try:
            first = activity.run(workflow_id="race", run_id="1")
        except ActivityBusy:
            barrier.wait()
            first = "busy"
        barrier.wait()
        return first, activity.run(workflow_id="race", run_id="1")


def loop(runtime: Runtime, place: Place, name: str, before: Callable[[], object] = lambda: None) -> str:
    """An activity whose model calls one tool and then answers; the tool takes a note of its key."""
    script = agent(
        calls(call(name, {"item": "1"}), usage=usage(10, 5)), final=text("Done.", usage=usage(10, 5))
    )
    llm = OpenAIResponses(SimulatedProvider([forever(script)]).client())

    def act(item: str, *, call: ToolCall) -> str:
        note(place, call.idempotency_key)
        before()
        return item

    effect: Any = EFFECTS[name]
    act_tool = tool(act, name=name, version="v1", effect=effect, approval="human" if name in ASKING else None)
    budget = Budget(total_tokens=2_000, tool_calls=1)

    @runtime.activity(version="v1", budget="acme", name="loop")
    def activity() -> str:
        options: Any = {"budget": budget, "continuation_budgets": [budget], "replay_key": "turn"}
        return llm.run_with_tools(REQUEST, [act_tool], **options).response.output_text

    return activity.run(workflow_id="race", run_id=name)


def die_in_tool(place: Place, name: str) -> None:
    """Be a worker that dies in a tool, after the effect and before its record."""
    with place.open() as runtime:
        loop(runtime, place, name, lambda: os.kill(os.getpid(), signal.SIGKILL))


def die_in_activity(place: Place) -> None:
    """Be a worker that dies in the activity that `claim` is about."""
    with place.open() as runtime:

        @runtime.activity(version="v1")
        def activity() -> str:
            os.kill(os.getpid(), signal.SIGKILL)
            return "never"

        activity.run(workflow_id="race", run_id="1")


def finish(barrier: Barrier, index: int, place: Place, name: str) -> str:
    """Take over an activity whose worker died in its tool, together with the others."""
    with place.open() as runtime:
        barrier.wait()
        try:
            return loop(runtime, place, name)
        except ActivityBusy:
            return "busy"
        except OutcomeUnknown as unknown:
            return f"unknown {unknown.kind}"


def decide(barrier: Barrier, index: int, place: Place, invocation: str, effect: str) -> tuple[str, str]:
    """Decide about an invocation and an effect, half of the processes in one way and half in the other."""
    known: dict[str, Any] = {"actor": f"operator {index}", "reason": "race", "evidence": b"proof"}
    with place.open() as runtime:
        reconcile = runtime.reconcile
        barrier.wait()
        money = _decided(reconcile.settle if index % 2 else reconcile.release, invocation, index, known)
        barrier.wait()
        deed = _decided(reconcile.happened if index % 2 else reconcile.did_not_happen, effect, index, known)
        return money, deed


def _decided(decision: Callable[..., Any], id: str, index: int, known: dict[str, Any]) -> str:
    try:
        verdict: str = decision(id, decision_id=str(uuid5(NAMESPACE_URL, f"{id}/{index}")), **known).verdict
    except ReservationConflict:
        return "conflict"
    return verdict


def first_open(barrier: Barrier, index: int, url: str, key: str | None) -> str:
    """Be among the first to open a ledger, and keep an output in it."""
    barrier.wait()
    if key is not None:
        upgrade(url)
    with Runtime.open(url, keys=None if key is None else KeyRing.parse(key)) as runtime:

        @runtime.activity(version="v1")
        def activity() -> str:
            return f"output of {index}"

        return activity.run(workflow_id="race", run_id=str(index))


def ask_first(place: Place) -> str:
    """Begin an activity whose tool has to be allowed; returns the request."""
    with place.open() as runtime:
        try:
            loop(runtime, place, "pay")
        except ApprovalRequired as error:
            return error.requests[0].id
    raise AssertionError("It did not wait.")


def come_back(barrier: Barrier, index: int, place: Place) -> str:
    """Go on with that activity, together with the others."""
    with place.open() as runtime:
        barrier.wait()
        try:
            return loop(runtime, place, "pay")
        except ActivityBusy:
            return "busy"
        except ApprovalRequired:
            return "waits"


def approve(barrier: Barrier, index: int, place: Place, request: str) -> str:
    """Decide about a request together with the others: half of the processes allow it, half refuse it."""
    with place.open() as runtime:
        barrier.wait()
        decide = runtime.approvals.approve if index % 2 else runtime.approvals.deny
        try:
            verdict: str = decide(request, approver="ann", reason="race").verdict
        except AlreadyDecided:
            return "decided"
        return verdict
