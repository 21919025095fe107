"""Approvals in the ledger: asked with the settlement, decided once, and by somebody else."""

from __future__ import annotations

from typing import Any

import pytest

from memoflow.errors import (
    AlreadyDecided,
    ApprovalExpired,
    ApproverIsRequester,
    InvalidRequest,
    NotFound,
)
from memoflow.ledger import schema as s
from memoflow.ledger.approval_queries import find_approval, list_approvals, recorded_call
from memoflow.ledger.approvals import MAX_WAIT_US, ContinueEffects
from memoflow.ledger.replay import pending_approvals
from tests.ledger import _approvals
from tests.ledger._approvals import (
    HOUR,
    LAPSES,
    allow,
    asked,
    deny,
    go_on,
    parked,
    resumption,
    shown,
    state,
)
from tests.ledger._calls import NAMESPACE, Ledger

ledger = _approvals.ledger

# Asking


def test_a_request_stands_with_its_effect_in_the_settlement(ledger: Ledger) -> None:
    """Which run, call, tool, version and arguments, by name and digest; on whose behalf, and until when."""
    fence = ledger.claim()
    (new,) = asked(ledger, fence)
    row, of_effect = ledger.row(s.approval_requests, new.id), ledger.row(s.effects, new.id)
    for name in ("namespace", "activity_id", "invocation_id", "ordinal", "tool_name", "tool_version"):
        assert getattr(row, name) == getattr(of_effect, name)
    assert (row.arguments_digest, row.idempotency_key) == ("sha256:arguments", new.idempotency_key)
    assert (row.requester, row.created_at, row.expires_at) == (
        "agent:answer",
        ledger.now,
        ledger.now + LAPSES,
    )
    assert (of_effect.state, of_effect.finished_at) == ("AWAITING_APPROVAL", None)
    (pending,) = ledger.read(lambda connection: pending_approvals(connection, [new.id]))
    assert (pending.id, pending.tool, pending.version) == (new.id, "refund", "v1")


def test_what_waits_is_not_lost_with_its_attempt(ledger: Ledger) -> None:
    """A dead worker leaves nothing unknown where nothing has happened."""
    (new,) = asked(ledger, ledger.claim())
    ledger.now += 2 * HOUR
    ledger.claim()
    assert state(ledger, new.id) == ("AWAITING_APPROVAL", None)


# Deciding


def test_an_approval_is_bound_to_all_that_was_decided(ledger: Ledger) -> None:
    """It says by whom, why, when and until when, and has a digest over that and over the call."""
    _, new = parked(ledger)
    decision = ledger.do(allow(new.id))
    assert (decision.verdict, decision.approver, decision.requester) == ("approved", "ann", "agent:answer")
    assert (decision.decided_at, decision.expires_at) == (ledger.now, ledger.now + HOUR)
    assert decision.binding_digest.startswith("sha256:")
    assert ledger.row(s.approval_decisions, new.id).binding_digest == decision.binding_digest


@pytest.mark.parametrize("make", [allow, deny])
def test_the_same_decision_again_is_harmless(ledger: Ledger, make: Any) -> None:
    """Repeating it returns the one that stands, also when its request has lapsed since, or in one batch."""
    _, new = parked(ledger)
    first, second = ledger.do_all(make(new.id), make(new.id))
    ledger.now += LAPSES
    assert first == second == ledger.do(make(new.id))


OTHERWISE = [
    (allow, deny, {}),
    (deny, allow, {}),
    (allow, allow, {"approver": "bob"}),
    (allow, allow, {"reason": "other"}),
    (allow, allow, {"valid_us": 2 * HOUR}),
    (deny, deny, {"shared": True}),
]


@pytest.mark.parametrize(("first", "second", "change"), OTHERWISE)
def test_another_decision_is_refused(ledger: Ledger, first: Any, second: Any, change: dict[str, Any]) -> None:
    """Once decided, a request is not decided in another way, by nobody; the one that stands is named."""
    _, new = parked(ledger)
    verdict = ledger.do(first(new.id)).verdict
    with pytest.raises(AlreadyDecided) as caught:
        ledger.do(second(new.id, **change))
    assert (caught.value.state, caught.value.approver) == (verdict, "ann")


