"""Reads for people: filters, pages, the queue of unknowns, and what is known about each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from memoflow.budget import Amounts, Budget, Money
from memoflow.errors import InvalidRequest, LeaseLost
from memoflow.ledger import schema as s
from memoflow.ledger.effects import EffectResult, FinishEffects
from memoflow.ledger.invocations import KeepResponseId
from memoflow.ledger.queries import (
    EffectInfo,
    Filter,
    InvocationInfo,
    find_effect,
    find_invocation,
    list_effects,
    list_invocations,
)
from memoflow.ledger.runs import list_activities, list_runs
from memoflow.ledger.unknowns import (
    exposures,
    list_evidence,
    read_subject,
    unknown_effects,
    unknown_invocations,
)
from tests.ledger._calls import (
    LEASE,
    NAMESPACE,
    SECOND,
    START,
    Ledger,
    ask,
    bound,
    effect,
    identity,
    open_ledger,
    output,
)


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A ledger with a small tree of accounts."""
    with open_ledger(database_url) as opened:
        opened.put("acme", Budget(total_tokens=1_000, cost=Money.of(1, "USD")))
        opened.put("acme/sub")
        opened.put("plain")
        yield opened


def invocations(ledger: Ledger, **only: Any) -> list[InvocationInfo]:
    """Invocations that a filter lets through."""
    return list(ledger.read(lambda c: list_invocations(c, NAMESPACE, Filter(**only))).items)


def effects(ledger: Ledger, **only: Any) -> list[EffectInfo]:
    """Effects that a filter lets through."""
    return list(ledger.read(lambda c: list_effects(c, NAMESPACE, Filter(**only))).items)


def test_an_invocation_is_read_with_its_reservation(ledger: Ledger) -> None:
    """One record: identity, figures, accounts, currency, what was held and what was charged."""
    fence = ledger.claim()
    id = ledger.start(fence, ask(total_tokens=50, cost=7), "acme/sub", "plain", binding=bound("key"), round=2)
    held = ledger.read(lambda c: find_invocation(c, NAMESPACE, id))
    assert held is not None
    assert (held.state, held.reservation_state, held.actual, held.resolved_at) == (
        "STARTED",
        "HELD",
        None,
        None,
    )
    assert (held.accounts, held.currency) == (("acme/sub", "plain"), "USD")
    assert (held.replay_key, held.round, held.attempt) == ("key", 2, 1)
    ledger.settle(fence, id, 10, 15)
    done = ledger.read(lambda c: find_invocation(c, NAMESPACE, id))
    assert done is not None
    assert (done.reserved, done.actual) == (
        Amounts(total_tokens=50, model_calls=1, cost=7),
        Amounts(25, 10, 15, 1),
    )
    assert (done.input_tokens, done.output_tokens) == (10, 15)


def test_a_call_that_no_account_counts_in_money_has_no_currency(ledger: Ledger) -> None:
    """Rather than a guessed one."""
    id = ledger.start(ledger.claim(), ask(), "plain")
    [info] = invocations(ledger)
    assert (info.id, info.currency) == (id, None)


def test_filters_are_joined_by_and(ledger: Ledger) -> None:
    """Each narrows; none matters when it is left out."""
    fence = ledger.claim()
    first = ledger.start(fence, ask(), "acme/sub", model="model-2")
    ledger.now += SECOND
    second = ledger.start(fence, ask(), "plain")
    ledger.lose_reply(fence, second)
    ledger.now += SECOND
    third = ledger.start(ledger.claim(identity("other", run_id="run-2")), ask(), "acme")

    def ids(**only: Any) -> list[str]:
        return [info.id for info in invocations(ledger, **only)]

    assert ids() == [third, second, first]
    assert ids(state="STARTED") == [third, first]
    assert ids(state="OUTCOME_UNKNOWN", model="model-1") == [second]
    assert ids(model="model-2") == [first]
    assert ids(run_id="run-1") == [second, first]
    assert ids(activity_id="other") == [third]
    assert ids(workflow_id="workflow-2") == []
    assert ids(since=START + SECOND) == [third, second]
    assert ids(until=START + SECOND) == [first]
    assert ids(since=START + SECOND, until=START + 2 * SECOND) == [second]
    assert ids(invocation_id=second) == [second]


