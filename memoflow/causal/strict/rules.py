"""What the strict audit is told: roots, permissions, approvals, classes and secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from memoflow.canonical import Digester
from memoflow.causal.classes import ClassRule
from memoflow.causal.codes import MEANINGS, Code
from memoflow.causal.compat.config import CustomRule
from memoflow.causal.ctag import ActionClass
from memoflow.causal.findings import Severity
from memoflow.causal.secrets import SecretPatterns

__all__ = ["StrictRules", "fits_any"]


def fits_any(value: str, patterns: Iterable[str]) -> bool:
    """Whether a text fits one of some patterns: those of shells, with case."""
    return any(fnmatchcase(value, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictRules:
    """Rules of the strict audit. Actors are matched by `Actor.key`, for example ``human:alice``.

    Attributes:
        root_prefix: how ``permitted_by`` of a root begins.
        roots: patterns of the roots that are trusted.
        root_actors: patterns of those who may begin a root; by default no agent, model or tool.
        permissions: patterns of permissions that are known outside the log.
        approvers: prefixes of approvals, each with patterns of those who may give them.
        approval_classes: classes of actions that always need an approval.
        approval_risks: risk levels that always need one.
        classes: how actions are classified; the first rule that fits counts.
        secrets: what counts as a secret.
        outgoing: classes of actions by which something leaves.
        net_out_actions: actions by which something leaves, in any case, whatever their class.
        custom_rules: rules about classes of ancestors.
        severities: other severities than the usual ones, by code; ``OFF`` for a rule that does not count.
        digester: how digests in records were made; keyed ones are checked only with their key.
    """

    root_prefix: str = "root_event:"
    roots: tuple[str, ...] = ("root_event:?*",)
    root_actors: tuple[str, ...] = ("human:*", "host:*", "service:*", "pid:*")
    permissions: tuple[str, ...] = ()
    approvers: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {
            "human_approval:": ("human:*",),
            "policy_approval:": ("human:*", "host:*", "service:*"),
        }
    )
    approval_classes: frozenset[ActionClass] = frozenset({ActionClass.DATA_EGRESS, ActionClass.FIN_TX})
    approval_risks: tuple[str, ...] = ("high",)
    classes: tuple[ClassRule, ...] = ()
    secrets: SecretPatterns = field(default_factory=SecretPatterns)
    outgoing: frozenset[ActionClass] = frozenset({ActionClass.NET_OUT, ActionClass.DATA_EGRESS})
    net_out_actions: tuple[str, ...] = ("connect", "send")
    custom_rules: tuple[CustomRule, ...] = ()
    severities: Mapping[str, Severity | Literal["OFF"]] = field(default_factory=dict)
    digester: Digester = field(default_factory=Digester, compare=False)

    def severity(self, code: Code) -> Severity | Literal["OFF"]:
        """How bad a finding of this code is."""
        return self.severities.get(code, MEANINGS[code].severity)

    def approval_prefix(self, permitted_by: object) -> str | None:
        """The prefix by which a permission is an approval."""
        if isinstance(permitted_by, str):
            for prefix in self.approvers:
                if permitted_by.startswith(prefix):
                    return prefix
        return None
