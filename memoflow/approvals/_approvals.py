"""Looking at what waits for a person, and deciding about it."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal

from memoflow.approvals._arguments import Withheld, arguments_of
from memoflow.approvals._records import ApprovalCase
from memoflow.canonical import Digester
from memoflow.errors import ApproverNotAllowed, InvalidRequest, NotFound
from memoflow.ledger.approval_queries import ApprovalInfo, find_approval, list_approvals, recorded_call
from memoflow.ledger.approvals import ApprovalDecision, DecideApproval, MayApprove, anybody
from memoflow.ledger.database import Database
from memoflow.ledger.outputs import Vault
from memoflow.ledger.queries import Page
from memoflow.ledger.writer import Writer

__all__ = ["Approvals"]

State = Literal["pending", "approved", "denied", "used", "expired", "withdrawn"]
DAY: Final = timedelta(days=1)
_MICROSECOND: Final = timedelta(microseconds=1)


class Approvals:
    """The approval requests of one namespace. All methods block, and any thread may call them.

    In an event loop use ``await asyncio.to_thread(rt.approvals.approve, ...)``.

    Args:
        database: where to look.
        writer: what records decisions.
        namespace: tenant boundary.
        vault: opens the replies that hold the arguments; without one they are withheld.
        digester: recognises the arguments by their digest.
        may_approve: who may decide, by name; everybody if left out.
    """

    def __init__(
        self,
        database: Database,
        writer: Writer,
        namespace: str,
        vault: Vault | None = None,
        *,
        digester: Digester | None = None,
        may_approve: MayApprove = anybody,
    ) -> None:
        self._database = database
        self._writer = writer
        self._namespace = namespace
        self._vault = vault
        self._digester = digester or Digester()
        self._may_approve = may_approve

    def list(
        self, state: State | None = "pending", *, limit: int = 50, after: str | None = None
    ) -> Page[ApprovalInfo]:
        """Requests, newest first: those that wait for a person, unless another state is asked for.

        Args:
            state: ``pending``, ``approved`` (and not used yet), ``denied``, ``used``, ``expired``
                (undecided or unused until it was too late) or ``withdrawn`` (its call waits no more);
                None for all.
            limit: rows of a page, 1 to 1000.
            after: the ``next`` of the page before.

        Raises:
            InvalidRequest: there is no such state, or no such page.
        """
        return self._database.read(
            lambda connection: list_approvals(
                connection,
                self._namespace,
                self._database.clock(connection),
                state=state,
                limit=limit,
                after=after,
            )
        )

    def show(self, id: str) -> ApprovalCase:
        """One request, with the arguments of its call as far as they can be read here.

        Raises:
            NotFound: there is no such request.
        """
        request = self._database.read(
            lambda connection: find_approval(
                connection, self._namespace, self._database.clock(connection), id
            )
        )
        if request is None:
            raise NotFound(what="approval request", id=id, namespace=self._namespace)
        try:
            return ApprovalCase(request, self._arguments(id))
        except Withheld as withheld:
            return ApprovalCase(request, None, str(withheld))

    def _arguments(self, id: str) -> str:
        vault = self._vault
        if vault is None:
            # Nothing is read either: a role that may not see ciphertext can look at requests all the same.
            raise Withheld(
                "The arguments are protected, and no key to read them is configured: set "
                "MEMOFLOW_OUTPUT_KEYS to the key ring the workers use. Their digest is what an approval is "
                "bound to."
            )
        recorded = self._database.read(lambda connection: recorded_call(connection, self._namespace, id))
        assert recorded is not None, "requests are never deleted"
        return arguments_of(recorded, vault, self._digester)

    def approve(
        self, id: str, *, approver: str, reason: str, expires_in: timedelta = DAY
    ) -> ApprovalDecision:
        """Allow one call: this tool in this version with these arguments, in this run, once, for a time.

        Nothing runs by itself. The activity is run again under its identity, finds the approval and uses it.

        Args:
            id: the request's id.
            approver: who decides; not who asked.
            reason: why, in one line; kept in the clear.
            expires_in: for how long it may be used, from now on.

        Raises:
            NotFound: there is no such request.
            ApproverIsRequester: the approver is who asked.
            ApproverNotAllowed: the audit's rules do not let the approver decide.
            ApprovalExpired: nobody may decide about it any more.
            AlreadyDecided: it was decided in another way; the same decision again is harmless.
            InvalidRequest: the approver, the reason or the time cannot be kept.
        """
        if not isinstance(expires_in, timedelta):
            raise InvalidRequest("expires_in is a timedelta, for example timedelta(hours=4).")
        return self._decide(
            DecideApproval(self._namespace, id, "approved", approver, reason, expires_in // _MICROSECOND)
        )

    def deny(self, id: str, *, approver: str, reason: str, tell_model: bool = False) -> ApprovalDecision:
        """Refuse one call. It is not run; the model is told that a person did not allow it.

        Args:
            id, approver, reason: as in `approve`.
            tell_model: whether the model is told the reason, too.

        Raises:
            NotFound, ApproverIsRequester, ApproverNotAllowed, ApprovalExpired, AlreadyDecided,
                InvalidRequest: as in `approve`.
        """
        return self._decide(
            DecideApproval(self._namespace, id, "denied", approver, reason, None, bool(tell_model))
        )

    def _decide(self, decision: DecideApproval) -> ApprovalDecision:
        if not self._may_approve(decision.approver):
            raise ApproverNotAllowed(id=decision.id, approver=decision.approver)
        return self._writer.record(decision)