def test_an_account_is_found_whole_and_by_branch(ledger: Ledger) -> None:
    """Not by a part of its name, not in another case, and in every place of the list."""
    ledger.put("a%b")
    ledger.put("acme/sub/x")
    fence = ledger.claim()
    both = ledger.start(fence, ask(), "plain", "acme/sub/x")
    odd = ledger.start(fence, ask(), "a%b")

    def ids(account: str) -> list[str]:
        return [info.id for info in invocations(ledger, account=account)]

    assert ids("acme") == ids("acme/sub") == ids("acme/sub/x") == ids("plain") == [both]
    assert ids("a%b") == [odd]
    assert ids("acm") == ids("sub") == ids("ACME") == ids("a_b") == ids("acme/su") == []


def test_pages_cover_everything_once(ledger: Ledger) -> None:
    """The cursor of the last page is None, also when it is exactly full."""
    fence = ledger.claim()
    ids = [ledger.start(fence, ask(), "plain") for _ in range(6)]
    seen: list[str] = []
    after = None
    for expected in (2, 2, 2):
        only = Filter(limit=2, after=after)
        page = ledger.read(lambda c, only=only: list_invocations(c, NAMESPACE, only))
        assert len(page.items) == expected
        seen.extend(item.id for item in page.items)
        after = page.next
    assert after is None
    assert seen == ids[::-1]


@pytest.mark.parametrize("limit", [0, 1001, -1])
def test_a_page_has_a_sensible_size(limit: int) -> None:
    """Nobody reads the whole table by accident."""
    with pytest.raises(InvalidRequest):
        Filter(limit=limit)


def test_effects_are_read_and_filtered(ledger: Ledger) -> None:
    """By state, tool, invocation and model."""
    fence = ledger.claim()
    id = ledger.start(fence, ask(), "plain", model="model-2", round=3)
    refund, lookup = effect(id, 0), effect(id, 1, tool_name="lookup", effect_class="read_only")
    ledger.settle(fence, id, 1, 1, effects=(refund, lookup))
    ledger.do(FinishEffects(fence, (EffectResult(lookup.id, "DONE", result_digest="sha256:r"),)))
    assert [one.id for one in effects(ledger)] == [lookup.id, refund.id]
    assert [one.id for one in effects(ledger, state="DONE")] == [lookup.id]
    assert [one.id for one in effects(ledger, tool="refund", invocation_id=id, model="model-2")] == [
        refund.id
    ]
    assert effects(ledger, invocation_id="other") == effects(ledger, model="model-1") == []
    info = ledger.read(lambda c: find_effect(c, NAMESPACE, refund.id))
    assert info is not None
    assert (info.round, info.ordinal, info.activity_id, info.invocation_id) == (3, 0, "answer", id)


def test_nothing_is_read_across_namespaces(ledger: Ledger) -> None:
    """Every read is of one tenant."""
    fence = ledger.claim()
    id = ledger.start(fence, ask(), "plain")
    new = effect(id)
    ledger.settle(fence, id, 1, 1, effects=(new,))
    ledger.lose_reply(fence, ledger.start(fence, ask(), "plain"))
    ledger.end(fence)

    def other(query: Any, *arguments: Any) -> Any:
        return ledger.read(lambda c: query(c, "other", *arguments))

    assert other(find_invocation, id) is other(find_effect, new.id) is other(read_subject, id) is None
    assert other(list_invocations, Filter()).items == other(list_effects, Filter()).items == ()
    assert other(list_runs, Filter()).items == ()
    assert other(list_activities, "workflow-1", "run-1", ledger.now) == []
    assert other(unknown_invocations, ledger.now) == other(unknown_effects, ledger.now) == []
    assert other(exposures, ledger.now) == []


