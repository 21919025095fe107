"""``memoflow reconcile``: the queue of unknowns and decisions on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

import typer

from memoflow.budget import Amounts, Budget
from memoflow.cli._auto import auto
from memoflow.cli._effects import effect_fields, tool_text
from memoflow.cli._invocations import amounts_text, invocation_fields
from memoflow.cli._open import Ledger, open_ledger
from memoflow.cli._options import (
    Actor,
    AsJson,
    Cost,
    Currency,
    DatabaseUrl,
    DecisionId,
    Evidence,
    Namespace,
    RequiredReason,
    actor_name,
    age,
    amount,
    money,
    name_argument,
    text_or_file,
    usage,
)
from memoflow.cli._screen import say, show_fields, show_json, show_table
from memoflow.cli._text import moment
from memoflow.errors import InvalidRequest, NotFound
from memoflow.ledger.decisions import Decision, actual_amounts
from memoflow.ledger.queries import EffectInfo, InvocationInfo, find_effect, find_invocation
from memoflow.reconcile import Case, Queue

__all__ = ["app", "auto", "did_not_happen", "happened", "list_", "release", "settle", "show", "write_off"]

app = typer.Typer(help="Unknown outcomes, and decisions on them.", no_args_is_help=True)

InvocationId = Annotated[str, name_argument("id", "The unknown invocation.", metavar="INVOCATION")]
EffectId = Annotated[str, name_argument("id", "The unknown tool effect.", metavar="EFFECT")]
Figure = Annotated[int | None, amount("What was used.")]
Proof = Annotated[
    str, typer.Option(metavar="TEXT|@FILE", help="Proof that it was not done; only its digest is kept.")
]


@contextmanager
def _deciding(database: str | None, namespace: str | None) -> Iterator[Ledger]:
    """An open ledger; an id of the other kind is refused with the decisions there are about that kind."""
    with open_ledger(database, namespace) as ledger:
        try:
            yield ledger
        except NotFound as missing:
            id = missing.id
            if missing.what == "invocation" and ledger.read(find_effect, id):
                raise InvalidRequest(
                    f"{id} is a tool effect, not an invocation. Say whether it happened with "
                    f"`memoflow reconcile happened {id}` or `memoflow reconcile did-not-happen {id}`."
                ) from None
            if missing.what == "effect" and ledger.read(find_invocation, id):
                raise InvalidRequest(
                    f"{id} is an invocation, not a tool effect. Charge what it used with `memoflow reconcile "
                    f"settle {id}`, or return its budget with `memoflow reconcile release {id}`."
                ) from None
            raise


def _id_of(decision: UUID | None) -> str | None:
    return None if decision is None else str(decision)


@app.command("list")
def list_(database: DatabaseUrl = None, namespace: Namespace = None, json: AsJson = False) -> None:
    """List what waits for a decision, oldest first, and what it holds on each account."""
    with open_ledger(database, namespace) as ledger:
        queue = ledger.reconciler().list()
    if json:
        show_json(queue)
        return
    rows = [*map(_invocation_row, queue.invocations), *map(_effect_row, queue.effects)]
    show_table(
        ("KIND", "ID", "REASON", "WHAT", "HOLDS", "RUN", "ACTIVITY", "STARTED"),
        rows,
        empty="Nothing is unknown.",
    )
    _show_exposure(queue)


def _invocation_row(item: InvocationInfo) -> tuple[object, ...]:
    return (
        "invocation",
        item.id,
        item.reservation_reason or "ATTEMPT_LOST",
        item.model,
        amounts_text(item.reserved, item.currency),
        f"{item.workflow_id}/{item.run_id}",
        f"{item.activity_id}#{item.attempt}",
        moment(item.started_at),
    )


def _effect_row(item: EffectInfo) -> tuple[object, ...]:
    return (
        "effect",
        item.id,
        item.reason or "ATTEMPT_LOST",
        tool_text(item),
        "",
        f"{item.workflow_id}/{item.run_id}",
        f"{item.activity_id}#{item.attempt}",
        moment(item.started_at),
    )


def _show_exposure(queue: Queue) -> None:
    if queue.exposures:
        rows = [
            (item.account, item.invocations, amounts_text(item.amounts, item.currency))
            for item in queue.exposures
        ]
        typer.echo()
        show_table(("ACCOUNT", "UNKNOWN", "HELD BY THEM"), rows, empty="")


@app.command()
def show(
    id: Annotated[str, name_argument("id", "An invocation or tool effect.", metavar="ID")],
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Show all that is known about an invocation or effect: decisions on it and late writes included."""
    with open_ledger(database, namespace) as ledger:
        case = ledger.reconciler().show(id)
    if json:
        show_json(case)
    else:
        _show_case(case)


