"""What memoflow's own rules can find, how bad each is by default, and what it means."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from memoflow.causal.findings import Severity

__all__ = ["MEANINGS", "PREFIX", "Code", "Meaning"]

PREFIX: Final = "MEMOFLOW-CAUSAL-"


class Code(StrEnum):
    """One of memoflow's own rules; the value is what findings carry."""

    APPROVAL_BY_REQUESTER = f"{PREFIX}APPROVAL_BY_REQUESTER"
    APPROVAL_DENIED = f"{PREFIX}APPROVAL_DENIED"
    APPROVAL_DUPLICATE = f"{PREFIX}APPROVAL_DUPLICATE"
    APPROVAL_ELSEWHERE = f"{PREFIX}APPROVAL_ELSEWHERE"
    APPROVAL_EXPIRED = f"{PREFIX}APPROVAL_EXPIRED"
    APPROVAL_MISMATCH = f"{PREFIX}APPROVAL_MISMATCH"
    APPROVAL_MISSING = f"{PREFIX}APPROVAL_MISSING"
    APPROVAL_REUSED = f"{PREFIX}APPROVAL_REUSED"
    APPROVAL_UNBOUND = f"{PREFIX}APPROVAL_UNBOUND"
    APPROVAL_UNKNOWN = f"{PREFIX}APPROVAL_UNKNOWN"
    APPROVAL_UNTRUSTED = f"{PREFIX}APPROVAL_UNTRUSTED"
    CALL_DUPLICATE = f"{PREFIX}CALL_DUPLICATE"
    CALL_UNANSWERED = f"{PREFIX}CALL_UNANSWERED"
    CALL_UNREADABLE = f"{PREFIX}CALL_UNREADABLE"
    CAUSE_NOT_BEFORE = f"{PREFIX}CAUSE_NOT_BEFORE"
    CLAIM_DISAGREES = f"{PREFIX}CLAIM_DISAGREES"
    CTAG_CLASS = f"{PREFIX}CTAG_CLASS"
    CTAG_HINT = f"{PREFIX}CTAG_HINT"
    CTAG_RANGE = f"{PREFIX}CTAG_RANGE"
    CTAG_SEAL = f"{PREFIX}CTAG_SEAL"
    CYCLE = f"{PREFIX}CYCLE"
    DIGEST_DIFFERS = f"{PREFIX}DIGEST_DIFFERS"
    DUPLICATE_ID = f"{PREFIX}DUPLICATE_ID"
    ENVELOPE_BROKEN = f"{PREFIX}ENVELOPE_BROKEN"
    INVALID_ANCESTOR = f"{PREFIX}INVALID_ANCESTOR"
    MARKED_GAP = f"{PREFIX}MARKED_GAP"
    NO_CAUSE = f"{PREFIX}NO_CAUSE"
    RESULT_DUPLICATE = f"{PREFIX}RESULT_DUPLICATE"
    RESULT_MISMATCHED = f"{PREFIX}RESULT_MISMATCHED"
    RESULT_UNMATCHED = f"{PREFIX}RESULT_UNMATCHED"
    SECRET_EGRESS = f"{PREFIX}SECRET_EGRESS"
    SECRET_EXPOSED = f"{PREFIX}SECRET_EXPOSED"
    TIME_INVERSION = f"{PREFIX}TIME_INVERSION"
    UNCLASSIFIED = f"{PREFIX}UNCLASSIFIED"
    UNRESOLVED_PERMISSION = f"{PREFIX}UNRESOLVED_PERMISSION"
    UNTRUSTED_ROOT = f"{PREFIX}UNTRUSTED_ROOT"


class Meaning(NamedTuple):
    """How bad something is unless the rules say otherwise, and what it is."""

    severity: Severity
    text: str


