"""What inspection decided about a request and its reply, as digest-only records."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from memoflow.identity import new_id
from memoflow.ledger import schema as s
from memoflow.ledger.transaction import Needs, Transaction

__all__ = ["InspectionCount", "InspectionRow", "RecordInspections", "count_inspections", "list_inspections"]


@dataclass(frozen=True, slots=True)
class InspectionRow:
    """One decision.

    Attributes:
        mode: ``shadow`` or ``enforce``.
        decision: the verdict, ``not_inspected``, or ``incomplete`` for a call that was cut short.
        effect: ``run``, ``ask`` or ``refuse``.
        rule: the rule that decided, if one did.
        record: the whole record as JSON, without any text that it was about.
    """

    mode: str
    decision: str
    effect: str
    rule: str | None
    record: str


@dataclass(frozen=True, slots=True)
class InspectionCount:
    """How often something was decided: so many ``decisions``, about so many ``invocations``."""

    mode: str
    decision: str
    effect: str
    rule: str | None
    decisions: int
    invocations: int


@dataclass(frozen=True, slots=True, eq=False)
class RecordInspections:
    """Keep the decisions about an invocation. Goes with its settlement."""

    namespace: str
    invocation_id: str
    rows: tuple[InspectionRow, ...]

    def needs(self, needs: Needs) -> None:
        """Nothing."""

    def apply(self, tx: Transaction) -> None:
        """Keep them."""
        for ordinal, row in enumerate(self.rows, 1):
            tx.insert(
                s.inspections,
                id=new_id(),
                namespace=self.namespace,
                invocation_id=self.invocation_id,
                ordinal=ordinal,
                mode=row.mode,
                decision=row.decision,
                effect=row.effect,
                rule=row.rule,
                record=row.record,
                at=tx.now,
            )


def list_inspections(connection: Connection, namespace: str, invocation_id: str) -> list[InspectionRow]:
    """The decisions about an invocation, in order."""
    c = s.inspections.c
    query = (
        select(c.mode, c.decision, c.effect, c.rule, c.record)
        .where(c.namespace == namespace, c.invocation_id == invocation_id)
        .order_by(c.ordinal)
    )
    return [InspectionRow(*row) for row in connection.execute(query)]


def count_inspections(connection: Connection, namespace: str) -> list[InspectionCount]:
    """How often which rule decided what, about all invocations; the most frequent first."""
    c = s.inspections.c
    what = (c.mode, c.decision, c.effect, c.rule)
    decisions = func.count().label("decisions")
    query = (
        select(*what, decisions, func.count(c.invocation_id.distinct()))
        .where(c.namespace == namespace)
        .group_by(*what)
        .order_by(decisions.desc(), *what)
    )
    return [InspectionCount(*row) for row in connection.execute(query)]
