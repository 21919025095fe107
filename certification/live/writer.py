"""Makes evidence from the ledger and from what the witness saw; there is no other way into the file."""

from __future__ import annotations

import importlib.metadata
import sqlite3
import sys
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, select

import memoflow
from certification.live.boundaries import ACCOUNT, BOUNDARIES, Boundary
from certification.live.evidence import (
    FORMAT,
    Amounts,
    Balance,
    Call,
    Case,
    Changes,
    Database,
    Effect,
    Entry,
    Evidence,
    Limits,
    Source,
    Usage,
    Versions,
    seal,
)
from certification.live.inputs import Inputs
from certification.live.provider import Provider
from certification.live.refused import NotCertified
from certification.live.witness import Exchange, UnclearWire
from memoflow import Runtime, budget
from memoflow.ledger import schema as s
from memoflow.ledger.queries import (
    EffectInfo,
    Filter,
    InvocationInfo,
    list_effects,
    list_invocations,
)

__all__ = ["write_case", "write_evidence"]

_USAGE = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")


def write_case(runtime: Runtime, boundary: Boundary, duration_ms: int, exchanges: Sequence[Exchange]) -> Case:
    """What one boundary left in the ledger, request by request beside what passed the witness.

    Raises:
        NotCertified: the two do not go together, or evidence has no word for what happened.
    """
    only, namespace = Filter(run_id=boundary.name), runtime.namespace
    database = runtime.ledger.database
    calls = database.read(lambda c: list_invocations(c, namespace, only)).items[::-1]
    effects = database.read(lambda c: list_effects(c, namespace, only)).items[::-1]
    if len(calls) != len(exchanges):
        raise NotCertified(
            f"{boundary.name}: {len(exchanges)} requests went over the wire, and the ledger has {len(calls)}."
        )
    try:
        return Case(
            boundary=boundary.name,  # type: ignore[arg-type]
            duration_ms=duration_ms,
            calls=tuple(map(_call, calls, exchanges)),
            effects=tuple(map(_effect, effects)),
        )
    except UnclearWire as error:
        raise NotCertified(f"{boundary.name}: {error}") from None
    except ValidationError:
        # Its text would repeat what was refused.
        told = ", ".join(f"{call.state} / {call.reservation_state} ({call.finish_reason})" for call in calls)
        raise NotCertified(
            f"{boundary.name}: evidence has no words for how this ended; the ledger says {told}."
        ) from None


def _call(found: InvocationInfo, exchange: Exchange) -> Call:
    used = {name: getattr(found, name) for name in _USAGE}
    return Call.model_validate(
        {
            "id": found.id,
            "state": found.state,
            "reservation": found.reservation_state,
            "reason": found.reason,
            "finish": found.finish_reason,
            "reserved": _amounts(found.reserved),
            "usage": None if found.input_tokens is None else Usage(**used),
            "wire": exchange.wire(),
        }
    )


def _effect(found: EffectInfo) -> Effect:
    return Effect.model_validate(
        {"state": found.state, "effect_class": found.effect_class, "execution": found.execution}
    )


def write_evidence(
    provider: Provider, inputs: Inputs, source: Source, runtime: Runtime, cases: Sequence[Case]
) -> Evidence:
    """The evidence of a run, under its digest.

    Raises:
        NotCertified: something has no form in evidence, for example a version that is nobody's release.
    """
    try:
        return seal(_evidence(provider, inputs, source, runtime, cases))
    except ValidationError as error:
        where = sorted({".".join(map(str, problem["loc"])) for problem in error.errors(include_input=False)})
        raise NotCertified(f"Evidence has no form for its {error.title}: {', '.join(where)}.") from None


def _evidence(
    provider: Provider, inputs: Inputs, source: Source, runtime: Runtime, cases: Sequence[Case]
) -> Evidence:
    database = runtime.ledger.database
    calls = [call for case in cases for call in case.calls]
    return Evidence(
        format=FORMAT,
        provider=provider.name,
        api=provider.api,
        # By where the requests went, and not by what was said of the run.
        simulated=any(call.wire.host == "elsewhere" for call in calls),
        model=inputs.model,
        source=source,
        versions=Versions(
            memoflow=memoflow.__version__,
            sdk=importlib.metadata.version(provider.name),
            python=".".join(map(str, sys.version_info[:3])),
        ),
        database=database.read(_database),
        cases=tuple(cases),
        balances=database.read(lambda c: _balances(c, runtime.namespace)),
        digest=f"sha256:{'0' * 64}",
    )


def _database(connection: Connection) -> Database:
    dialect = connection.dialect
    if dialect.name == "sqlite":
        return Database(kind="sqlite", version=sqlite3.sqlite_version)
    version = dialect.server_version_info or ()
    return Database(kind="postgresql", version=".".join(map(str, version)))


def _balances(connection: Connection, namespace: str) -> tuple[Balance, ...]:
    query = (
        select(
            s.balances,
            s.accounts.c.path,
            s.policies.c.hard_total_tokens,
            s.policies.c.hard_model_calls,
        )
        .join(s.accounts, s.accounts.c.id == s.balances.c.account_id)
        .join(s.policies, s.policies.c.account_id == s.accounts.c.id)
        .where(s.accounts.c.namespace == namespace, s.policies.c.version == s.accounts.c.policy_version)
    )
    rows = {row.path: row for row in connection.execute(query)}
    wanted = (ACCOUNT, *(boundary.account for boundary in BOUNDARIES))
    return tuple(_balance(connection, rows[path]) for path in wanted)


def _balance(connection: Connection, row: Any) -> Balance:
    c = s.journal.c
    entries = connection.execute(select(s.journal).where(c.balance_id == row.id).order_by(c.seq))
    sums = {kind: _amounts(s.read_amounts(row, kind)) for kind in ("settled", "held", "unknown")}
    return Balance(
        account=row.path,
        id=row.id,
        limits=Limits(total_tokens=row.hard_total_tokens, model_calls=row.hard_model_calls),
        head=row.head,
        journal=tuple(map(_entry, entries)),
        **sums,
    )


def _entry(row: Any) -> Entry:
    changes = {kind: _changes(s.read_amounts(row, kind)) for kind in ("settled", "held", "unknown")}
    return Entry(
        seq=row.seq,
        at=row.at,
        event=row.event,
        reservation=row.reservation_id,
        policy_version=row.policy_version,
        **changes,
    )


def _amounts(amounts: budget.Amounts) -> Amounts:
    return Amounts(**amounts._asdict())


def _changes(amounts: budget.Amounts) -> Changes:
    return Changes(**amounts._asdict())
