"""What waits for a person, and decisions on it: ``rt.approvals``.

A decision is made by somebody else than who asked, for one call, and for a limited time. It never makes
anything run by itself: the activity is run again, and finds it.
"""

from __future__ import annotations

from memoflow.approvals._approvals import Approvals
from memoflow.approvals._records import ApprovalCase
from memoflow.ledger.approval_queries import ApprovalInfo
from memoflow.ledger.approvals import ApprovalDecision

__all__ = ["ApprovalCase", "ApprovalDecision", "ApprovalInfo", "Approvals"]
