"""What is kept of one session between its events, and what becomes known of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from memoflow.declarations import Action, Inspection
from memoflow.errors import InvalidRequest
from memoflow.inspection.actions import classify, sensitive_path
from memoflow.inspection.arguments import arguments_of, commands_of
from memoflow.inspection.detectors import Detected, KnownValues, detect
from memoflow.inspection.egress import egress_of
from memoflow.inspection.events import (
    Event,
    ManifestSeen,
    ManifestTool,
    Prompt,
    Source,
    SubagentReport,
    SubagentSpawn,
    ToolCall,
    ToolResult,
)
from memoflow.inspection.facets import Piece, ambiguity, command_line, pieces, values
from memoflow.inspection.findings import Finding, risk_score
from memoflow.inspection.hosts import Host, allowed
from memoflow.inspection.matching import encoded
from memoflow.inspection.policy import Signals
from memoflow.inspection.provenance import origins
from memoflow.inspection.remembering import Remembered
from memoflow.inspection.taint import Mark, Reader, Taint

__all__ = ["Known", "Observed", "SessionState"]

_VERSION: Final = 1
_NOTHING: Final = Signals()
# What these arguments are for.
_PERSONAL: Final = frozenset({"account", "recipient"})


@dataclass(frozen=True, slots=True)
class Known:
    """What a session is looked at with."""

    reader: Reader
    values: KnownValues
    declarations: Mapping[str, Inspection]
    least: Mapping[str, Action]
    allowlist: tuple[str, ...]
    detected: Remembered[Detected]

    def action_of(self, tool: str, commands: str = "", line: str = "") -> Action:
        """What a call of a tool does."""
        return classify(tool, self.declarations.get(tool), commands, line, self.least.get(tool))


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known of one event.

    Attributes:
        signals: what policies look at.
        mark: the earliest untrusted text that a call was made of.
        hosts: where a call reaches.
        cut: whether a text was too long to be looked at whole.
    """

    signals: Signals
    mark: Mark | None = None
    hosts: tuple[Host, ...] = ()
    cut: bool = False


