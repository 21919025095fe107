"""The strict audit, one record at a time: the gate, and the audit of a whole log, are the same code.

Each record is judged once, against those before it, and what later ones need of it is carried along in a few
machine words. So a proposal costs the same in a log of ten records and in one of a million.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from heapq import merge
from operator import itemgetter
from typing import Final

from memoflow.causal.codes import Code
from memoflow.causal.findings import AuditResult, Finding
from memoflow.causal.record import CausalRecord
from memoflow.causal.strict.approvals import Approvals
from memoflow.causal.strict.case import Case
from memoflow.causal.strict.cycles import cycles
from memoflow.causal.strict.flows import Exposures, check_custom, grant
from memoflow.causal.strict.index import NOWHERE, Index
from memoflow.causal.strict.payload import check_payload
from memoflow.causal.strict.rules import StrictRules
from memoflow.causal.strict.structure import check_structure

__all__ = ["Audit", "audit_strict"]

_SHOWN: Final = 16


def audit_strict(records: Iterable[CausalRecord], rules: StrictRules | None = None) -> AuditResult:
    """Audit a whole log, in time that grows as the log does; no record is kept."""
    audit = Audit(rules)
    for record in records:
        audit.append(record)
    return audit.result()


class Audit:
    """An index over a log, and the rules that it is judged by. Not for use by several threads at once.

    ::

        audit = Audit(rules)
        for record in log:
            audit.append(record)
        findings = audit.propose(record)                     # nothing is changed
        if not any(finding.severity == "FAIL" for finding in findings):
            audit.append(record)                             # then the call may run

    Args:
        rules: see `StrictRules`; without any, the defaults.
    """

    def __init__(self, rules: StrictRules | None = None) -> None:
        self.rules = rules or StrictRules()
        self._index = Index()
        self._approvals = Approvals()
        self._exposures = Exposures()
        self._found: list[Finding] = []
        self._places = array("q")

    def __len__(self) -> int:
        """How many records were appended."""
        return len(self._index)

    def __contains__(self, record_id: object) -> bool:
        """Whether a record of this id was appended."""
        return record_id in self._index.positions

    def propose(self, record: CausalRecord) -> tuple[Finding, ...]:
        """What would be found if this record came next; nothing is changed.

        Only the record and what is known of its ancestry, its actor and its approval decide: a failure
        elsewhere in the log does not.
        """
        return tuple(self._judged(record).findings)

    def append(self, record: CausalRecord) -> tuple[Finding, ...]:
        """Judge a record as `propose` does, and make it part of the log, whatever was found."""
        case = self._judged(record)
        position = len(self._index)
        grant(case)
        if case.node.failed == NOWHERE and case.fails:
            case.node.failed = position
        self._index.add(record.id, case.node)
        self._approvals.note(case, position)
        self._exposures.note(case)
        self._found += case.findings
        self._places.extend([position] * len(case.findings))
        return tuple(case.findings)

    def _judged(self, record: CausalRecord) -> Case:
        case = Case(record, self.rules, self._index)
        check_structure(case)
        check_payload(case)
        self._approvals.check(case)
        self._exposures.check(case)
        check_custom(case, self._approvals.given(case))
        return case

    def result(self) -> AuditResult:
        """Everything that was found, in the order of the log, and the cycles, which only the whole log shows.

        A gate does not need them: whatever closes a cycle descends from a record that failed.
        """
        found: Iterable[tuple[int, Finding]] = zip(self._places, self._found, strict=True)
        if closed := list(self._cycles()):
            found = merge(found, closed, key=itemgetter(0))
        places, findings = set[int](), []
        for place, finding in found:
            places.add(place)
            findings.append(finding)
        return AuditResult(len(self), len(self) - len(places), tuple(findings))

    def _cycles(self) -> Iterable[tuple[int, Finding]]:
        severity = self.rules.severity(Code.CYCLE)
        if severity == "OFF":
            return
        for members in cycles(self._index):
            ids = tuple(self._index.ids[position] for position in members[:_SHOWN])
            message = f"{len(members)} records are each other's causes."
            yield (
                members[0],
                Finding(Code.CYCLE.value, severity, ids[0], message, ids, {"records": len(members)}),
            )
