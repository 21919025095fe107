"""What people are asked to allow, and what they may decide about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from memoflow.errors._base import MemoflowError

__all__ = [
    "AlreadyDecided",
    "ApprovalError",
    "ApprovalExpired",
    "ApprovalInvalid",
    "ApprovalRequired",
    "ApproverIsRequester",
    "ApproverNotAllowed",
    "PendingApproval",
]


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """One call that waits for a person, as `ApprovalRequired` names it.

    Attributes:
        id: the request's id, which is that of its effect.
        arguments_digest: tagged digest of the arguments; `memoflow approvals show` shows them to who may see.
        expires_at: when the request lapses; the call is then not run.
    """

    id: str
    tool: str
    version: str
    arguments_digest: str
    expires_at: datetime


class ApprovalError(MemoflowError):
    """Base of errors about human approvals."""


class ApprovalRequired(ApprovalError):
    """Tool calls wait for a person, and nothing of them has happened; everything else is recorded.

    The attempt ends PARKED. Run the activity again under the same identity once it is decided: it restores
    what is recorded, charges nothing for it, and goes on. Not retried by itself.

    Attributes:
        requests: what waits, in the order of the calls.
    """

    def __init__(self, *, requests: Sequence[PendingApproval]) -> None:
        self.requests = tuple(requests)
        waiting = "; ".join(
            f"{one.tool} {one.version} (request {one.id}, arguments {one.arguments_digest}, until "
            f"{one.expires_at.isoformat(timespec='seconds')})"
            for one in self.requests
        )
        count = len(self.requests)
        calls = "A tool call waits" if count == 1 else f"Tool calls ({count}) wait"
        super().__init__(
            f"{calls} for a person's approval and did not run: {waiting}. Look with `memoflow approvals show "
            "ID`, decide with `memoflow approvals approve ID` or `deny ID`, then run the activity again "
            "under the same identity: what is recorded costs nothing."
        )


class AlreadyDecided(ApprovalError):
    """An approval request was decided in another way, or its call waits no more.

    Attributes:
        state: ``approved``, ``denied``, ``used`` or ``withdrawn``; asked: the verdict that was refused.
    """

    def __init__(self, *, id: str, state: str, approver: str | None, asked: str) -> None:
        self.id, self.state, self.approver, self.asked = id, state, approver, asked
        by = "" if approver is None else f" by {approver!r}"
        super().__init__(
            f"Approval request {id} is already {state}{by}; it cannot be {asked} in another way. Repeating "
            "the same decision is harmless, a different one is refused. Look with `memoflow approvals show "
            f"{id}`."
        )


class ApprovalExpired(ApprovalError):
    """An approval request lapsed before it was decided; its call is not run."""

    def __init__(self, *, id: str, expires_at: datetime, now: datetime) -> None:
        self.id, self.expires_at, self.now = id, expires_at, now
        super().__init__(
            f"Approval request {id} expired at {expires_at.isoformat()}; the ledger's clock shows "
            f"{now.isoformat()}. It cannot be decided any more, and its call is not run. Start the work "
            "again under a new run_id to be asked anew."
        )


class ApproverIsRequester(ApprovalError):
    """Whoever asked for an approval wanted to give it."""

    def __init__(self, *, id: str, requester: str) -> None:
        self.id, self.requester = id, requester
        super().__init__(
            f"Approval request {id} was made by {requester!r}, who may not decide about it. Somebody else "
            "has to."
        )


class ApproverNotAllowed(ApprovalError):
    """Somebody wanted to decide whom the audit's rules do not let decide."""

    def __init__(self, *, id: str, approver: str) -> None:
        self.id, self.approver = id, approver
        super().__init__(
            f"Approval request {id} cannot be decided by {approver!r}: 'approvers' in the audit's rules does "
            "not name them. Nothing was recorded. Somebody whom it names has to decide."
        )


class ApprovalInvalid(ApprovalError):
    """A recorded approval does not fit the effect that it was to be used for; nothing was run.

    Attributes:
        component: what differs, for example ``arguments_digest`` or ``binding_digest``.
    """

    def __init__(self, *, id: str, component: str) -> None:
        self.id, self.component = id, component
        super().__init__(
            f"The approval of request {id} does not fit the call that was to run ({component} "
            "differs); it was altered, or made for another call. Nothing was run. Check the ledger with "
            "`memoflow verify`, and start the work again under a new run_id."
        )
