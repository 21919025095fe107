"""What the approver gets to see."""

from __future__ import annotations

from dataclasses import dataclass, field

from memoflow.ledger.approval_queries import ApprovalInfo

__all__ = ["ApprovalCase"]


@dataclass(frozen=True, slots=True)
class ApprovalCase:
    """All that is known about one request.

    Attributes:
        request: the request, with the decision on it.
        arguments: what the tool would be given, in canonical form (the raw text of a freeform call), compared
            with the digest that an approval is bound to; None where it cannot be shown.
        withheld: why it cannot be shown, in one sentence; None where it is.
    """

    request: ApprovalInfo
    arguments: str | None = field(default=None, repr=False)
    withheld: str | None = None
