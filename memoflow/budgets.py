"""Budget accounts as an application sees them: ``rt.budgets``."""

from __future__ import annotations

import builtins

from memoflow.budget import Budget
from memoflow.errors import BudgetNotConfigured
from memoflow.ledger.accounts import (
    AccountInfo,
    PolicyVersion,
    PutAccount,
    SetAccountState,
    check_path,
    list_accounts,
    policy_history,
    read_account,
)
from memoflow.ledger.database import Database
from memoflow.ledger.deciding import Decision
from memoflow.ledger.unpriced import AllowUnpriced
from memoflow.ledger.writer import Writer

__all__ = ["Budgets"]


class Budgets:
    """The budget accounts of one namespace.

    Every change is recorded for good, with who made it and why; what an account allows is always its
    latest version. All methods block until the change is durable.
    """

    def __init__(self, database: Database, writer: Writer, namespace: str) -> None:
        self._database = database
        self._writer = writer
        self._namespace = namespace

    def put(
        self,
        path: str,
        limits: Budget,
        *,
        soft: Budget | None = None,
        period: str | None = None,
        time_zone: str | None = None,
        strict_input: bool = False,
        actor: str = "application",
        reason: str = "",
    ) -> AccountInfo:
        """Create an account, or replace its limits; the same limits again change nothing.

        At the start of a program use `ensure`, which leaves alone what an operator has changed.

        Args:
            path: for example ``acme/support``; the parent ``acme`` must exist.
            limits: hard limits; a dimension left out is counted and not limited.
            soft: limits that only alert; leaving it out takes the soft limits away.
            period: ``none`` (the default for a new account), ``hour``, ``day``, ``week`` or ``month``. It
                cannot be changed afterwards.
            time_zone: IANA name of the zone in which periods begin; ``UTC`` for a new account. Nor can this.
            strict_input: calls charged here reserve a true upper bound of their input, or what the provider
                counted or the caller declares, never an estimate.
            actor: who makes the change.
            reason: why, in one line.

        Raises:
            BudgetNotConfigured: an ancestor does not exist.
            InvalidBudget: path, limits, currency, period or time zone are not valid here.
        """
        operation = PutAccount(
            self._namespace, path, limits, soft, period, time_zone, actor, reason, strict_input
        )
        return self._writer.record(operation)

    def ensure(
        self,
        path: str,
        limits: Budget,
        *,
        soft: Budget | None = None,
        period: str | None = None,
        time_zone: str | None = None,
        strict_input: bool = False,
        actor: str = "application",
        reason: str = "",
    ) -> AccountInfo:
        """Create an account if there is none; one that exists is left as it is, whatever it allows.

        For the start of a program: `put` would undo what an operator has changed since.

        Args:
            path, limits, soft, period, time_zone, strict_input, actor, reason: as for `put`.

        Returns:
            The account as it is now, which may allow something else.

        Raises:
            BudgetNotConfigured, InvalidBudget: as for `put`.
        """
        operation = PutAccount(
            self._namespace,
            path,
            limits,
            soft,
            period,
            time_zone,
            actor,
            reason,
            strict_input,
            only_create=True,
        )
        return self._writer.record(operation)

    def close(self, path: str, *, actor: str = "application", reason: str = "") -> AccountInfo:
        """Take no new reservations on an account and those below it; what is held is settled as usual.

        Raises:
            BudgetNotConfigured: it does not exist.
        """
        return self._writer.record(SetAccountState(self._namespace, path, "CLOSED", actor, reason))

    def reopen(self, path: str, *, actor: str = "application", reason: str = "") -> AccountInfo:
        """Take reservations on a closed account again.

        Raises:
            BudgetNotConfigured: it does not exist.
        """
        return self._writer.record(SetAccountState(self._namespace, path, "OPEN", actor, reason))

    def show(self, path: str) -> AccountInfo:
        """An account with its balance in the current period.

        Raises:
            BudgetNotConfigured: it does not exist.
        """
        check_path(path)
        found = self._database.read(
            lambda connection: read_account(
                connection, self._namespace, path, self._database.clock(connection)
            )
        )
        if found is None:
            raise BudgetNotConfigured(account=path, namespace=self._namespace)
        return found

    def list(self, *, under: str | None = None) -> builtins.list[AccountInfo]:
        """All accounts with their balances, or one and those below it; each parent before its children."""
        return self._database.read(
            lambda connection: list_accounts(
                connection, self._namespace, self._database.clock(connection), under=under
            )
        )

    def history(self, path: str) -> builtins.list[PolicyVersion]:
        """Every version of an account's limits, oldest first.

        Raises:
            BudgetNotConfigured: it does not exist.
        """
        check_path(path)
        return self._database.read(lambda connection: policy_history(connection, self._namespace, path))

    def allow_unpriced(self, model: str, *, actor: str, reason: str) -> Decision:
        """Let a model without a price be called where cost is limited; its calls count as costing nothing.

        Raises:
            InvalidRequest: the model, actor or reason is not valid.
        """
        return self._writer.record(AllowUnpriced(self._namespace, model, actor, reason))
