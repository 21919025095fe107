"""Records that are gone are never made again, and unknown outcomes block where they are to."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select, update

from memoflow import (
    Budget,
    KeyRing,
    OutcomeUnknown,
    ResultNotRetained,
)
from memoflow.ledger import schema as s
from memoflow.ledger.outputs import purge_expired
from memoflow.testing import (
    call,
    calls,
    missing_usage,
    read_timeout,
    reset_mid_body,
    status,
    text,
)
from tests.turn._asks import loop, run, stream
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld, World

KINDS = {"whole": run, "streamed": stream}
FAR = 10**18  # microseconds: long after anything expires


def purge(w: World) -> None:
    """Erase every protected value of the namespace."""
    with w.rt.ledger.database.write() as connection:
        assert purge_expired(connection, w.rt.namespace, FAR) > 0


# What is gone


@pytest.mark.parametrize("kind", KINDS)
def test_a_purged_reply_is_reported_and_never_asked_for_again(world: MakeWorld, kind: str) -> None:
    """The digest is still there; the reply is not."""
    w = world(text("Hello."), text("never"))
    w.ask(KINDS[kind]())
    purge(w)
    for _ in range(2):
        error = w.ask(KINDS[kind]()).raised(ResultNotRetained)
        assert error.digest == w.invocation.response_digest
    assert (w.sent, len(w.invocations())) == (1, 1)


def test_a_purged_tool_result_is_reported_and_the_tool_not_run_again(world: MakeWorld) -> None:
    """A reply that is still there does not make up for the result."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), status(500), text("never"))
    w.ask(loop(bench.make("f", effect="idempotent"))).raised(OutcomeUnknown)
    o = s.outputs.c
    with w.rt.ledger.database.write() as connection:
        mine = (o.namespace == w.rt.namespace, o.kind == "result")
        connection.execute(update(s.outputs).where(*mine).values(nonce=None, ciphertext=None, purged_at=1))
    error = w.ask(loop(bench.make("f", effect="idempotent"))).raised(ResultNotRetained)
    assert error.digest == w.effects()[0].result_digest
    assert (len(bench.ran), w.sent) == (1, 2)


def test_records_stay_readable_when_keys_rotate(world: MakeWorld) -> None:
    """A ring with a new first key and the old one behind it reads both; the new one seals."""
    w = world(text("a"), text("b"))
    w.ask(run(replay_key="a"))
    new = KeyRing([("k2", b"2" * 32), ("k1", b"1" * 32)])
    rotated = w.again(keys=new)
    assert rotated.ask(run(replay_key="a"), run(replay_key="b")).results[0].restored
    mine = select(s.outputs.c.key_id).where(s.outputs.c.namespace == w.rt.namespace)
    assert set(w.read(lambda c: c.scalars(mine).all())) == {"k1", "k2"}
    assert rotated.ask(run(replay_key="a"), run(replay_key="b")).error is None
    assert w.sent == 2


def test_a_record_whose_key_is_gone_is_not_retained(world: MakeWorld) -> None:
    """The error names the missing key; nothing is asked for again."""
    w = world(text("a"), text("never"))
    w.ask(run())
    error = w.again(keys=KeyRing([("k2", b"2" * 32)])).ask(run()).raised(ResultNotRetained)
    assert "'k1'" in error.reason
    assert "add key 'k1' to MEMOFLOW_OUTPUT_KEYS" in str(error)
    assert w.sent == 1


@pytest.mark.parametrize("change", [{"key_id": "k1", "ciphertext": b"x" * 60}, {"nonce": b"0" * 12}])
def test_an_altered_record_is_not_retained(make_world: MakeWorld, change: dict[str, Any]) -> None:
    """What does not decrypt under its identity and place is not used."""
    w = make_world("sync", text("a"), text("never"))
    w.ask(run())
    with w.rt.ledger.database.write() as connection:
        where = s.outputs.c.namespace == w.rt.namespace
        connection.execute(update(s.outputs).where(where).values(**change))
    w.ask(run()).raised(ResultNotRetained)
    assert w.sent == 1


# Unknown outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_outcome_does_not_block_a_retry(world: MakeWorld, kind: str) -> None:
    """The old hold stays, and a new reservation must be admitted beside it."""
    w = world(read_timeout(), text("Hello."), limits=Budget(total_tokens=39_999))
    w.ask(KINDS[kind]()).raised(OutcomeUnknown)
    assert w.ask(KINDS[kind]()).error is not None
    w.rt.budgets.put("acme", Budget(total_tokens=40_000))
    assert w.ask(KINDS[kind]()).result.response.output_text == "Hello."
    assert w.balance()[2].total_tokens == 20_000
    assert [i.state for i in w.invocations()] == ["OUTCOME_UNKNOWN", "SUCCEEDED"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_outcome_blocks_where_it_is_to(world: MakeWorld, kind: str) -> None:
    """Until somebody decides; then the call goes on, without the old hold."""
    w = world(reset_mid_body(), text("Hello."))
    w.ask(KINDS[kind]()).raised(OutcomeUnknown)
    blocked = KINDS[kind](on_unknown="block")
    error = w.ask(blocked).raised(OutcomeUnknown)
    assert (error.kind, error.id, error.reason) == ("invocation", w.invocation.id, "CONNECTION_RESET")
    assert (w.sent, len(w.invocations())) == (1, 1)
    w.rt.reconcile.release(error.id, actor="ops", reason="not in the provider's log", evidence="log")
    assert w.ask(blocked).result.response.output_text == "Hello."
    assert w.balance()[2].total_tokens == 0


def test_an_unknown_outcome_of_another_key_does_not_block(world: MakeWorld) -> None:
    """It is the place that is blocked, not the activity."""
    w = world(read_timeout(), text("Hello."))
    w.ask(run(replay_key="a")).raised(OutcomeUnknown)
    assert w.ask(run(replay_key="b", on_unknown="block")).error is None


def test_a_missing_usage_does_not_block(world: MakeWorld) -> None:
    """The reply is there; only what it cost is unknown."""
    w = world(missing_usage(text("Hello.")))
    w.ask(run())
    assert w.ask(run(on_unknown="block")).result.restored


def test_a_second_round_blocks_too(world: MakeWorld) -> None:
    """Every place of a loop counts: the round that finished is restored, the unknown one blocks."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), read_timeout(), text("Done."))
    w.ask(loop(bench.make("f"))).raised(OutcomeUnknown)
    w.ask(loop(bench.make("f"), on_unknown="block")).raised(OutcomeUnknown)
    assert (len(bench.ran), w.sent) == (1, 2)
