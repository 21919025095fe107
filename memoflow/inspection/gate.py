"""The inspecting judge: every call that a model proposes, by what is known of its conversation.

A session is built of what the turn has: what the user and the developer wrote, what tools returned, and the
call itself. What the texts said is kept nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

from memoflow.canonical import Digester
from memoflow.declarations import Action, Inspection
from memoflow.errors import ConfigurationError
from memoflow.inspection.calls import API, continues, history, results_in_reply
from memoflow.inspection.detectors import KnownValues
from memoflow.inspection.engine import Decision, Effect, Inspector, Mode, OnAsk
from memoflow.inspection.events import (
    Event,
    Kind,
    ManifestSeen,
    ManifestTool,
    Source,
    ToolCall,
    ToolResult,
)
from memoflow.inspection.policy_file import named_policy
from memoflow.inspection.rulings import JUDGE_ID, code_of, notes_of
from memoflow.tools import Tool, Toolset
from memoflow.turn import NeedsApproval, Permit, ProposedCall, Refuse

__all__ = ["InspectionJudge", "inspector_of"]

_APIS: Final[dict[str, API]] = {"chat.completions": "chat", "messages": "messages", "responses": "responses"}
_VERDICTS: Final[dict[Effect, type[Permit | NeedsApproval | Refuse]]] = {
    "run": Permit,
    "ask": NeedsApproval,
    "refuse": Refuse,
}
# What a tool itself said; the other answers are memoflow's own words.
_SPOKEN: Final = frozenset({"DONE", "FAILED"})
_OTHER: Final = "(other)"
"""What has no declaration, since no tool can be called so."""


class InspectionJudge:
    """Judges calls by the policy of an inspector.

    In shadow mode everything is permitted and what would have been decided is kept. A call that could not be
    looked at is decided by what its tool does: it runs if that only reads or stays local.

    Args:
        inspector: the policy, the mode, and what ``ask`` becomes.
        hosts: whether the ledger may name the hosts that a call reaches. A name can be made of the data
            that it carries away, so by default they are only counted.
    """

    def __init__(self, inspector: Inspector, *, hosts: bool = False) -> None:
        self.id: Final = JUDGE_ID
        self._inspector = inspector
        self._hosts = hosts
        self.policy_digest = inspector.policy.digest

    def judge(self, call: ProposedCall) -> Permit | NeedsApproval | Refuse:
        """What the policy says; nothing is written."""
        began = perf_counter_ns()
        decision = self._decide(call)
        took_us = (perf_counter_ns() - began) // 1_000
        notes = notes_of(decision, hosts=self._hosts, latency_us=took_us)
        return _VERDICTS[decision.effect]((code_of(decision),), notes)

    def _decide(self, call: ProposedCall) -> Decision:
        session = self._inspector.session(declarations=_declared(call.toolset), least=_least(call.toolset))
        seq, name = 0, _label(call.tool)
        try:
            for seq, kind in enumerate(_conversation(call), 1):
                session.judge(Event(call.invocation_id, seq, kind))
            if continues(_APIS[call.api], call.request) is not None:
                session.without_history()
            return session.judge(Event(call.invocation_id, seq + 1, ToolCall(name, call.arguments)))
        except Exception as error:
            return session.uninspected(Event(call.invocation_id, seq + 1, ToolCall(name, None)), error)


def inspector_of(
    given: Inspector | Path | str, *, mode: Mode, on_ask: OnAsk, digester: Digester
) -> Inspector:
    """The inspector that is given, or one for a policy file, which knows this process's credentials.

    Raises:
        ConfigurationError: it is none, the policy is not valid, or the extra ``inspection`` is not installed.
    """
    if isinstance(given, Inspector):
        return given
    if not isinstance(given, (str, Path)):
        raise ConfigurationError(
            f"inspection must be an Inspector, a policy file or the word shipped, not {type(given).__name__}."
        )
    return Inspector(
        named_policy(given),
        mode=mode,
        on_ask=on_ask,
        known=KnownValues.from_environment(os.environ),
        digester=digester,
    )


def _conversation(call: ProposedCall) -> Iterator[Kind]:
    """What was said before a call, in order: first what servers say of the tools that the model may call."""
    api, labels = _APIS[call.api], _labels(call.toolset)
    for tool in call.toolset:
        if tool.is_foreign:
            # Each for itself: in one toolset, names are told apart by whoever put it together.
            name = _label(tool)
            yield ManifestSeen(name, (ManifestTool(name, tool.description, tool.schema),))
    for kind in history(api, call.request):
        yield replace(kind, tool=labels.get(kind.tool, _OTHER)) if isinstance(kind, ToolResult) else kind
    for exchange in call.history:
        yield from results_in_reply(api, exchange.reply)
        for result in exchange.results:
            if result.state in _SPOKEN:
                name = labels.get(result.name, _OTHER)
                yield ToolResult(name, result.output, Source("mcp", result.name))
    # What the provider ran for this reply may stand before the call or after it.
    yield from results_in_reply(api, call.reply)


def _label(tool: Tool[..., Any]) -> str:
    return ".".join(filter(None, (tool.namespace, tool.name)))


def _labels(toolset: Toolset) -> dict[str, str]:
    """The tools by the names of results, which have no namespace: where two have one name, none is meant."""
    names = [tool.name for tool in toolset]
    return {tool.name: _label(tool) for tool in toolset if names.count(tool.name) == 1}


def _declared(toolset: Toolset) -> dict[str, Inspection]:
    return {_label(tool): tool.inspect for tool in toolset if tool.inspect is not None}


def _least(toolset: Toolset) -> dict[str, Action]:
    """What tools that declare nothing do at least: their effect classes tell which only read."""
    return {_label(tool): "read_only" if tool.effect == "read_only" else "side_effecting" for tool in toolset}