# Runs


def test_runs_are_summed_up(ledger: Ledger) -> None:
    """Newest first, with how far their activities are."""
    ledger.end(ledger.claim())
    ledger.now += SECOND
    ledger.claim()
    ledger.claim(identity("second"))
    ledger.claim(identity("x", run_id="run-2"))
    first, second = ledger.read(lambda c: list_runs(c, NAMESPACE, Filter())).items
    assert (first.run_id, first.activities, first.attempts) == ("run-2", 1, 1)
    assert (second.run_id, second.activities, second.completed, second.running, second.attempts) == (
        *("run-1", 2, 0, 2, 3),
    )
    assert (second.created_at, second.last_created_at) == (START, START + SECOND)
    page = ledger.read(lambda c: list_runs(c, NAMESPACE, Filter(limit=1)))
    rest = ledger.read(lambda c: list_runs(c, NAMESPACE, Filter(limit=1, after=page.next)))
    assert ([run.run_id for run in rest.items], rest.next) == (["run-1"], None)
    assert ledger.read(lambda c: list_runs(c, NAMESPACE, Filter(state="FREE"))).items == ()
    since = ledger.read(lambda c: list_runs(c, NAMESPACE, Filter(since=START + SECOND))).items
    until = ledger.read(lambda c: list_runs(c, NAMESPACE, Filter(until=START + SECOND))).items
    assert ([run.run_id for run in since], [run.run_id for run in until]) == (["run-2"], ["run-1"])


def test_an_activity_is_read_with_its_attempts(ledger: Ledger) -> None:
    """Also whether the lease of the running one is over."""
    ledger.end(ledger.claim())
    ledger.claim()
    [activity] = ledger.read(lambda c: list_activities(c, NAMESPACE, "workflow-1", "run-1", ledger.now))
    assert [(one.number, one.state, one.error_type) for one in activity.attempts] == [
        (1, "FAILED", "OutcomeUnknown"),
        (2, "RUNNING", None),
    ]
    assert not activity.lease_over
    late = ledger.now + LEASE
    [activity] = ledger.read(lambda c: list_activities(c, NAMESPACE, "workflow-1", "run-1", late))
    assert activity.lease_over


# The queue


def test_the_queue_has_unknowns_oldest_first(ledger: Ledger) -> None:
    """What is decided or still running is not in it."""
    fence = ledger.claim()
    older = ledger.start(fence, ask(total_tokens=5), "acme")
    ledger.lose_reply(fence, older)
    ledger.now += SECOND
    usage_missing = ledger.start(fence, ask(total_tokens=7), "acme/sub", "plain")
    ledger.settle(
        fence, usage_missing, resolution="unknown", reason="USAGE_MISSING", usage=None, actual=Amounts()
    )
    ledger.start(fence, ask(), "acme")
    ledger.settle(fence, ledger.start(fence, ask(), "acme"), 1, 1)
    found = ledger.read(lambda c: unknown_invocations(c, NAMESPACE, ledger.now))
    assert [info.id for info in found] == [older, usage_missing]
    early = ledger.read(lambda c: unknown_invocations(c, NAMESPACE, ledger.now, until=START + SECOND))
    assert [info.id for info in early] == [older]


def test_exposure_is_counted_on_the_whole_branch(ledger: Ledger) -> None:
    """As the hold itself is: once on each account it touches."""
    for wanted, accounts in ((5, ("acme",)), (7, ("acme/sub", "plain")), (11, ("acme/sub", "acme"))):
        ledger.unknown(ask(total_tokens=wanted), *accounts, who=identity(f"a{wanted}"))
    found = ledger.read(lambda c: exposures(c, NAMESPACE, ledger.now))
    assert [(one.account, one.invocations, one.amounts.total_tokens, one.currency) for one in found] == [
        ("acme", 3, 23, "USD"),
        ("acme/sub", 2, 18, "USD"),
        ("plain", 1, 7, None),
    ]
    for one in found:
        assert one.amounts == ledger.account(one.account).unknown