@pytest.mark.parametrize(
    "approver",
    ["agent:answer", "Agent:ANSWER", " agent:answer ", "agent:answer\ufeff", "human: agent:answer"],
)
@pytest.mark.parametrize("make", [allow, deny])
def test_the_requester_decides_nothing(ledger: Ledger, make: Any, approver: str) -> None:
    """Neither by its name nor by that name written in another way."""
    _, new = parked(ledger)
    with pytest.raises(ApproverIsRequester):
        ledger.do(make(new.id, approver))
    assert ledger.rows(s.approval_decisions) == []


@pytest.mark.parametrize("nobody", [" ", "\u00a0", "\u200b", "human:"])
def test_nobody_decides_nothing(nobody: str) -> None:
    """An approver is a name in which there is something to be seen."""
    with pytest.raises(InvalidRequest, match="must say who it is"):
        allow("x", nobody)


def test_a_lapsed_request_is_not_decided(ledger: Ledger) -> None:
    """At the moment it lapses, and ever after, nobody can allow or refuse it."""
    _, new = parked(ledger)
    ledger.now += LAPSES
    for make in (allow, deny):
        with pytest.raises(ApprovalExpired):
            ledger.do(make(new.id))


def test_what_is_not_there_is_not_decided(ledger: Ledger) -> None:
    """An unknown id, and a request of another tenant, are not found."""
    _, new = parked(ledger)
    for operation in (allow("nothing"), allow(new.id, namespace="other")):
        with pytest.raises(NotFound, match="approval request"):
            ledger.do(operation)


@pytest.mark.parametrize("valid_us", [None, 0, -1, MAX_WAIT_US + 1])
def test_an_approval_has_an_end_that_lies_ahead(valid_us: int | None) -> None:
    """None for ever, none that is over before it is given, and none that no calendar holds."""
    with pytest.raises(InvalidRequest, match="positive timedelta"):
        allow("id", valid_us=valid_us)


def test_what_waits_no_more_is_not_decided(ledger: Ledger) -> None:
    """The call of a completed activity, or one that a judge denied meanwhile, is told as withdrawn."""
    fence, new = parked(ledger)
    ledger.do(ContinueEffects(fence, (resumption(new, refused=True),)))
    with pytest.raises(AlreadyDecided, match="withdrawn"):
        ledger.do(allow(new.id))


# Looking


def test_requests_are_listed_by_state_and_page(ledger: Ledger) -> None:
    """Newest first; each state is found by its name, and a page tells where the next one begins."""
    first = ledger.claim()
    new = asked(ledger, first, *["idempotent"] * 5)
    ledger.do(allow(new[1].id))
    ledger.do(deny(new[2].id))
    ledger.do(allow(new[3].id))
    go_on(ledger, first, new[3])
    ledger.do(ContinueEffects(first, (resumption(new[4], refused=True),)))

    def page(state: str | None, **where: Any) -> Any:
        return ledger.read(
            lambda connection: list_approvals(connection, NAMESPACE, ledger.now, state=state, **where)
        )

    wanted = ("pending", "approved", "denied", "used", "withdrawn")
    for one, name in zip(new, wanted, strict=True):
        assert [item.id for item in page(name).items] == [one.id]
        assert shown(ledger, one.id).state == name
    assert page("expired").items == ()
    half = page(None, limit=3)
    rest = page(None, limit=3, after=half.next)
    assert [item.id for item in (*half.items, *rest.items)] == sorted((one.id for one in new), reverse=True)
    assert rest.next is None
    with pytest.raises(InvalidRequest, match="pending"):
        page("maybe")
    with pytest.raises(InvalidRequest, match="1 to 1000"):
        page(None, limit=0)


def test_nothing_is_shown_across_tenants(ledger: Ledger) -> None:
    """A request of another namespace is neither found, listed nor opened."""
    _, new = parked(ledger)
    assert ledger.read(lambda connection: find_approval(connection, "other", ledger.now, new.id)) is None
    assert ledger.read(lambda connection: list_approvals(connection, "other", ledger.now)).items == ()
    assert ledger.read(lambda connection: recorded_call(connection, "other", new.id)) is None
