"""The strict audit, one record at a time: the gate, and the audit of a whole log, are the same code.

A log is append-only: a cause stands before its effect. Each record is judged against those before it, once,
and what later records need of it is carried along in a few machine words. So a proposal costs the same
in a log of ten records and in one of a million.
"""

from __future__ import annotations

from memoflow.causal.findings import AuditResult, Finding
from memoflow.causal.record import CausalRecord
from memoflow.causal.strict.rules import StrictRules

__all__ = ["Audit"]


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
        raise NotImplementedError

    def __len__(self) -> int:
        """How many records were appended."""
        raise NotImplementedError

    def __contains__(self, record_id: str) -> bool:
        """Whether a record of this id was appended."""
        raise NotImplementedError

    def propose(self, record: CausalRecord) -> tuple[Finding, ...]:
        """What would be found if this record came next; nothing is changed.

        Only the record and what is known of its ancestry decide: a failure elsewhere in the log does not.
        """
        raise NotImplementedError

    def append(self, record: CausalRecord) -> tuple[Finding, ...]:
        """Judge a record as `propose` does, and make it part of the log, whatever was found."""
        raise NotImplementedError

    def result(self) -> AuditResult:
        """Everything that was found so far, in the order of the log."""
        raise NotImplementedError
