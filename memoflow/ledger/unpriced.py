"""Leave to call a model without a price where money is limited."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from memoflow.identity import check_name, new_id
from memoflow.ledger import schema as s
from memoflow.ledger.deciding import Decision, check_decision, decision_of, record
from memoflow.ledger.transaction import Needs, Transaction

__all__ = ["AllowUnpriced"]


@dataclass(frozen=True, slots=True, eq=False)
class AllowUnpriced:
    """Let a model without a price be called where money is limited. It counts as costing nothing."""

    namespace: str
    model: str
    actor: str
    reason: str

    def __post_init__(self) -> None:
        check_name("model", self.model)
        check_decision(new_id(), self.actor, self.reason, "allow", None)

    def needs(self, needs: Needs) -> None:
        """Nothing."""

    def apply(self, tx: Transaction) -> Decision:
        """Allow; returns the first decision that did."""
        d = s.decisions.c
        of_model = (d.namespace == self.namespace, d.kind == "unpriced", d.target_id == self.model)
        if row := tx.connection.execute(select(s.decisions).where(*of_model).limit(1)).one_or_none():
            return decision_of(row)
        decision = Decision(
            new_id(),
            self.namespace,
            "unpriced",
            self.model,
            "allow",
            self.actor,
            self.reason,
            None,
            None,
            tx.now,
        )
        record(tx, decision)
        return decision
