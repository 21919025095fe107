"""`verify` finds whatever does not hold about approvals."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, text

from tests.ledger._corrupt import check, ledger, shared_ledger

__all__ = ["ledger", "shared_ledger"]

# What `verify` says first of a kind and about which row, and the statements that make it say so.
BROKEN = {
    "RESULT_OF_NOTHING effects a1": [
        "UPDATE effects SET result_digest = 'x' WHERE id = 'a1'",
        "INSERT INTO outputs (owner_id, kind, namespace, binding, key_id, created_at) "
        "VALUES ('a1', 'result', 'default', 'b', 'k1', 1)",
    ],
    "RESULT_OF_NOTHING effects a3": [
        "UPDATE effects SET result_bytes = 1 WHERE id = 'a3'",
    ],
    "APPROVAL_NOT_ASKED effects a1": [
        "DELETE FROM approval_requests WHERE id = 'a1'",
    ],
    "NOT_APPROVED effects a1": [
        "UPDATE effects SET state = 'STARTED' WHERE id = 'a1'",
        "UPDATE effects SET state = 'DONE', result_digest = 'x' WHERE id = 'a1'",
    ],
    "NOT_APPROVED effects a2": [
        "DELETE FROM approval_uses WHERE id = 'a2'",
    ],
    "NOT_APPROVED effects a6": [
        "INSERT INTO effects (id, namespace, activity_id, attempt, invocation_id, ordinal, execution, "
        "call_id, kind, tool_namespace, tool_name, tool_version, effect_class, idempotency_key, state, "
        "started_at) VALUES ('a6', 'default', 'parked', 1, 'waiting', 0, 2, 'call', 'function', '', "
        "'refund', 'v1', 'idempotent', 'mf1_a1', 'STARTED', 1790000000000000)",
    ],
    "NOT_APPROVED approval_uses a2": [
        "UPDATE approval_decisions SET verdict = 'denied', expires_at = NULL WHERE id = 'a2'",
        "UPDATE approval_decisions SET expires_at = 1790000000000000 WHERE id = 'a2'",
    ],
    "BINDING_BROKEN approval_decisions a2": [
        "UPDATE approval_requests SET arguments_digest = 'sha256:820' WHERE id = 'a2'",
        "UPDATE approval_requests SET tool_version = 'v2' WHERE id = 'a2'",
        "UPDATE approval_decisions SET approver = 'bob' WHERE id = 'a2'",
        "UPDATE approval_decisions SET reason = 'other' WHERE id = 'a2'",
        "UPDATE approval_decisions SET shared = 1 WHERE id = 'a2'",
        "UPDATE approval_decisions SET expires_at = expires_at + 1 WHERE id = 'a2'",
        "UPDATE activities SET run_id = 'other' WHERE id = 'parked'",
    ],
    "APPROVAL_DIFFERS approval_requests a1": [
        "UPDATE effects SET arguments_digest = 'sha256:820' WHERE id = 'a1'",
        "UPDATE effects SET tool_name = 'payout' WHERE id = 'a1'",
    ],
    "APPROVAL_DIFFERS approval_decisions a3": [
        "UPDATE approval_decisions SET requester = 'agent:other' WHERE id = 'a3'",
        "UPDATE approval_decisions SET namespace = 'x' WHERE id = 'a3'",
    ],
    "APPROVED_BY_REQUESTER approval_decisions a2": [
        "UPDATE approval_requests SET requester = 'Ann' WHERE id = 'a2'",
        "UPDATE approval_requests SET requester = 'human:a\u00adnn' WHERE id = 'a2'",
    ],
    "APPROVAL_TIMES approval_requests a1": [
        "UPDATE approval_requests SET expires_at = created_at WHERE id = 'a1'",
    ],
    "APPROVAL_TIMES approval_decisions a3": [
        "UPDATE approval_decisions SET decided_at = 4000000000000000 WHERE id = 'a3'",
    ],
    "APPROVAL_DIFFERS approval_uses a2": [
        "UPDATE approval_uses SET binding_digest = 'sha256:x' WHERE id = 'a2'",
        "UPDATE approval_uses SET attempt = 2 WHERE id = 'a2'",
        "UPDATE approval_uses SET used_at = used_at + 1 WHERE id = 'a2'",
        "UPDATE effects SET state = 'AWAITING_APPROVAL' WHERE id = 'a2'",
    ],
    "REFERENCE_BROKEN approval_decisions a2": [
        "DELETE FROM approval_requests WHERE id = 'a2'",
    ],
}


@pytest.mark.parametrize(
    ("finding", "statement"), [(finding, broken) for finding, all in BROKEN.items() for broken in all]
)
def test_a_broken_fact_is_found(ledger: Connection, finding: str, statement: str) -> None:
    """One statement that breaks one fact gives a finding about that row, the first of its kind."""
    assert ledger.execute(text(statement)).rowcount > 0
    code = finding.split()[0]
    found = [f"{f.code} {f.table} {f.id}" for f in check(ledger, "default") if f.code == code]
    assert found[:1] == [finding]
    assert check(ledger, "other") == []
