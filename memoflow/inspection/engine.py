"""Judging: every event of a session against one policy, and what becomes of a call.

In ``shadow`` mode every decision is made and recorded and nothing is stopped; in ``enforce`` mode it is. That
something was not looked at is a decision of its own: a gate that fails must not look like one that was
passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from secrets import token_bytes
from time import perf_counter_ns
from typing import Any, Final, Literal

from memoflow.canonical import Digester
from memoflow.declarations import Action, Inspection, at_least
from memoflow.errors import ConfigurationError
from memoflow.inspection.detectors import KnownValues
from memoflow.inspection.events import (
    Event,
    ManifestSeen,
    SessionEnd,
    SubagentReport,
    ToolCall,
    ToolResult,
)
from memoflow.inspection.findings import Finding, reduced
from memoflow.inspection.hosts import Host, read_url
from memoflow.inspection.matching import Pattern
from memoflow.inspection.policy import Judgement, Policy, Rule, Signals, Verdict, When
from memoflow.inspection.remembering import Remembered
from memoflow.inspection.session import Known, Observed, SessionState
from memoflow.inspection.shipped import shipped_policy
from memoflow.inspection.taint import Mark, Reader

__all__ = ["ENGINE_VERSION", "Decision", "Effect", "Inspector", "Mode", "OnAsk", "Session"]

ENGINE_VERSION: Final = "1"
"""Changes when the same events under the same policy may come to another verdict."""

Mode = Literal["shadow", "enforce"]
OnAsk = Literal["ask", "deny", "allow"]
Effect = Literal["run", "ask", "refuse"]
"""What becomes of a call: it runs, it waits for an approval, or it does not run."""

_READ: Final = (ToolResult, SubagentReport, ManifestSeen)
"""What a model reads that somebody else has written: what is wrong with it stays so for its later calls."""
_UNSEEN: Final = Rule(
    name="without-history",
    when=When(),
    action="ask",
    message="what was read in this session before is not known, and the policy says nothing of that",
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided on one event.

    Attributes:
        event: the event.
        inspected: False where looking failed; the verdict is then that of the class of the call.
        verdict: what the policy comes to, whatever the mode is.
        effect: what becomes of a call.
        mode: whether that is meant seriously.
        reason: ``[rule] message`` of the rule that decided, or why nothing was looked at; else None.
        rule: name of the rule that decided.
        matched: the names of all rules that hold.
        escalated: whether one of them wanted a closer look.
        signals: what was known.
        mark: the untrusted text that a call was made of.
        hosts: where a call reaches.
        cut: whether a text was too long to be looked at whole.
        taint_full: whether the session could not keep all that was untrusted.
        policy: digest of the policy.
        latency_us: time that judging took, in microseconds.
    """

    event: Event = field(repr=False)
    inspected: bool
    verdict: Verdict
    effect: Effect
    mode: Mode
    reason: str | None
    rule: str | None
    matched: tuple[str, ...]
    escalated: bool
    signals: Signals
    mark: Mark | None
    hosts: tuple[Host, ...]
    cut: bool
    taint_full: bool
    policy: str
    latency_us: int

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The surest finding of each detector and severity."""
        return reduced(self.signals.findings)


class Inspector:
    """One policy, and what sessions are looked at with. Safe for several threads; its sessions are not.

    Args:
        policy: the rules; the shipped ones where it is left out.
        mode: ``shadow`` records, ``enforce`` acts.
        on_ask: what ``ask`` becomes in ``enforce``: it waits for an approval, or there is nobody to give one.
        known: credentials that must not leave.
        declarations: what the registration of each tool says, by its name.
        key: secret of 16 to 64 bytes under which texts are kept; a fresh one where it is left out, and then
            snapshots cannot be restored by another inspector.
        digester: makes the digests of arguments.

    Raises:
        ConfigurationError: the key has another length, a word is not known, or the extra is not installed.
    """

    __slots__ = ("_known", "digester", "mode", "on_ask", "policy")

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        mode: Mode = "shadow",
        on_ask: OnAsk = "deny",
        known: KnownValues | None = None,
        declarations: Mapping[str, Inspection] | None = None,
        key: bytes | None = None,
        digester: Digester | None = None,
    ) -> None:
        _check(mode, on_ask, key)
        self.policy = shipped_policy() if policy is None else policy
        self.mode: Mode = mode
        self.on_ask: OnAsk = on_ask
        self.digester = Digester() if digester is None else digester
        secret = token_bytes(32) if key is None else key
        self._known = Known(
            reader=Reader(secret),
            values=KnownValues() if known is None else known,
            declarations=dict(declarations or {}),
            least={},
            allowlist=self.policy.egress_allowlist,
            detected=Remembered(secret),
        )

    def session(
        self,
        snapshot: Mapping[str, Any] | None = None,
        *,
        declarations: Mapping[str, Inspection] | None = None,
        least: Mapping[str, Action] | None = None,
    ) -> Session:
        """A fresh session, or one that goes on from a snapshot. Whoever asked for it keeps it.

        Args:
            snapshot: what `Session.snapshot` gave.
            declarations: what tools of this session declare, beside those of the inspector.
            least: what a tool that declares nothing does at least, by its name, where that is known.

        Raises:
            InvalidRequest: the snapshot is none.
        """
        declared = {**self._known.declarations, **(declarations or {})}
        known = replace(self._known, declarations=declared, least=least or {})
        state = SessionState(known)
        if snapshot is not None:
            state.restore(snapshot)
        return Session(self, state, known)

    def effect_of(self, verdict: Verdict) -> Effect:
        """What becomes of a call with this verdict."""
        if self.mode == "shadow" or verdict == "allow":
            return "run"
        if verdict == "deny":
            return "refuse"
        by_word: dict[OnAsk, Effect] = {"ask": "ask", "deny": "refuse", "allow": "run"}
        return by_word[self.on_ask]


class Session:
    """One session under an inspector. Not for several threads at once."""

    __slots__ = ("_inspector", "_known", "_state")

    def __init__(self, inspector: Inspector, state: SessionState, known: Known) -> None:
        self._inspector, self._state, self._known = inspector, state, known

    @property
    def mode(self) -> Mode:
        """Whether decisions are meant seriously."""
        return self._inspector.mode

    def grant(self, tools: frozenset[str], *, agent: str = "main") -> None:
        """Say which tools an agent holds; a subagent may be given no others."""
        self._state.grant(agent, tools)

    def without_history(self) -> None:
        """Say that something happened in the session that was not told here.

        As where a request goes on from an earlier response by its id. What was read there cannot be known
        again, so every call carries the finding ``unseen.history`` from now on.
        """
        self._state.history_known = False

    def judge(self, event: Event) -> Decision:
        """Decide on an event. Never raises: what cannot be looked at is decided by its class."""
        began = perf_counter_ns()
        try:
            observed = self._state.observe(event)
            judgement = self._judgement(event, observed.signals)
        except Exception as error:
            return self.uninspected(event, error)
        if isinstance(event.kind, SessionEnd):
            self._state = SessionState(self._known)
        return self._decision(event, observed, judgement, None, perf_counter_ns() - began)

    def uninspected(self, event: Event, error: Exception) -> Decision:
        """Decide on an event that could not be looked at, here or before it came here.

        A call that sends or destroys does not happen, any other does. What else was not seen is not known
        in later calls, which are judged as after `without_history`.
        """
        if not isinstance(event.kind, ToolCall):
            self.without_history()
        judgement = Judgement(self._when_not_inspected(event), None, (), False)
        # Only the kind of the error: its text may hold what was looked at.
        problem = f"not inspected ({type(error).__name__})"
        return self._decision(event, Observed(Signals()), judgement, problem, 0)

    def _judgement(self, event: Event, signals: Signals) -> Judgement:
        """What the policy comes to; calls that do more than read answer for what was read before them."""
        policy, state = self._inspector.policy, self._state
        if signals.action is None or not at_least(signals.action, "side_effecting"):
            judgement = policy.judge(signals)
            if isinstance(event.kind, _READ) and judgement.verdict != "allow":
                state.standing |= frozenset(judgement.matched)
            return judgement
        judgement = policy.judge(signals, state.standing)
        if judgement.verdict == "allow" and not state.history_known:
            return replace(judgement, verdict="ask", rule=_UNSEEN)
        return judgement

    def _when_not_inspected(self, event: Event) -> Verdict:
        if not isinstance(event.kind, ToolCall):
            return "allow"
        tool = event.kind.tool
        action = self._known.action_of(tool)
        # What a shell would do is not known without looking.
        unknown = action == "side_effecting" and tool not in self._known.declarations
        return "deny" if unknown or at_least(action, "network") else "allow"

    def snapshot(self) -> dict[str, Any]:
        """What is kept of the session, as plain JSON without any text; see `Inspector.session`."""
        return self._state.snapshot()

    def _decision(
        self, event: Event, observed: Observed, judgement: Judgement, problem: str | None, took_ns: int
    ) -> Decision:
        inspector, rule = self._inspector, judgement.rule
        return Decision(
            event=event,
            inspected=problem is None,
            verdict=judgement.verdict,
            effect=inspector.effect_of(judgement.verdict),
            mode=inspector.mode,
            reason=problem if rule is None else rule.reason,
            rule=None if rule is None else rule.name,
            matched=judgement.matched,
            escalated=judgement.escalated,
            signals=observed.signals,
            mark=observed.mark,
            hosts=observed.hosts,
            cut=observed.cut,
            taint_full=self._state.full,
            policy=inspector.policy.digest,
            latency_us=took_ns // 1_000,
        )


def _check(mode: object, on_ask: object, key: bytes | None) -> None:
    if mode not in ("shadow", "enforce"):
        raise ConfigurationError(f"mode must be shadow or enforce, not {mode!r:.40}.")
    if on_ask not in ("ask", "deny", "allow"):
        raise ConfigurationError(f"on_ask must be ask, deny or allow, not {on_ask!r:.40}.")
    if key is not None and not 16 <= len(key) <= 64:
        raise ConfigurationError(f"The key of an inspector must have 16 to 64 bytes, not {len(key)}.")
    # Here and not at the first call, where it would be one more thing that was not inspected.
    Pattern("a").found_in(b"a")
    read_url("https://example.com/")
