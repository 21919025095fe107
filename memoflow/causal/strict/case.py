"""One record on its way through the rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from memoflow.canonical import JSON
from memoflow.causal._frozen import EMPTY
from memoflow.causal.classes import Classified, classify
from memoflow.causal.codes import Code
from memoflow.causal.ctag import ActionClass
from memoflow.causal.findings import Finding
from memoflow.causal.record import CausalRecord
from memoflow.causal.strict.index import NOWHERE, Index, Node
from memoflow.causal.strict.rules import StrictRules

__all__ = ["REFUSED", "Case"]

REFUSED: Final = "refused"
"""What ``object.execution`` says of a call that its host refused: nothing was done or permitted."""


class Case:
    """A record, where it stands in the log, and what was found about it so far.

    Attributes:
        payload: its object, if that is a JSON object.
        causes: positions of its parent and of what it joins, as far as they are before it.
        approved: whether a valid approval permits it, once that was looked at.
    """

    def __init__(self, record: CausalRecord, rules: StrictRules, index: Index) -> None:
        self.record, self.rules, self.index = record, rules, index
        self.payload: Mapping[str, JSON] = record.object if isinstance(record.object, dict) else EMPTY
        self.classified: Classified = classify(record, rules.classes)
        self.findings: list[Finding] = []
        self.approved: bool = False
        named = (record.parent_cause, *record.joins)
        parent, *joins = [index.find(cause) for cause in named]
        self.node = Node(
            parent=parent,
            joins=tuple(join for join in joins if join != NOWHERE),
            missing=tuple(cause for cause in named if cause is not None and index.find(cause) == NOWHERE),
            timestamp=record.timestamp,
        )
        self.causes = tuple(cause for cause in (parent, *self.node.joins) if cause != NOWHERE)

    @property
    def action_class(self) -> ActionClass:
        """The class that rules go by."""
        return self.classified.action_class

    @property
    def acts(self) -> bool:
        """Whether something was done, or will be: not if the host refused it."""
        return self.payload.get("execution") != REFUSED

    @property
    def fails(self) -> bool:
        """Whether anything found so far fails."""
        return any(finding.severity == "FAIL" for finding in self.findings)

    def found(self, code: Code, message: str, *chain_ids: str, **context: JSON) -> None:
        """Note a finding, unless its rule is off."""
        severity = self.rules.severity(code)
        if severity != "OFF":
            self.findings.append(Finding(code.value, severity, self.record.id, message, chain_ids, context))
