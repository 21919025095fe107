"""Asking the judges about the calls of a reply, and keeping the conversation that they are asked about."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from memoflow.errors import InvalidRequest
from memoflow.providers.base import PreparedRequest, Reply
from memoflow.turn.call import Call
from memoflow.turn.calls import PlannedCall
from memoflow.turn.judging import Exchange, Judgement, ProposedCall
from memoflow.turn.results import ToolResult
from memoflow.turn.steps import Compute, Step

__all__ = ["Gate"]


class Gate:
    """Every call of a turn passes here before it may begin.

    Raises:
        InvalidRequest: a tool needs approvals, and the call has no replay key to be resumed under.
    """

    def __init__(self, call: Call, prepared: PreparedRequest) -> None:
        self._call = call
        self._prepared = prepared
        self._history: tuple[Exchange, ...] = ()
        asking = [tool.name for tool in call.toolset or () if tool.approval is not None]
        if call.replay_key is None and (asking or (call.toolset and call.attempt.bench)):
            what = f"Tool {asking[0]!r} needs a person's approval" if asking else "This runtime has judges"
            raise InvalidRequest(
                f"{what}, and a call without replay_key=… cannot go on after it has waited. Give it one; "
                "nothing was reserved or sent."
            )

    def answered(self, reply: Reply, results: Iterable[ToolResult]) -> None:
        """Remember a round."""
        self._history = (*self._history, Exchange(reply.body, tuple(results)))

    def judged(
        self, reply: Reply, invocation_id: str, calls: Sequence[tuple[PlannedCall, str | None]]
    ) -> Generator[Step, Any, list[PlannedCall]]:
        """The calls with what the judges say of each, in order.

        Args:
            reply: the reply that asks for them.
            invocation_id: the request that it answers.
            calls: each with what is kept of its judgement (`Judgement.text`).
        """
        kept = [(planned, Judgement.parse(text)) for planned, text in calls]
        # Most calls are judged by nothing but a declaration, and that takes no time.
        if any(self._call.attempt.bench.missing(before) for one, before in kept if one.refusal is None):
            ruled: list[PlannedCall] = yield Compute(partial(self._rule, reply, invocation_id, kept))
            return ruled
        return self._rule(reply, invocation_id, kept)

    def _rule(
        self, reply: Reply, invocation_id: str, kept: Sequence[tuple[PlannedCall, Judgement]]
    ) -> list[PlannedCall]:
        bench = self._call.attempt.bench
        return [
            planned
            if (proposed := self._proposed(reply, invocation_id, planned)) is None
            else replace(planned, judgement=bench.judge(proposed, before))
            for planned, before in kept
        ]

    def _proposed(self, reply: Reply, invocation_id: str, planned: PlannedCall) -> ProposedCall | None:
        """The call as judges see it; None for one that does not run anyway."""
        tool, bound, toolset = planned.tool, planned.arguments, self._call.toolset
        if tool is None or toolset is None or bound is None or planned.key is None or planned.digest is None:
            return None
        attempt, codec, request = self._call.attempt, self._call.codec, planned.request
        return ProposedCall(
            identity=attempt.identity,
            activity=attempt.fence.activity_id,
            invocation_id=invocation_id,
            requester=attempt.requester,
            tool=tool,
            arguments_json=bound.digest_source,
            arguments_digest=planned.digest,
            idempotency_key=planned.key,
            call_id=request.call_id,
            kind=request.kind,
            round=planned.round,
            ordinal=request.ordinal,
            provider=codec.provider,
            api=codec.api,
            model=self._prepared.model,
            toolset=toolset,
            request=self._prepared.body,
            reply=reply.body,
            history=self._history,
        )
