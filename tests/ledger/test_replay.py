"""Reading back a replay key: its binding, its rounds in order, its effects, and nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from memoflow.errors import InvalidRequest
from memoflow.ledger import schema as s
from memoflow.ledger.activities import Fence
from memoflow.ledger.effects import BeginEffects, EffectResult, FinishEffects
from memoflow.ledger.invocations import TokenUse
from memoflow.ledger.outputs import OutputRow
from memoflow.ledger.replay import TurnRecord, read_turn
from memoflow.ledger.retention import PurgeExpired
from memoflow.periods import DAY_US
from tests.ledger._calls import (
    NAMESPACE,
    SECOND,
    Ledger,
    ask,
    bound,
    effect,
    identity,
    open_ledger,
    output,
    start,
)
from tests.ledger._tables import Statements, changed, tables


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A fresh ledger with one account on each kind of database."""
    with open_ledger(database_url) as opened:
        opened.put("acme")
        yield opened


@pytest.fixture
def fence(ledger: Ledger) -> Fence:
    """A running attempt."""
    return ledger.claim()


def read(ledger: Ledger, fence: Fence, key: str = "turn") -> TurnRecord | None:
    """What is recorded under a key."""
    return ledger.read(lambda connection: read_turn(connection, fence.activity_id, key))


def recorded(ledger: Ledger, fence: Fence, key: str = "turn") -> TurnRecord:
    """What is recorded under a key that was used."""
    found = read(ledger, fence, key)
    assert found is not None
    return found


def next_attempt(ledger: Ledger) -> Fence:
    """The attempt after this one died."""
    ledger.now += 3_600 * SECOND
    return ledger.claim()


def test_a_key_that_was_never_used_has_no_record(ledger: Ledger, fence: Fence) -> None:
    """Nor has any key of an activity that does not exist."""
    assert read(ledger, fence) is None
    assert read(ledger, replace(fence, activity_id="nobody")) is None


def test_a_record_names_what_its_key_is_bound_to(ledger: Ledger, fence: Fence) -> None:
    """From the first start on, before there is any reply."""
    binding = bound()
    id = ledger.start(fence, ask(), binding=binding)
    record = recorded(ledger, fence)
    assert (record.id, record.api) == (binding.turn_id, "openai/responses")
    assert (record.request_digest, record.executors_digest) == ("sha256:request", "sha256:executors")
    (only,) = record.rounds
    assert (only.id, only.attempt, only.round, only.state, only.reservation) == (id, 1, 0, "STARTED", "HELD")
    assert (only.reply, only.effects, only.response_digest) == (None, (), None)
    assert record.finished(0) is None


def test_a_finished_round_has_its_reply_and_its_figures(ledger: Ledger, fence: Fence) -> None:
    """What is needed to restore it without asking anybody."""
    id = ledger.start(fence, ask(), binding=bound(), input_basis="counted")
    use = TokenUse(3, 1, 0, 4, 2, 99)
    ledger.settle(fence, id, 3, 4, usage=use, outputs=(output(id, "reply"), output(id, "response_id")))
    round = recorded(ledger, fence).finished(0)
    assert round is not None
    assert (round.state, round.reason, round.reservation) == ("SUCCEEDED", None, "SETTLED")
    assert (round.finish_reason, round.input_basis) == ("stop", "counted")
    assert (round.input_tokens, round.output_tokens, round.cost) == (3, 4, 99)
    assert round.response_digest == "sha256:reply"
    assert round.reply == OutputRow(id, "reply", "sha256:binding", "k1", b"nonce", b"ciphertext")


def test_rounds_come_in_order_with_all_their_tries(ledger: Ledger, fence: Fence) -> None:
    """Failed and unknown tries stand beside the one that succeeded, which is the round's record."""
    lost = ledger.start(fence, ask(), binding=bound())
    ledger.lose_reply(fence, lost)
    done = ledger.start(fence, ask(), binding=bound())
    ledger.settle(fence, done)
    second = ledger.start(fence, ask(), binding=bound(), round=1)
    again = next_attempt(ledger)
    third = ledger.start(again, ask(), binding=bound(), round=1)
    record = recorded(ledger, again)
    assert [(r.round, r.id, r.state, r.reservation, r.attempt) for r in record.rounds] == [
        (0, lost, "OUTCOME_UNKNOWN", "RECONCILE", 1),
        (0, done, "SUCCEEDED", "SETTLED", 1),
        (1, second, "OUTCOME_UNKNOWN", "RECONCILE", 1),
        (1, third, "STARTED", "HELD", 2),
    ]
    assert [r.reason for r in record.rounds] == ["READ_TIMEOUT", None, "ATTEMPT_LOST", None]
    finished = [record.finished(number) for number in range(3)]
    assert [None if r is None else r.id for r in finished] == [done, None, None]


