"""Checks evidence: its form, its digest, its arithmetic. Offline, and without the provider's SDK.

Every finding is a sentence. Text of a file that was refused is shown escaped and short, whoever wrote it.
"""

from __future__ import annotations

from certification.live.evidence import Evidence, digest_of
from certification.live.verifier._books import book_findings
from certification.live.verifier._cases import case_findings, host_findings, run_findings
from certification.live.verifier._shape import MAX_BYTES, Unreadable, read_evidence

__all__ = ["MAX_BYTES", "Unreadable", "case_findings", "evidence_findings", "live_findings", "read_evidence"]


def evidence_findings(evidence: Evidence) -> list[str]:
    """What does not hold in evidence, whether it is live or simulated; an empty list if nothing is wrong."""
    found = []
    if (wanted := digest_of(evidence)) != evidence.digest:
        found.append(f"The digest is {evidence.digest}; what it stands for has {wanted}.")
    found += host_findings(evidence)
    cases = run_findings(evidence)
    # The books are compared with the calls, which must be there for that.
    return [*found, *(cases or book_findings(evidence))]


def live_findings(evidence: Evidence) -> list[str]:
    """Why evidence does not count as live."""
    if not evidence.simulated:
        return []
    return [
        "The run was simulated: its requests did not go to the provider, so it is no live evidence "
        "(--allow-simulated checks the rest of it)."
    ]
