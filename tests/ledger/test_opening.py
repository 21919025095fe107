"""Activities that begin with their first request: claimed and started, both or neither."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from memoflow.budget import Budget
from memoflow.errors import BudgetDenied, VirtualKeyRefused
from memoflow.identity import ActivityIdentity, new_id
from memoflow.ledger.activities import ClaimActivity, Fence
from memoflow.ledger.opening import IdentityTaken, OpenActivity
from memoflow.ledger.verify import verify
from memoflow.ledger.virtual_keys import AddVirtualKey, RevokeVirtualKey, VirtualKey
from tests.ledger._calls import SECOND, Ledger, ask, identity, open_ledger, settle, start
from tests.ledger._tables import changed, tables

LEASE = 60 * SECOND


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A fresh ledger with one account in another, on each kind of database."""
    with open_ledger(database_url) as opened:
        opened.put("acme", Budget(total_tokens=1_000, model_calls=10))
        opened.put("acme/app", Budget(total_tokens=600))
        yield opened


def add_key(ledger: Ledger, **given: Any) -> VirtualKey:
    """A new virtual key of the account."""
    options = {"output_tokens": None, "expires_in_us": None, "actor": "test", "endpoints": ("*",), **given}
    operation = AddVirtualKey(
        id=new_id(),
        namespace="tests",
        digest=f"sha256:{new_id()}",
        hint="abcd",
        name="k",
        account="acme/app",
        models=("*",),
        **options,
    )
    return ledger.do(operation)


def opening(
    key: VirtualKey, tokens: int = 100, who: ActivityIdentity | None = None
) -> tuple[OpenActivity, Fence]:
    """An operation that opens an activity, and the fence that it then has."""
    who, id = who or identity(run_id=new_id()), new_id()
    fence = Fence(who.namespace, id, 1, str(who))
    claim = ClaimActivity(who, "sha256:input", LEASE, "worker-1", id=id)
    return OpenActivity(claim, start(fence, ask(total_tokens=tokens), "acme/app"), key), fence


def test_it_claims_and_starts_at_once(ledger: Ledger) -> None:
    """One operation: the activity is running, the request started, its budget held, and all is told."""
    operation, fence = opening(add_key(ledger))
    opened = ledger.do(operation)
    assert opened.invocation_id == operation.start.id
    assert opened.held.total_tokens == 100
    # The least over the account and its ancestors, beside what this request holds.
    assert (opened.left[0], opened.left[3]) == (500, 9)
    assert opened.currency is None
    ledger.do(settle(fence, opened.invocation_id, 10, 5))
    ledger.end(fence)
    assert ledger.read(verify) == []


def test_a_refusal_leaves_nothing_behind(ledger: Ledger) -> None:
    """Neither the activity nor its attempt is there when the budget is refused."""
    key = add_key(ledger)
    before = tables(ledger)
    operation, _ = opening(key, 601)
    with pytest.raises(BudgetDenied):
        ledger.do(operation)
    assert changed(before, tables(ledger)) <= {"balances"}


def test_a_refusal_does_not_spoil_the_batch(ledger: Ledger) -> None:
    """What else is in the batch is recorded with it."""
    key = add_key(ledger)
    refused, _ = opening(key, 601)
    admitted, _ = opening(key, 100)
    first, second = ledger.do_all(refused, admitted)
    assert isinstance(first, BudgetDenied)
    assert second.held.total_tokens == 100


def test_what_is_admitted_together_stays_within_the_limit(ledger: Ledger) -> None:
    """In one batch each sees what those before it hold."""
    key = add_key(ledger)
    results = ledger.do_all(*[opening(key, 250)[0] for _ in range(4)])
    assert [isinstance(result, BudgetDenied) for result in results] == [False, False, True, True]


def test_an_identity_is_opened_once(ledger: Ledger) -> None:
    """Somebody else's activity is told from one's own, which may be recorded again."""
    key, who = add_key(ledger), identity(run_id="same")
    operation, _ = opening(key, who=who)
    first = ledger.do(operation)
    assert ledger.do(operation).invocation_id == first.invocation_id
    before = tables(ledger)
    with pytest.raises(IdentityTaken):
        ledger.do(opening(key, who=who)[0])
    assert changed(before, tables(ledger)) == set()


def test_a_revoked_key_opens_nothing(ledger: Ledger) -> None:
    """Also where it is revoked in the same breath; a second revocation changes nothing."""
    key = add_key(ledger)
    revoke = RevokeVirtualKey("tests", key.id, "ops", "it leaked")
    told = ledger.do(revoke)
    assert (told.revoked_by, told.revoked_because) == ("ops", "it leaked")
    again = ledger.do(RevokeVirtualKey("tests", key.id, "other", "again"))
    assert again == told
    before = tables(ledger)
    with pytest.raises(VirtualKeyRefused, match="revoked"):
        ledger.do(opening(key)[0])
    assert changed(before, tables(ledger)) == set()


def test_an_expired_key_opens_nothing(ledger: Ledger) -> None:
    """By the ledger's clock, to the microsecond."""
    key = add_key(ledger, expires_in_us=SECOND)
    ledger.now += SECOND - 1
    ledger.do(opening(key)[0])
    ledger.now += 1
    with pytest.raises(VirtualKeyRefused, match="expired"):
        ledger.do(opening(key)[0])
