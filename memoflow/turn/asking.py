"""What the calls of each reply come to: which of them are answered, and which replies are of no use."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from memoflow.errors import ClientCallRefused, InvalidProviderReply, ToolCallBudgetExceeded, ToolRoundLimit
from memoflow.ledger.effects import NewEffect
from memoflow.ledger.replay import RoundRecord
from memoflow.providers.base import PreparedRequest, Reply
from memoflow.turn.call import Call
from memoflow.turn.calls import PlannedCall, hosted_effects, plan_calls
from memoflow.turn.gate import Gate
from memoflow.turn.steps import Step

__all__ = ["Asking"]


class Asking:
    """What the replies of one turn ask for, by the number of their round."""

    def __init__(self, call: Call, gate: Gate) -> None:
        self._call = call
        self._gate = gate
        self._planned: dict[int, list[PlannedCall]] = {}
        self._reserved: dict[int, int] = {}

    def calls(self, prepared: PreparedRequest, reply: Reply, number: int) -> list[PlannedCall]:
        """The calls to answer: none without executors, none from a turn that was cut short."""
        if self._call.toolset is None or reply.status != "completed":
            return []
        if number not in self._planned:
            self._planned[number] = plan_calls(self._call, prepared, reply, number)
        return self._planned[number]

    def goes_on(self, reply: Reply) -> bool:
        """Whether a reply is handed back though nothing in it asks for that: the model is not done."""
        return self._call.toolset is not None and self._call.continues and reply.paused

    def is_last(self, number: int) -> bool:
        """Whether no round may follow that could be given the results of this one."""
        return self._call.continues and number + 1 == len(self._call.budgets)

    def judge(
        self, prepared: PreparedRequest, reply: Reply | None, id: str, number: int
    ) -> Generator[Step, Any, BaseException | None]:
        """Have the calls of a reply judged that are about to be recorded.

        Returns:
            What interrupted the judges, for the reply to be settled first: then nothing of it has begun.
        """
        if reply is None or not (planned := self._recorded(prepared, reply, number)):
            return None
        try:
            judged = yield from self._gate.judged(reply, id, [(one, None) for one in planned])
        except GeneratorExit:
            raise
        except BaseException as interrupted:
            return interrupted
        self._planned[number] = judged
        return None

    def effects(
        self, prepared: PreparedRequest, reply: Reply | None, id: str, number: int, *, begin: bool = True
    ) -> tuple[NewEffect, ...]:
        """What is recorded about the calls in a reply, in the transaction that settles it.

        Without ``begin`` those that might run are left to the next attempt.
        """
        if reply is None:
            return ()
        planned = [one for one in self._recorded(prepared, reply, number) if begin or one.refusal is not None]
        # What the provider ran itself has happened, also in a reply that then failed.
        return (*hosted_effects(reply, id), *(one.effect(self._call, id) for one in planned))

    def charged(self, prepared: PreparedRequest, reply: Reply | None, number: int) -> int:
        """The tool calls that a reply is charged: those that run, or that may once they are allowed."""
        if reply is None:
            return 0
        waiting = ("STARTED", "AWAITING_APPROVAL")
        return sum(one.state in waiting for one in self._recorded(prepared, reply, number))

    def _recorded(self, prepared: PreparedRequest, reply: Reply, number: int) -> list[PlannedCall]:
        """The calls that are recorded with their reply: all of them, or none where nothing of it may run."""
        planned = self.calls(prepared, reply, number)
        unusable = reply.problem is not None or self._waits_for_client(reply)
        if self.is_last(number) or unusable or len(planned) > self._allowed(number):
            return []
        return planned

    def check(self, prepared: PreparedRequest, reply: Reply, id: str, number: int) -> None:
        """Raise if the turn cannot go on with a reply.

        Raises:
            InvalidProviderReply, ClientCallRefused, ToolCallBudgetExceeded: as their documentation says.
        """
        if reply.problem is not None:
            raise InvalidProviderReply(invocation_id=id, problem=reply.problem)
        if self._waits_for_client(reply):
            raise ClientCallRefused(invocation_id=id, items=reply.needs_client)
        asked = len(self.calls(prepared, reply, number))
        # The calls of the last admitted round are not run anyway, however many they are.
        if asked > self._allowed(number) and not self.is_last(number):
            raise ToolCallBudgetExceeded(asked=asked, reserved=self._allowed(number), round=number)

    def check_recorded(
        self, prepared: PreparedRequest, reply: Reply, record: RoundRecord, number: int
    ) -> None:
        """The same for a recorded reply, which keeps what it reserved.

        Raises:
            ToolRoundLimit: it has calls that it was not charged for; nothing admitted them, so none is run.
        """
        self._reserved[number] = record.tool_calls
        self.check(prepared, reply, record.id, number)
        planned = self.calls(prepared, reply, number)
        runnable = {one.request.ordinal for one in planned if one.refusal is None}
        begun = {effect.ordinal for effect in record.effects if effect.state != "REFUSED"}
        if len(runnable | begun) > max(len(begun), record.charged):
            raise ToolRoundLimit(rounds=number + 1)

    def _waits_for_client(self, reply: Reply) -> bool:
        """Whether the loop cannot go on because an item needs an answer that only the caller could give."""
        return self._call.toolset is not None and reply.status == "completed" and bool(reply.needs_client)

    def _allowed(self, number: int) -> int:
        """The tool calls a round reserved."""
        if number in self._reserved:
            return self._reserved[number]
        budget = self._call.budgets[number]
        return 0 if budget is None else budget.tool_calls or 0
