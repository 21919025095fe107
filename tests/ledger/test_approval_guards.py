"""What the database itself refuses about approvals, whoever writes: forged, altered, expired, used before."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, text

from memoflow.ledger import guards
from memoflow.ledger import schema as s
from tests.ledger import _guarded
from tests.ledger._guarded import refusal
from tests.ledger._rows import LATER, NOW, Rows

ledger, shared_ledger = _guarded.ledger, _guarded.shared_ledger


def insert_like(table: str, id: str, like: str, **changes: str) -> str:
    """A statement that inserts a row like another one, with these expressions in the place of its values."""
    names = [column.name for column in s.metadata.tables[table].columns]
    values = [changes.get(name, f"'{id}'" if name == "id" else name) for name in names]
    picked = f"SELECT {', '.join(values)} FROM {table} WHERE id = '{like}'"
    return f"INSERT INTO {table} ({', '.join(names)}) {picked}"


# Effects that wait


@pytest.mark.parametrize(
    ("state", "guard"),
    [
        ("STARTED", "effects_approved"),
        ("DONE", "effects_state"),
        ("FAILED", "effects_state"),
        ("OUTCOME_UNKNOWN", "effects_state"),
        ("SUPERSEDED", "effects_state"),
        ("REFUSED", "effects_state"),
        ("PROVIDER_SIDE", "effects_state"),
        ("DENIED", None),
        ("AWAITING_APPROVAL", None),
    ],
)
def test_what_waits_begins_only_with_an_approval(ledger: Connection, state: str, guard: str | None) -> None:
    """From AWAITING_APPROVAL an effect can be denied; it begins with a use, and is never done at once."""
    assert refusal(ledger, f"UPDATE effects SET state = '{state}' WHERE id = 'a1'") == guard


def test_a_decision_alone_begins_nothing(ledger: Connection) -> None:
    """An approved effect stays where it is until its approval is used, in the same transaction or before."""
    begin = "UPDATE effects SET state = 'STARTED' WHERE id = 'a5'"
    assert refusal(ledger, begin) == "effects_approved"
    use = insert_like("approval_uses", "a5", "a2", binding_digest=BINDING.format("a5"))
    assert refusal(ledger, use) is None
    assert refusal(ledger, begin) is None


@pytest.mark.parametrize("state", ["STARTED", "OUTCOME_UNKNOWN"])
def test_what_has_begun_does_not_wait_again(ledger: Connection, state: str) -> None:
    """Nothing that may have happened becomes something that has not."""
    id = {"STARTED": "e6", "OUTCOME_UNKNOWN": "e4"}[state]
    for after in ("AWAITING_APPROVAL", "DENIED"):
        assert refusal(ledger, f"UPDATE effects SET state = '{after}' WHERE id = '{id}'") == "effects_state"


def test_a_denied_effect_is_final(ledger: Connection) -> None:
    """What was denied is not changed any more."""
    assert refusal(ledger, "UPDATE effects SET reason = 'x' WHERE id = 'a3'") == "effects_final"


@pytest.mark.parametrize(("column", "value"), [("attempt", "2"), ("started_at", "1"), ("judgement", "'[]'")])
def test_who_begins_an_effect_is_said_when_it_begins(ledger: Connection, column: str, value: str) -> None:
    """The attempt, the time and the judgement of a waiting effect may change; of one that has begun, not."""
    assert refusal(ledger, f"UPDATE effects SET {column} = {value} WHERE id = 'a1'") is None
    assert refusal(ledger, f"UPDATE effects SET {column} = {value} WHERE id = 'a2'") == "effects_begun"


# Forged rows


BINDING = "(SELECT binding_digest FROM approval_decisions WHERE id = '{}')"


def request_for(id: str, **changes: str) -> str:
    """A statement that asks for what an effect says, but for these changes."""
    names = [column.name for column in s.approval_requests.columns]
    given = {"requester": "'agent:answer'", "created_at": f"{NOW}", "expires_at": f"{LATER}"} | changes
    values = ", ".join(given.get(name, name) for name in names)
    return (
        f"INSERT INTO approval_requests ({', '.join(names)}) SELECT {values} FROM effects WHERE id = '{id}'"
    )


@pytest.fixture
def unasked(ledger: Connection) -> Connection:
    """An effect ``a7`` that waits, about which nobody was asked."""
    Rows(ledger).effect(
        "a7",
        "waiting",
        "parked",
        "AWAITING_APPROVAL",
        ordinal=7,
        idempotency_key="mf1_a7",
        arguments_digest="sha256:82",
    )
    return ledger


@pytest.mark.parametrize(
    "change",
    [
        {"arguments_digest": "'sha256:820'"},
        {"tool_name": "'payout'"},
        {"tool_namespace": "'bank'"},
        {"tool_version": "'v2'"},
        {"activity_id": "'open'"},
        {"invocation_id": "'held'"},
        {"ordinal": "8"},
        {"idempotency_key": "'mf1_a2'"},
        {"namespace": "'other'"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_request_says_what_its_effect_says(unasked: Connection, change: dict[str, str]) -> None:
    """Whoever is asked about 82 cannot be made to allow 820: a request that differs is refused."""
    assert refusal(unasked, request_for("a7", **change)) == "approval_requests_bound"
    assert refusal(unasked, request_for("a7")) is None


def test_nothing_is_asked_about_what_does_not_wait(ledger: Connection) -> None:
    """An effect that has begun or was denied cannot be put before anybody."""
    for id in ("e6", "a4"):
        told = refusal(ledger, request_for(id, arguments_digest="'sha256:a'", idempotency_key="'k'"))
        assert told == "approval_requests_bound"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"requester": "'agent:other'"}, "approval_decisions_bound"),
        ({"namespace": "'other'"}, "approval_decisions_bound"),
        ({"approver": "'agent:answer'"}, "by_somebody_else"),
        ({"approver": "'Agent:Answer'"}, "by_somebody_else"),
        ({"expires_at": "NULL"}, "approved_until"),
        ({"verdict": "'denied'"}, "approved_until"),
        ({"verdict": "'perhaps'", "expires_at": "NULL"}, "verdict_known"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
def test_a_forged_decision_is_refused(ledger: Connection, change: dict[str, str], told: str) -> None:
    """A decision is about its request, by somebody else than who asked, and an approval has an end."""
    assert told in str(refusal(ledger, insert_like("approval_decisions", "a1", "a2", **change)))
    assert refusal(ledger, insert_like("approval_decisions", "a1", "a2")) is None


def test_a_request_that_lapsed_cannot_be_decided(unasked: Connection) -> None:
    """By the clock of the database, whatever the row says about when it was decided."""
    assert refusal(unasked, request_for("a7", expires_at=f"{NOW}")) is None
    late = insert_like("approval_decisions", "a7", "a2", decided_at="1")
    assert refusal(unasked, late) == "approval_decisions_bound"


def test_a_decision_is_about_a_request_that_exists(ledger: Connection) -> None:
    """Nothing can be allowed that nobody asked for."""
    assert refusal(ledger, insert_like("approval_decisions", "e6", "a2")) == "approval_decisions_bound"


@pytest.mark.parametrize(
    ("id", "change"),
    [
        ("a1", {}),
        ("a3", {"binding_digest": BINDING.format("a3")}),
        ("a5", {}),
        ("a5", {"binding_digest": "'sha256:forged'"}),
        ("a5", {"binding_digest": BINDING.format("a5"), "namespace": "'other'"}),
        ("e6", {}),
    ],
    ids=["undecided", "denied", "of another", "forged", "other tenant", "unasked"],
)
def test_a_use_without_its_approval_is_refused(ledger: Connection, id: str, change: dict[str, str]) -> None:
    """An approval is used for the effect it was given for, as it was given, or not at all."""
    assert refusal(ledger, insert_like("approval_uses", id, "a2", **change)) == "approval_uses_allowed"


def test_an_expired_approval_cannot_be_used(ledger: Connection) -> None:
    """By the clock of the database, whatever the row says about when it was used."""
    expired = insert_like("approval_decisions", "a1", "a2", expires_at=f"{NOW}")
    assert refusal(ledger, expired) is None
    use = insert_like("approval_uses", "a1", "a2", used_at=f"{NOW - 1}")
    assert refusal(ledger, use) == "approval_uses_allowed"


def test_an_approval_is_used_once(ledger: Connection) -> None:
    """The second use of an approval is refused: its effect does not wait any more."""
    told = refusal(ledger, insert_like("approval_uses", "a2", "a2"))
    assert str(told).startswith("approval_uses_")


def test_a_request_that_was_altered_past_the_guards_cannot_be_used(ledger: Connection) -> None:
    """Allowed was 82; whoever could make the request say 820 still cannot begin anything with it."""
    guards.uninstall(ledger)
    ledger.execute(text("UPDATE approval_requests SET arguments_digest = 'sha256:820' WHERE id = 'a5'"))
    guards.install(ledger)
    use = insert_like("approval_uses", "a5", "a2", binding_digest=BINDING.format("a5"))
    assert refusal(ledger, use) == "approval_uses_allowed"


# Further executions


@pytest.mark.parametrize(
    ("like", "state", "told"),
    [
        ("a1", "STARTED", "effects_approved_again"),
        ("a1", "DONE", "effects_approved_again"),
        ("a1", "AWAITING_APPROVAL", None),
        ("a1", "DENIED", None),
        ("a2", "STARTED", None),
        ("a3", "STARTED", "effects_approved_again"),
        ("a5", "STARTED", "effects_approved_again"),
        ("e4", "STARTED", None),
    ],
)
def test_a_further_execution_needs_an_approval_that_was_used(
    ledger: Connection, like: str, state: str, told: str | None
) -> None:
    """The same effect runs again only under the approval it began with; what nobody was asked, freely."""
    again = insert_like("effects", "again", like, execution="2", state=f"'{state}'")
    assert refusal(ledger, again) == told


def test_a_further_execution_needs_an_approval_that_is_still_good(ledger: Connection) -> None:
    """An approval that was used and has expired since does not carry another execution."""
    guards.uninstall(ledger)
    ledger.execute(text(f"UPDATE approval_decisions SET expires_at = {NOW + 1} WHERE id = 'a2'"))
    guards.install(ledger)
    again = insert_like("effects", "again", "a2", execution="2")
    assert refusal(ledger, again) == "effects_approved_again"
