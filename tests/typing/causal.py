"""What a type checker must see of the causal audit. Checked by mypy and pyright, never run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal, assert_type

from openai.types.responses import Response

from memoflow.causal import (
    Actor,
    Audit,
    AuditResult,
    CausalRecord,
    Claim,
    Finding,
    StrictRules,
    TakenClaim,
    audit_compat,
    audit_strict,
    load_strict,
    read_jsonl,
    take_claim,
)
from memoflow.causal.adapters import Seen, SeenCall, Terms, Tracer, openai_responses


def gate(audit: Audit, record: CausalRecord) -> None:
    assert_type(audit.propose(record), tuple[Finding, ...])
    assert_type(audit.append(record), tuple[Finding, ...])
    assert_type(audit.result(), AuditResult)
    assert_type(audit.propose(record)[0].severity, Literal["OK", "WARN", "FAIL"])
    record.id = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    audit.propose("record")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def logs(file: IO[bytes], path: Path) -> None:
    records = read_jsonl(file)
    assert_type(records, Iterator[CausalRecord])
    assert_type(load_strict(path), StrictRules)
    assert_type(audit_strict(records, load_strict(path)), AuditResult)
    assert_type(audit_compat(records).passed, bool)


def trace(response: Response) -> None:
    seen = openai_responses.read(response.output)
    assert_type(seen, Seen)
    tracer = Tracer(Actor(kind="agent", name="a"))

    def terms(call: SeenCall) -> Terms:
        return Terms(permitted_by="root", risk="low" if call.hosted else "high")

    assert_type(tracer.turn(seen, terms), tuple[CausalRecord, ...])
    Terms("root")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def claim() -> None:
    rest, taken = take_claim({"a": 1})
    assert_type(taken, TakenClaim)
    assert_type(taken.claim, Claim | None)
    rest["b"] = 2