class SessionState:
    """The taint, the grants and the manifests of one session. Not for several threads at once.

    Attributes:
        history_known: whether all that happened in it was told here.
        standing: names of the rules that what was read in it has broken.
    """

    __slots__ = ("_grants", "_known", "_manifests", "_taint", "history_known", "standing")

    def __init__(self, known: Known) -> None:
        self._known = known
        self._taint = Taint(known.reader)
        self._grants: dict[str, frozenset[str]] = {}
        self._manifests: dict[str, tuple[str, frozenset[str]]] = {}
        self.history_known = True
        self.standing: frozenset[str] = frozenset()

    @property
    def full(self) -> bool:
        """Whether something untrusted could not be kept for want of room."""
        return self._taint.full

    def grant(self, agent: str, tools: frozenset[str]) -> None:
        """Say which tools an agent holds; what it gives to subagents must be among them."""
        self._grants[agent] = tools

    def observe(self, event: Event) -> Observed:
        """Find out what there is to know of an event, and keep what later ones need."""
        found = pieces(event.kind)
        match event.kind:
            case ToolCall() as call:
                return self._call(call, found)
            case ToolResult() as result:
                return self._result(result, found, event.seq)
            case SubagentReport() as report:
                source = Source("subagent", report.subagent)
                self._taint.record(report.content, Mark(source, event.seq))
                return self._plain(found)
            case SubagentSpawn() as spawn:
                return self._spawn(spawn, found, event.agent)
            case ManifestSeen() as manifest:
                return self._manifest(manifest, found)
            case Prompt() as prompt:
                self._taint.trust(prompt.content)
        return Observed(Signals())

    def _call(self, call: ToolCall, found: tuple[Piece, ...]) -> Observed:
        known = self._known
        declared = known.declarations.get(call.tool)
        arguments = arguments_of(call.tool, found, declared)
        line = command_line(found)
        action = known.action_of(call.tool, commands_of(arguments), line)
        reached = egress_of(found, arguments, known.allowlist)
        meant = frozenset(one.piece for one in arguments if one.declared and one.kind in _PERSONAL)
        detected = detect(found, known.values, meant)
        taken = origins(arguments, self._taint, action, lambda host: allowed(host, known.allowlist))
        findings = (
            *detected.findings,
            *reached.findings,
            *(origin.finding for origin in taken),
            *_ambiguous(call),
            *self._unseen(detected.cut),
        )
        marks = [*(origin.mark for origin in taken), *self._marks(found)]
        mark = min(marks, key=lambda one: one.seq, default=None)
        signals = Signals(
            findings=findings,
            score=risk_score(findings),
            action=action,
            taint=None if mark is None else mark.source.origin,
            egress_not_allowlisted=not reached.listed,
            touches_sensitive_path=sensitive_path(line),
        )
        return Observed(signals, mark, reached.hosts, detected.cut)

    def _unseen(self, cut: bool) -> Iterator[Finding]:
        """That something was not looked at, as findings, so that a policy can say what follows from it."""
        if cut:
            yield Finding("unseen.cut", "high", 100, "tool_args")
        if not self.history_known:
            yield Finding("unseen.history", "high", 100, "tool_args")
        if self.full:
            yield Finding("unseen.taint", "medium", 100, "tool_args")

    def _marks(self, found: tuple[Piece, ...]) -> list[Mark]:
        marks = (self._taint.check(text) for text in values(found))
        return [mark for mark in marks if mark is not None]

    def _result(self, result: ToolResult, found: tuple[Piece, ...], seq: int) -> Observed:
        declared = self._known.declarations.get(result.tool)
        trust = result.source.trust if declared is None else declared.results
        if trust == "untrusted":
            self._taint.record(result.content, Mark(result.source, seq))
        return self._plain(found)

    def _spawn(self, spawn: SubagentSpawn, found: tuple[Piece, ...], agent: str) -> Observed:
        granted = frozenset(spawn.granted_tools)
        exceeds = not granted <= self._grants.get(agent, frozenset())
        if not exceeds:
            self._grants[spawn.subagent] = granted
        return self._plain(found, Signals(subagent_escalation=exceeds))

    def _manifest(self, manifest: ManifestSeen, found: tuple[Piece, ...]) -> Observed:
        digest, names = _digest(manifest.tools), frozenset(tool.name for tool in manifest.tools)
        before = self._manifests.get(manifest.server)
        others = (theirs for server, (_, theirs) in self._manifests.items() if server != manifest.server)
        shadows = any(not names.isdisjoint(theirs) for theirs in others)
        self._manifests[manifest.server] = digest, names
        changed = before is not None and before[0] != digest
        return self._plain(found, Signals(mcp_manifest_changed=changed, mcp_tool_shadow=shadows))

    def _plain(self, found: tuple[Piece, ...], signals: Signals = _NOTHING) -> Observed:
        detected = self._detected(found)
        score = risk_score(detected.findings)
        return Observed(replace(signals, findings=detected.findings, score=score), cut=detected.cut)

    def _detected(self, found: tuple[Piece, ...]) -> Detected:
        values = self._known.values
        # With their lengths, since two texts are not what they would be as one.
        named = "".join(f"{piece.facet} {len(piece.text)}\n{piece.text}" for piece in found)
        return self._known.detected.of(encoded(named), lambda: detect(found, values))

    def snapshot(self) -> dict[str, Any]:
        """All that is kept, as plain JSON without any text, to go on elsewhere with the same key."""
        return {
            "version": _VERSION,
            "history_known": self.history_known,
            "standing": sorted(self.standing),
            "taint": self._taint.snapshot(),
            "grants": {agent: sorted(tools) for agent, tools in self._grants.items()},
            "manifests": {
                server: [digest, sorted(names)] for server, (digest, names) in self._manifests.items()
            },
        }

    def restore(self, given: Mapping[str, Any]) -> None:
        """Take over a snapshot.

        Raises:
            InvalidRequest: it is none, or one of another version.
        """
        if given.get("version") != _VERSION:
            raise InvalidRequest(
                f"A snapshot of a session must be of version {_VERSION}. "
                "Begin the session anew from its history."
            )
        try:
            self._grants = {agent: frozenset(tools) for agent, tools in given["grants"].items()}
            self._manifests = {
                server: (digest, frozenset(names)) for server, (digest, names) in given["manifests"].items()
            }
            self.history_known = bool(given["history_known"])
            self.standing = frozenset(given["standing"])
            taint = given["taint"]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InvalidRequest(
                "A snapshot of a session is damaged. Begin the session anew from its history."
            ) from None
        self._taint.restore(taint)


def _ambiguous(call: ToolCall) -> tuple[Finding, ...]:
    problem = ambiguity(call)
    if problem is None:
        return ()
    return (Finding("arguments.ambiguous", "high", 100, "tool_args", label=problem),)


def _digest(tools: tuple[ManifestTool, ...]) -> str:
    """What a list of tools says, in whatever order."""
    # Not the canonical form: a server may write what has none, and its words are compared all the same.
    said = sorted(json.dumps([tool.name, tool.description, tool.schema], sort_keys=True) for tool in tools)
    return hashlib.sha256("\n".join(said).encode()).hexdigest()