def test_effects_come_in_order_with_all_their_executions(ledger: Ledger, fence: Fence) -> None:
    """By call, then by execution, each with its own result; the provider's own are not among them."""
    id = ledger.start(fence, ask(), binding=bound())
    calls = [effect(id, i, effect_class="idempotent") for i in (1, 0)]
    hosted = effect(id, -1, kind="hosted", state="PROVIDER_SIDE", idempotency_key=None)
    ledger.settle(fence, id, effects=(*calls, hosted), outputs=(output(id, "reply"),))
    result = EffectResult(calls[0].id, "DONE", None, "sha256:r", 7, None, output(calls[0].id, "result"))
    ledger.do(FinishEffects(fence, (result,)))
    again = next_attempt(ledger)
    successor = replace(effect(id, 0, effect_class="idempotent"), execution=2, supersedes=calls[1].id)
    ledger.do(BeginEffects(again, (successor,)))
    (round,) = recorded(ledger, again).rounds
    assert [(e.id, e.ordinal, e.execution, e.state, e.attempt) for e in round.effects] == [
        (calls[1].id, 0, 1, "SUPERSEDED", 1),
        (successor.id, 0, 2, "STARTED", 2),
        (calls[0].id, 1, 1, "DONE", 1),
    ]
    last = round.effects[-1]
    assert (last.tool_namespace, last.tool_name, last.tool_version) == ("", "refund", "v1")
    assert (last.effect_class, last.idempotency_key) == ("idempotent", calls[0].idempotency_key)
    assert (last.arguments_digest, last.result_digest) == ("sha256:arguments", "sha256:r")
    assert last.result == OutputRow(last.id, "result", "sha256:binding", "k1", b"nonce", b"ciphertext")
    assert [e.result for e in round.effects[:-1]] == [None, None]
    assert round.effects[0].reason == "ATTEMPT_LOST"


def test_records_of_other_keys_and_activities_are_not_seen(ledger: Ledger, fence: Fence) -> None:
    """A key means something in its activity alone; invocations without a key belong to none."""
    mine = ledger.start(fence, ask(), binding=bound("mine"))
    ledger.settle(fence, mine, effects=(effect(mine),))
    ledger.start(fence, ask(), binding=bound("other"))
    ledger.start(fence, ask())
    stranger = ledger.claim(identity("stranger"))
    ledger.start(stranger, ask(), binding=bound("mine"))
    assert [r.id for r in recorded(ledger, fence, "mine").rounds] == [mine]
    assert [len(r.effects) for r in recorded(ledger, fence, "mine").rounds] == [1]
    assert mine not in [r.id for r in recorded(ledger, stranger, "mine").rounds]
    assert len(recorded(ledger, stranger, "mine").rounds) == 1
    assert read(ledger, stranger, "other") is None


def test_a_purged_reply_is_still_a_record(ledger: Ledger, fence: Fence) -> None:
    """The round stays finished; its value is gone, and says so."""
    id = ledger.start(fence, ask(), binding=bound())
    ledger.settle(fence, id, outputs=(replace(output(id, "reply"), retain_us=DAY_US),))
    ledger.now += DAY_US
    assert ledger.do(PurgeExpired(NAMESPACE)) == 1
    round = recorded(ledger, fence).finished(0)
    assert round is not None
    assert round.reply is not None
    assert (round.reply.nonce, round.reply.ciphertext) == (None, None)
    assert round.response_digest == "sha256:reply"


def test_reading_a_record_takes_a_few_statements_and_changes_nothing(ledger: Ledger, fence: Fence) -> None:
    """Restoring reserves nothing and charges nothing, and costs the same however long the loop was."""
    for number in range(12):
        id = ledger.start(fence, ask(), binding=bound(), round=number)
        ledger.settle(fence, id, effects=(effect(id),), outputs=(output(id, "reply"),))
    before = tables(ledger)
    statements = Statements(ledger)
    assert len(recorded(ledger, fence).rounds) == 12
    made = [text for text in statements.take() if not text.startswith("BEGIN")]
    assert len(made) == 3
    assert all(text.lstrip().startswith("SELECT") for text in made)
    assert changed(before, tables(ledger)) == set()
    assert len(ledger.rows(s.journal)) == 24


def test_protected_values_are_not_shown(ledger: Ledger, fence: Fence) -> None:
    """A record in a log names states and digests, and repeats no value, not even a sealed one."""
    id = ledger.start(fence, ask(), binding=bound())
    new = effect(id)
    ledger.settle(fence, id, outputs=(output(id, "reply"),), effects=(new,))
    ledger.do(
        FinishEffects(fence, (EffectResult(new.id, "DONE", None, "d", 1, None, output(new.id, "result")),))
    )
    assert "ciphertext" not in repr(recorded(ledger, fence))


def test_a_key_that_is_expected_to_be_new_is_bound_once(ledger: Ledger, fence: Fence) -> None:
    """Who looked for nothing under it is refused once something is there, with nothing reserved."""
    first = start(fence, ask(total_tokens=70), binding=bound("key"), expects_new=True)
    ledger.do(first)
    before = tables(ledger)
    (error,) = ledger.do_all(start(fence, ask(total_tokens=70), binding=bound("key"), expects_new=True))
    assert isinstance(error, InvalidRequest)
    assert "'key'" in str(error)
    assert "nothing was reserved or sent" in str(error)
    assert changed(before, tables(ledger)) <= {"writers"}
    again = ledger.do(first)
    assert (again.invocation_id, again.turn_id) == (first.id, ledger.rows(s.turns)[0].id)
    ledger.start(fence, ask(total_tokens=70), binding=bound("key"), round=1)
