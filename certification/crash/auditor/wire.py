"""Invocations against the requests that the provider saw."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator

from certification.crash.auditor.outside import Outside, Wire, WireKey
from certification.crash.auditor.tables import Row, Tables
from certification.crash.auditor.violation import Violation

__all__ = ["audit_wire", "read_invocations"]


def read_invocations(tables: Tables) -> dict[WireKey, list[Row]]:
    """Every invocation with its reservation, by what its request can be told by."""
    query = """
        SELECT i.*, a.run_id, r.state AS reservation, r.decision_id,
               r.actual_input_tokens, r.actual_output_tokens, r.actual_total_tokens,
               r.actual_model_calls, r.actual_tool_calls, r.actual_cost
        FROM invocations i
        JOIN activities a ON a.id = i.activity_id
        JOIN reservations r ON r.id = i.id
    """
    found: dict[WireKey, list[Row]] = defaultdict(list)
    for row in tables.rows(query):
        call = json.loads(row["metadata"])["call"]
        found[row["run_id"], row["attempt"], call, row["round"]].append(row)
    return found


def audit_wire(tables: Tables, outside: Outside) -> Iterator[Violation]:
    """One row for each request and one request for each row, and the same figures on both sides."""
    invocations = read_invocations(tables)
    for key, wires in outside.wires.items():
        if len(wires) > 1:
            yield Violation("SENT_TWICE", _name(key), f"{len(wires)} requests arrived")
        if not invocations.get(key):
            yield Violation("SENT_WITHOUT_ROW", _name(key), "the provider saw a request without invocation")
    for key, rows in invocations.items():
        if len(rows) > 1:
            yield Violation("ROW_TWICE", _name(key), f"{len(rows)} invocations were started")
        (wire, *_) = outside.wires.get(key, (None,))
        for row in rows:
            for rule, message in _differences(row, wire):
                yield Violation(rule, f"{_name(key)} {row['id']}", message)


def _name(key: WireKey) -> str:
    job, attempt, call, round = key
    return f"{job} attempt {attempt} call {call} round {round}"


def _differences(row: Row, wire: Wire | None) -> Iterator[tuple[str, str]]:
    state, reservation = row["state"], row["reservation"]
    if wire is not None and row["request_digest"] != wire.digest:
        yield "REQUEST_DIFFERS", "the provider was sent another request than is recorded"
    if state == "SUCCEEDED" and (wire is None or not wire.performed):
        yield "SUCCEEDED_UNSENT", "the provider generated nothing for it"
    if reservation == "RELEASED" and wire is not None and (row["decision_id"] is None or wire.performed):
        yield "RELEASED_BUT_SENT", f"its request arrived and was performed: {wire.performed}"
    if reservation == "SETTLED":
        yield from _settled(row, wire)


def _settled(row: Row, wire: Wire | None) -> Iterator[tuple[str, str]]:
    if wire is None:
        yield "SETTLED_UNSENT", "no request of it arrived"
        return
    if row["reason"] == "PROVIDER_REJECTED" and (wire.performed or wire.status != row["http_status"]):
        yield "REJECTION_DIFFERS", f"recorded {row['http_status']}, the provider sent {wire.status}"
    billed = (wire.input_tokens, wire.output_tokens)
    # Where somebody decided without having seen the reply, the row of the invocation says nothing of tokens.
    if (row["input_tokens"] or 0, row["output_tokens"] or 0) != billed and row["reason"] != "DECIDED_SPENT":
        unsaid = row["input_tokens"] is None and row["decision_id"] is not None
        if not unsaid:
            yield "USAGE_DIFFERS", f"recorded {row['input_tokens']}/{row['output_tokens']}, billed {billed}"
    total = (row["actual_input_tokens"], row["actual_output_tokens"], row["actual_total_tokens"])
    if total != (*billed, sum(billed)):
        yield "CHARGE_DIFFERS", f"charged {total}, billed {billed}"
    if row["actual_model_calls"] != 1 or row["actual_cost"] != wire.cost:
        charged = f"{row['actual_model_calls']} calls and {row['actual_cost']} nano-units"
        yield "CHARGE_DIFFERS", f"charged {charged}, billed 1 call and {wire.cost}"