def test_what_a_lost_attempt_left_open_is_in_the_queue(ledger: Ledger) -> None:
    """From the moment its lease is over, or its attempt has ended; reads leave nothing to decide."""
    fence = ledger.claim()
    call = ledger.start(fence, ask(total_tokens=5), "plain")
    done = ledger.start(fence, ask(), "plain")
    tool, read = effect(done, 0), effect(done, 1, effect_class="read_only")
    ledger.settle(fence, done, 1, 1, effects=(tool, read))

    def queue(now: int) -> tuple[list[str], list[str], int]:
        def query(c: Any) -> tuple[list[str], list[str], int]:
            calls = [one.id for one in unknown_invocations(c, NAMESPACE, now)]
            tools = [one.id for one in unknown_effects(c, NAMESPACE, now)]
            return calls, tools, len(exposures(c, NAMESPACE, now))

        return ledger.read(query)

    assert queue(ledger.now) == ([], [], 0)
    assert queue(ledger.now + LEASE - 1) == ([], [], 0)
    assert queue(ledger.now + LEASE) == ([call], [tool.id], 1)
    ledger.end(fence)
    assert queue(ledger.now) == ([call], [tool.id], 1)


def test_a_kept_response_id_makes_an_invocation_retrievable(ledger: Ledger) -> None:
    """Until it is purged."""
    fence = ledger.claim()
    id = ledger.start(fence, ask(), "plain")
    assert not invocations(ledger)[0].retrievable
    ledger.do(KeepResponseId(fence, output(id, "response_id")))
    assert invocations(ledger)[0].retrievable
    [row] = ledger.rows(s.outputs)
    with ledger.database.write() as connection:
        connection.execute(
            s.outputs.update()
            .where(s.outputs.c.owner_id == row.owner_id)
            .values(nonce=None, ciphertext=None, purged_at=ledger.now)
        )
    assert not invocations(ledger)[0].retrievable


def test_a_late_write_is_kept_as_evidence(ledger: Ledger) -> None:
    """What a lost attempt wanted to say: figures and digests, no payload."""
    fence = ledger.claim()
    id = ledger.start(fence, ask(), "plain")
    ledger.now += LEASE
    ledger.claim()
    with pytest.raises(LeaseLost):
        ledger.settle(fence, id, 12, 8)
    [late] = ledger.read(lambda c: list_evidence(c, NAMESPACE, id))
    assert (
        late.attempt,
        late.event,
        late.state,
        late.input_tokens,
        late.output_tokens,
        late.digest,
        late.at,
    ) == (*(1, "settle", "SUCCEEDED", 12, 8, "sha256:reply", ledger.now),)
    assert ledger.read(lambda c: list_evidence(c, "other", id)) == []


def test_a_subject_says_where_a_reply_belongs(ledger: Ledger) -> None:
    """Identity, turn and round, and the currency of the accounts."""
    fence = ledger.claim()
    placed = ledger.start(fence, ask(), "acme/sub", binding=bound("key"), round=1)
    loose = ledger.start(fence, ask(), "plain")
    subject = ledger.read(lambda c: read_subject(c, NAMESPACE, placed))
    assert subject is not None
    assert (subject.identity, subject.activity_key) == (identity(), fence.activity_id)
    assert (subject.replay_key, subject.round, subject.request_digest) == ("key", 1, "sha256:request")
    assert subject.currencies == {"USD"}
    other = ledger.read(lambda c: read_subject(c, NAMESPACE, loose))
    assert other is not None
    assert (other.replay_key, other.request_digest, other.currencies) == (None, None, frozenset())
