"""Policies: ordered rules over what is known of an event, and which verdict they come to.

Every rule is looked at and the strongest verdict wins, after ``escalate`` was resolved to its ``fallback``;
the order of the file only decides between rules of one strength. So a rule that lets something pass can
never hide one that stops it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator

from memoflow.canonical import sha256_hex
from memoflow.declarations import Action, at_least
from memoflow.inspection.findings import Facet, Finding, Severity, is_of, severe

__all__ = ["Judgement", "Policy", "Rule", "RuleAction", "Signals", "Verdict", "When"]

Verdict = Literal["allow", "ask", "deny"]
"""From the weakest to the strongest."""

RuleAction = Literal["allow", "ask", "deny", "escalate"]

VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)

Tainted = Literal["network", "mcp", "subagent"]
_Name = Annotated[StrictStr, Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True)
class Signals:
    """What is known of one event.

    Attributes:
        findings: what the detectors found.
        score: 0 to 100.
        action: what a call does; None for other events.
        taint: where the text came from that the call was made of: ``network``, ``mcp`` or ``subagent``.
        egress_not_allowlisted: whether it reaches a host that is not on the list.
        subagent_escalation: whether a subagent was given a tool that its parent does not hold.
        touches_sensitive_path: whether it names a place where credentials are kept.
        mcp_manifest_changed: whether a server describes its tools otherwise than before.
        mcp_tool_shadow: whether a server offers a tool by the name of another server's.
    """

    findings: tuple[Finding, ...] = ()
    score: int = 0
    action: Action | None = None
    taint: str | None = None
    egress_not_allowlisted: bool = False
    subagent_escalation: bool = False
    touches_sensitive_path: bool = False
    mcp_manifest_changed: bool = False
    mcp_tool_shadow: bool = False


_STRICT: Final = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
_FLAGS: Final = (
    "egress_not_allowlisted",
    "subagent_escalation",
    "touches_sensitive_path",
    "mcp_manifest_changed",
    "mcp_tool_shadow",
)


class When(BaseModel):
    """Conditions, all of which must hold; one that is left out does not matter, and none at all always holds.

    ``detector``, ``facet`` and ``min_severity`` are about one and the same finding.
    """

    model_config = _STRICT

    taint: tuple[Tainted, ...] | None = None
    action_class: Action | None = None
    min_action_class: Action | None = None
    detector: _Name | None = None
    facet: Facet | None = None
    min_severity: Severity | None = None
    risk_score_gte: Annotated[StrictInt, Field(ge=0, le=100)] | None = None
    egress_not_allowlisted: StrictBool | None = None
    subagent_escalation: StrictBool | None = None
    touches_sensitive_path: StrictBool | None = None
    mcp_manifest_changed: StrictBool | None = None
    mcp_tool_shadow: StrictBool | None = None

    def holds(self, signals: Signals) -> bool:
        """Whether all conditions are met."""
        flags = all(getattr(self, flag) in (None, getattr(signals, flag)) for flag in _FLAGS)
        return (
            flags
            and (self.taint is None or signals.taint in self.taint)
            and self._action_holds(signals.action)
            and (self.risk_score_gte is None or signals.score >= self.risk_score_gte)
            and self._finding_holds(signals.findings)
        )

    def _action_holds(self, action: Action | None) -> bool:
        exact = self.action_class in (None, action)
        least = self.min_action_class
        return exact and (least is None or (action is not None and at_least(action, least)))

    def _finding_holds(self, findings: Iterable[Finding]) -> bool:
        if self.detector is None and self.facet is None and self.min_severity is None:
            return True
        return any(map(self._is_met_by, findings))

    def _is_met_by(self, finding: Finding) -> bool:
        return (
            (self.detector is None or is_of(finding.detector, self.detector))
            and self.facet in (None, finding.facet)
            and (self.min_severity is None or severe(finding.severity, self.min_severity))
        )


class Rule(BaseModel):
    """One rule; ``fallback`` is what ``escalate`` becomes where nothing looks closer."""

    model_config = _STRICT

    name: _Name
    when: When
    action: RuleAction
    message: Annotated[StrictStr, Field(max_length=2_000)] | None = None
    fallback: Literal["allow", "ask"] | None = None

    @model_validator(mode="after")
    def _fallback_belongs_to_escalate(self) -> Rule:
        if (self.action == "escalate") != (self.fallback is not None):
            raise ValueError("fallback (allow or ask) is needed with action escalate, and only there")
        return self

    @property
    def verdict(self) -> Verdict:
        """What the rule comes to."""
        return (self.fallback or "allow") if self.action == "escalate" else self.action

    @property
    def reason(self) -> str:
        """``[name] message``, or ``[name]``."""
        return f"[{self.name}] {self.message}" if self.message else f"[{self.name}]"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a policy comes to.

    Attributes:
        verdict: the strongest of all rules that hold, or the default.
        rule: the rule that decided; None for the default.
        matched: the names of all rules that hold, in the order of the policy.
        escalated: whether one of them wanted a closer look.
    """

    verdict: Verdict
    rule: Rule | None
    matched: tuple[str, ...]
    escalated: bool


class Policy(BaseModel):
    """Rules, the hosts that may be reached, and what happens where no rule holds."""

    model_config = _STRICT

    agent_policies: tuple[Rule, ...] = ()
    egress_allowlist: tuple[_Name, ...] = ()
    default: Verdict = "allow"

    @model_validator(mode="after")
    def _names_are_unique(self) -> Policy:
        names = [rule.name for rule in self.agent_policies]
        if len(names) != len(set(names)):
            raise ValueError("two rules have the same name")
        return self

    @cached_property
    def digest(self) -> str:
        """``sha256:…`` over all that the policy says: two that are alike in it decide alike."""
        return f"sha256:{sha256_hex(self.plain())}"

    def plain(self) -> dict[str, Any]:
        """As plain JSON, in the form of the file."""
        return self.model_dump(mode="json", exclude_none=True)

    def judge(self, signals: Signals, standing: frozenset[str] = frozenset()) -> Judgement:
        """Look at every rule. The ``standing`` ones, by name, hold besides, and can only make it stronger."""
        held = [rule for rule in self.agent_policies if rule.when.holds(signals)]
        besides = [rule for rule in self.agent_policies if rule.name in standing and rule not in held]
        decisive = _strongest(held)
        verdict = self.default if decisive is None else decisive.verdict
        stronger = _strongest(rule for rule in besides if _strength(rule.verdict) > _strength(verdict))
        return Judgement(
            verdict=verdict if stronger is None else stronger.verdict,
            rule=stronger or decisive,
            matched=tuple(rule.name for rule in (*held, *besides)),
            escalated=any(rule.action == "escalate" for rule in held),
        )


def _strength(verdict: Verdict) -> int:
    return VERDICTS.index(verdict)


def _strongest(rules: Iterable[Rule]) -> Rule | None:
    # max() takes the first of the strongest, which is the order of the file.
    return max(rules, key=lambda rule: _strength(rule.verdict), default=None)