MEANINGS: Final[dict[Code, Meaning]] = {
    Code.APPROVAL_BY_REQUESTER: Meaning("FAIL", "Whoever asked for an action approved it."),
    Code.APPROVAL_DENIED: Meaning("FAIL", "An action names an approval that was not given."),
    Code.APPROVAL_DUPLICATE: Meaning("FAIL", "An approval was decided already."),
    Code.APPROVAL_ELSEWHERE: Meaning("FAIL", "An approval is not in the line of parents of its action."),
    Code.APPROVAL_EXPIRED: Meaning("FAIL", "An action took place after its approval had expired."),
    Code.APPROVAL_MISMATCH: Meaning("FAIL", "An approval is for another tool, version, run or arguments."),
    Code.APPROVAL_MISSING: Meaning("FAIL", "An action that needs an approval names none."),
    Code.APPROVAL_REUSED: Meaning("FAIL", "An approval was used a second time."),
    Code.APPROVAL_UNBOUND: Meaning("FAIL", "An approval does not say what exactly it is for, or how long."),
    Code.APPROVAL_UNKNOWN: Meaning("FAIL", "An action names an approval that is not before it in the log."),
    Code.APPROVAL_UNTRUSTED: Meaning("FAIL", "An approval is by somebody who may not give it."),
    Code.CALL_DUPLICATE: Meaning("FAIL", "Several calls have one id of the provider."),
    Code.CALL_UNANSWERED: Meaning("WARN", "A call has no result."),
    Code.CALL_UNREADABLE: Meaning("FAIL", "A call has no id or no name that can be read."),
    Code.CAUSE_NOT_BEFORE: Meaning("FAIL", "A cause is not in the log before its effect."),
    Code.CLAIM_DISAGREES: Meaning("WARN", "What a model claims is not what its host sees."),
    Code.CTAG_CLASS: Meaning("FAIL", "The class in a tag is not the one that the rules give."),
    Code.CTAG_HINT: Meaning("FAIL", "The lineage hint of a tag does not go with the parent."),
    Code.CTAG_RANGE: Meaning("FAIL", "A tag is not a number of 16 bits, or of the reserved domain."),
    Code.CTAG_SEAL: Meaning("FAIL", "A tag is sealed and not of the class OVERRIDE."),
    Code.CYCLE: Meaning("FAIL", "Records are each other's causes."),
    Code.DIGEST_DIFFERS: Meaning("FAIL", "A digest is not that of the content beside it."),
    Code.DUPLICATE_ID: Meaning("FAIL", "The id of a record was taken already; the first keeps it."),
    Code.ENVELOPE_BROKEN: Meaning("FAIL", "A provider envelope contradicts itself or its record."),
    Code.INVALID_ANCESTOR: Meaning("FAIL", "A record descends from one that failed."),
    Code.MARKED_GAP: Meaning("WARN", "It was not observed what caused a record."),
    Code.NO_CAUSE: Meaning("FAIL", "A record has no cause, and is neither a root nor a marked gap."),
    Code.RESULT_DUPLICATE: Meaning("FAIL", "A call has several results."),
    Code.RESULT_MISMATCHED: Meaning("FAIL", "A result is of another kind than its call."),
    Code.RESULT_UNMATCHED: Meaning("FAIL", "A result names no call before it."),
    Code.SECRET_EGRESS: Meaning("FAIL", "What goes out descends from a secret, and nobody approved it."),
    Code.SECRET_EXPOSED: Meaning("FAIL", "Who sends has seen a secret, and nobody approved the sending."),
    Code.TIME_INVERSION: Meaning("FAIL", "A record is earlier than its cause."),
    Code.UNCLASSIFIED: Meaning(
        "WARN", "An action of high risk has no class, so rules about classes miss it."
    ),
    Code.UNRESOLVED_PERMISSION: Meaning("WARN", "What permits a record is neither in the log nor known."),
    Code.UNTRUSTED_ROOT: Meaning("FAIL", "A root is not of those, or not by those, that are trusted."),
}
