"""A run of a workflow while it is the current one, with a budget of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import quote

from memoflow.budget import Budget
from memoflow.canonical import sha256_hex
from memoflow.context import Host, Run, current_run, entered
from memoflow.errors import ConfigurationError
from memoflow.identity import check_name, new_id
from memoflow.ledger.account_queries import AccountInfo, policy_history
from memoflow.ledger.accounts import PutAccount
from memoflow.ledger.transaction import Needs, Transaction

__all__ = ["RunScope"]


@dataclass(frozen=True, slots=True, eq=False)
class _PutRun:
    """Gives a run's account the limits that its program names, as long as nobody else has changed it."""

    put: PutAccount

    def needs(self, needs: Needs) -> None:
        """The account and its ancestors."""
        self.put.needs(needs)

    def apply(self, tx: Transaction) -> AccountInfo:
        """Create, change or leave; returns the account as it is now."""
        put = self.put
        if tx.book.account(put.namespace, put.path) is not None:
            newest = policy_history(tx.connection, put.namespace, put.path)[-1]
            put = replace(put, only_create=newest.actor != put.actor)
        return put.apply(tx)


class RunScope:
    """A run of a workflow while it is the current one; see `Runtime.run`."""

    def __init__(
        self,
        host: Host,
        workflow_id: str,
        run_id: str | None,
        budget: Budget | None,
        under: str | None,
        requester: str | None = None,
        cause: str | None = None,
    ) -> None:
        self._host = host
        self.workflow_id = workflow_id
        self.run_id = new_id() if run_id is None else check_name("run_id", run_id)
        self._budget = budget
        self._under = under
        self._requester = requester
        self._cause = cause
        self._scope: Any = None

    @property
    def account(self) -> str | None:
        """The account of this run, or the one it stands under if it has no budget of its own."""
        if self._budget is None or self._under is None:
            return self._under
        segment = f"run:{quote(self.workflow_id, safe='')}:{quote(self.run_id, safe='')}"
        if len(segment) > 200:
            segment = f"run:{sha256_hex([self.workflow_id, self.run_id])}"
        return f"{self._under}/{segment}"

    def _put(self) -> _PutRun | None:
        if self._budget is None or self.account is None:
            return None
        return _PutRun(
            PutAccount(
                self._host.namespace,
                self.account,
                self._budget,
                None,
                None,
                None,
                "runtime",
                "budget of a run",
            )
        )

    def _enter(self) -> Self:
        outer = current_run()
        accounts = () if outer is None else outer.accounts
        if self.account is not None and self.account not in accounts:
            accounts = (*[a for a in accounts if not self.account.startswith(f"{a}/")], self.account)
        requester = self._requester or (None if outer is None else outer.requester)
        if self._scope is not None:
            raise ConfigurationError(
                f"Run {self.run_id!r} is entered already. Make another rt.run(...) of the same ids for this "
                "block."
            )
        self._scope = entered(Run(self.workflow_id, self.run_id, accounts, (), requester, self._cause))
        self._scope.__enter__()
        return self

    def __enter__(self) -> Self:
        if (put := self._put()) is not None:
            self._host.commit(put)
        return self._enter()

    async def __aenter__(self) -> Self:
        if (put := self._put()) is not None:
            await self._host.acommit(put)
        return self._enter()

    def _leave(self) -> None:
        scope, self._scope = self._scope, None
        scope.__exit__(None, None, None)

    def __exit__(self, *error: object) -> None:
        self._leave()

    async def __aexit__(self, *error: object) -> None:
        self._leave()