def _show_case(case: Case) -> None:
    if case.invocation is not None:
        show_fields(invocation_fields(case.invocation))
    if case.effect is not None:
        show_fields(effect_fields(case.effect))
    currency = None if case.invocation is None else case.invocation.currency
    for decision in case.decisions:
        typer.echo()
        show_fields(
            (
                ("decision", decision.id),
                ("verdict", decision.verdict),
                ("actor", decision.actor),
                ("reason", decision.reason),
                ("evidence digest", decision.evidence_digest),
                ("charged", amounts_text(decision.actual, currency)),
                ("at", moment(decision.at)),
            )
        )
    if case.evidence:
        typer.echo()
        rows = [
            (
                late.attempt,
                late.event,
                late.state,
                late.input_tokens,
                late.output_tokens,
                late.digest,
                moment(late.at),
            )
            for late in case.evidence
        ]
        headers = ("LATE WRITE OF ATTEMPT", "EVENT", "STATE", "INPUT", "OUTPUT", "DIGEST", "AT")
        show_table(headers, rows, empty="")


@app.command()
def settle(
    invocation: InvocationId,
    reason: RequiredReason,
    input_tokens: Figure = None,
    output_tokens: Figure = None,
    total_tokens: Figure = None,
    tool_calls: Figure = None,
    wall_clock_ms: Figure = None,
    cost: Cost = None,
    currency: Currency = "USD",
    evidence: Evidence = None,
    actor: Actor = None,
    decision_id: DecisionId = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Charge what an unknown invocation used. What is left out is charged as it was reserved.

    Give input and output tokens together, or a total alone, of which each kind may then have been all.
    """
    used = Budget(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=total_tokens,
        tool_calls=tool_calls,
        wall_clock_ms=wall_clock_ms,
        cost=money(cost, currency),
    )
    with usage():
        actual_amounts(used, Amounts())
    with _deciding(database, namespace) as ledger:
        decision = ledger.reconciler().settle(
            invocation,
            used,
            actor=actor_name(actor),
            reason=reason,
            evidence=None if evidence is None else text_or_file(evidence),
            decision_id=_id_of(decision_id),
        )
    _say_decision(decision, json=json)


@app.command()
def release(
    invocation: InvocationId,
    reason: RequiredReason,
    evidence: Proof,
    actor: Actor = None,
    decision_id: DecisionId = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Return the hold of an unknown invocation, with proof that the provider did not perform it."""
    with _deciding(database, namespace) as ledger:
        decision = ledger.reconciler().release(
            invocation,
            actor=actor_name(actor),
            reason=reason,
            evidence=text_or_file(evidence),
            decision_id=_id_of(decision_id),
        )
    _say_decision(decision, json=json)


@app.command()
def happened(
    effect: EffectId,
    reason: RequiredReason,
    result: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|@FILE",
            help="What the tool would have returned: given word for word to the model, and final. Encrypted.",
        ),
    ] = None,
    evidence: Evidence = None,
    actor: Actor = None,
    decision_id: DecisionId = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Say that an unknown tool effect happened. It is not run again."""
    known: dict[str, Any] = {} if result is None else {"result": _result_text(result)}
    with _deciding(database, namespace) as ledger:
        decision = ledger.reconciler().happened(
            effect,
            actor=actor_name(actor),
            reason=reason,
            evidence=None if evidence is None else text_or_file(evidence),
            decision_id=_id_of(decision_id),
            **known,
        )
    _say_decision(decision, json=json)


def _result_text(result: str) -> str:
    try:
        return text_or_file(result).decode()
    except UnicodeDecodeError:
        raise typer.BadParameter("A result is text in UTF-8.") from None


@app.command()
def did_not_happen(
    effect: EffectId,
    reason: RequiredReason,
    evidence: Proof,
    actor: Actor = None,
    decision_id: DecisionId = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Say, with proof, that an unknown tool effect did not happen. The next attempt may run it."""
    with _deciding(database, namespace) as ledger:
        decision = ledger.reconciler().did_not_happen(
            effect,
            actor=actor_name(actor),
            reason=reason,
            evidence=text_or_file(evidence),
            decision_id=_id_of(decision_id),
        )
    _say_decision(decision, json=json)


@app.command()
def write_off(
    older_than: Annotated[timedelta, typer.Option(metavar="AGE", help="For example 30d.", parser=age)],
    reason: RequiredReason,
    actor: Actor = None,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Charge every unknown invocation that started longer ago as spent in full; never as free."""
    with open_ledger(database, namespace) as ledger:
        decisions = ledger.reconciler().write_off(older_than, actor=actor_name(actor), reason=reason)
    if json:
        show_json({"items": decisions, "next": None})
        return
    rows = [(item.target_id, amounts_text(item.actual, None), item.id) for item in decisions]
    show_table(("INVOCATION", "CHARGED", "DECISION"), rows, empty="Nothing is old enough.")


def _say_decision(decision: Decision, *, json: bool) -> None:
    if json:
        show_json(decision)
        return
    charged = "" if decision.actual is None else f", charged {amounts_text(decision.actual, None)}"
    say(f"Decision {decision.id}: {decision.verdict} {decision.kind} {decision.target_id}{charged}.")


app.command("auto")(auto)
