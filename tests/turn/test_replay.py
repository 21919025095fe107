"""Recorded rounds are restored: for nothing, to the same caller only, and never as something else."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from openai.types.responses import Response, ResponseCompletedEvent, ResponseIncompleteEvent
from sqlalchemy import select, update

from memoflow import (
    Budget,
    InvalidRequest,
    KeyRing,
    OutcomeUnknown,
    ReplayMismatch,
    ResultNotRetained,
    ToolVersionMismatch,
)
from memoflow.ledger import schema as s
from memoflow.ledger.outputs import purge_expired
from memoflow.providers.openai_responses import OpenAIResponsesCodec
from memoflow.testing import (
    Held,
    call,
    calls,
    hold,
    incomplete,
    missing_usage,
    read_timeout,
    reset_mid_body,
    status,
    text,
    usage,
)
from tests.turn._asks import REQUEST, loop, run, stream
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld, World

KINDS = {"whole": run, "streamed": stream}
FAR = 10**18  # microseconds: long after anything expires


def dump(response: Any) -> Any:
    """Everything in an SDK object."""
    return response.model_dump(warnings=False)


def purge(w: World) -> None:
    """Erase every protected value of the namespace."""
    with w.rt.ledger.database.write() as connection:
        assert purge_expired(connection, w.rt.namespace, FAR) > 0


# Restoring


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_call_equals_the_live_one_and_is_free(world: MakeWorld, kind: str) -> None:
    """The same response, nothing reserved, nobody called, nothing charged, and no commit for it."""
    w = world(text("Hello.", thought="Hm.", usage=usage(10, 7, reasoning=2)))
    live = w.ask(KINDS[kind]()).result
    before, batches = w.balance(), w.batches()
    restored = w.ask(KINDS[kind]()).result
    assert dump(restored.response) == dump(live.response)
    assert (live.restored, restored.restored) == (False, True)
    (record,) = restored.invocations
    assert (record.id, record.restored) == (live.invocations[0].id, True)
    assert (record.input_tokens, record.output_tokens, record.input_basis) == (10, 7, "bound")
    assert (w.sent, w.balance(), len(w.invocations())) == (1, before, 1)
    assert w.batches() == batches + 2  # the attempt's own claim and end


@pytest.mark.parametrize("kind", KINDS)
def test_restored_objects_are_fresh_and_the_sdks_own(world: MakeWorld, kind: str) -> None:
    """What a caller does to one result is not seen in another."""
    w = world(text("Hello."))
    first = w.ask(KINDS[kind](), KINDS[kind]()).results
    for result in first:
        assert type(result.response) is Response
        assert result.response.output_text == "Hello."
        result.response.output.clear()
        result.response.metadata = {"changed": "yes"}
    assert w.ask(KINDS[kind]()).result.response.output_text == "Hello."


def test_a_restored_stream_yields_its_terminal_event(world: MakeWorld) -> None:
    """One event of the SDK's own type, with the recorded response in it."""
    w = world(text("Hello."), incomplete("Hel"))
    keys = {"a": ResponseCompletedEvent, "b": ResponseIncompleteEvent}
    live = [w.ask(stream(replay_key=key)).events[-1] for key in keys]
    for before, (key, kind) in zip(live, keys.items(), strict=True):
        (event,) = w.ask(stream(replay_key=key)).events
        assert type(event) is type(before) is kind
        assert event.type == before.type
        assert type(event.response) is Response
        assert dump(event.response) == dump(before.response)


def test_a_restored_loop_yields_one_event_a_round(world: MakeWorld) -> None:
    """Consumers that look at terminal events see every round of a restored stream."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), calls(call("f", {"n": 2})), status(500), text("Done."))
    asks = [stream(bench.make("f"))] * 2
    w.ask(asks[0]).raised(OutcomeUnknown)
    got = w.ask(asks[1])
    kinds = [event.type for event in got.events]
    assert kinds[:2] == ["response.completed"] * 2
    assert kinds[2] == "response.created"
    assert [event.response.output[0].type for event in got.events[:2]] == ["function_call"] * 2
    assert len(bench.ran) == 2


@pytest.mark.parametrize(("first", "second"), [(run, stream), (stream, run)])
def test_streaming_is_not_part_of_what_a_key_stands_for(world: MakeWorld, first: Any, second: Any) -> None:
    """A call recorded whole is restored as a stream, and the other way round."""
    w = world(text("Hello."))
    live = w.ask(first()).result
    assert dump(w.ask(second()).result.response) == dump(live.response)
    assert w.sent == 1


@pytest.mark.parametrize(
    "options",
    [
        {"budget": Budget(total_tokens=900)},
        {"budget": None},
        {"timeout": 5.0},
        {"metadata": {"a": 1}},
        {"strict_outcomes": True},
        {"input_tokens": 7},
        {"output_cap": "caller"},
        {"account": "nowhere"},
    ],
)
def test_terms_are_not_part_of_what_a_key_stands_for(world: MakeWorld, options: dict[str, Any]) -> None:
    """Budgets, limits and the like may differ on a retry; restoring takes none of them."""
    w = world(text("Hello."))
    w.ask(run())
    assert w.ask(run(**options)).result.restored


def test_every_finished_round_is_restored_and_the_first_open_one_is_asked_again(world: MakeWorld) -> None:
    """A retry continues where the record ends; tools that finished do not run again."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), calls(call("f", {"n": 2})), status(503), text("Done."))
    w.ask(loop(bench.make("f"))).raised(OutcomeUnknown)
    first_body = w.provider.requests[2].json
    got = w.ask(loop(bench.make("f"))).result
    assert [i.restored for i in got.invocations] == [True, True, False]
    assert [(r.restored, r.state) for r in got.tool_results] == [(True, "DONE")] * 2
    assert bench.ran == [("f", 1), ("f", 2)]
    assert w.sent == 4
    assert w.provider.requests[3].json == first_body


def test_results_of_tools_are_restored_verbatim(world: MakeWorld) -> None:
    """The model is told the same on a retry: text is text, data is the same JSON, refusals are the same."""
    bench = Bench()
    replies = {1: "plain text \u2713 \0", 2: {"z": 1, "a": [0.1, None]}, 3: None}
    script = [calls(*[call("f", {"n": n}) for n in replies], call("f", "bad"), call("g", "{}")), status(500)]
    w = world(*script, text("Done."))
    tools = [bench.make("f", lambda n: replies[n]), bench.declining("decline")]
    w.ask(loop(*tools)).raised(OutcomeUnknown)
    assert w.ask(loop(*tools)).result.restored is False
    live, again = [w.provider.requests[i].json["input"][1:] for i in (1, 2)]
    assert live == again
    outputs = [item["output"] for item in live if item["type"] == "function_call_output"]
    assert outputs[:3] == ["plain text \u2713 \0", '{"z":1,"a":[0.1,null]}', "null"]
    assert len(bench.ran) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_key_twice_in_one_attempt_restores(world: MakeWorld, kind: str) -> None:
    """One after the other, the second call is the record of the first."""
    w = world(text("Hello."))
    first, second = w.ask(KINDS[kind](), KINDS[kind]()).results
    assert (first.restored, second.restored) == (False, True)
    assert w.sent == 1


def test_without_a_key_nothing_is_restored(world: MakeWorld) -> None:
    """Two calls without a key are two calls, and so are those of a retry."""
    w = world(text("a"), text("b"), text("c"))
    w.ask(run(replay_key=None), run(replay_key=None))
    assert w.ask(run(replay_key=None)).result.response.output_text == "c"
    assert [i.replay_key for i in w.invocations()] == [None] * 3
    assert w.count(s.turns) == 0


@pytest.mark.parametrize("other", [{"run": "other"}, {"activity": "other"}])
def test_a_record_belongs_to_its_activity(world: MakeWorld, other: dict[str, Any]) -> None:
    """Another run or another activity with the same key and request has no part in it."""
    w = world(text("mine"), text("theirs"))
    w.ask(run())
    assert w.ask(run(), **other).result.response.output_text == "theirs"
    assert w.ask(run()).result.response.output_text == "mine"


def test_a_refusal_and_a_cut_off_reply_are_records_too(world: MakeWorld) -> None:
    """They are successes and paid for: they are never asked for again by a retry."""
    w = world(incomplete("Hel"))
    first = w.ask(run()).result
    assert first.finish_reason == w.ask(run()).result.finish_reason == "length"
    assert w.sent == 1


# Mismatches


@pytest.mark.parametrize(
    "changed", [{"input": "Bye"}, {"model": "gpt-other"}, {"temperature": 0}, {"max_output_tokens": 30}]
)
@pytest.mark.parametrize("kind", KINDS)
def test_another_request_under_a_key_is_refused(world: MakeWorld, kind: str, changed: dict[str, Any]) -> None:
    """Named by component and digests; nothing is reserved or sent, in the same attempt or later."""
    w = world(text("Hello."))
    error = w.ask(KINDS[kind](), KINDS[kind](request=changed)).raised(ReplayMismatch)
    assert (error.replay_key, error.component) == ("k", "request")
    assert error.recorded != error.given
    assert error.recorded.startswith(error.given[:7])
    before = w.balance()
    w.ask(KINDS[kind](request=changed)).raised(ReplayMismatch)
    assert (w.sent, w.balance(), len(w.invocations())) == (1, before, 1)
    assert w.ask(KINDS[kind]()).result.restored


def test_other_executors_under_a_key_are_refused(world: MakeWorld) -> None:
    """Executors are known by namespace, name and version; their order does not matter."""
    own = {"tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]}
    w, bench = world(text("Hello.")), Bench()
    f, g = bench.make("f"), bench.make("g")
    w.ask(loop(f, g, request=own))
    for tools in (
        [f],
        [f, g, bench.make("h")],
        [f, bench.make("g", version="v2")],
        [f, bench.make("g", namespace="x")],
    ):
        assert w.ask(loop(*tools, request=own)).raised(ReplayMismatch).component == "executors"
    assert w.ask(loop(g, f, request=own)).result.restored
    assert w.sent == 1


def test_another_api_under_a_key_is_refused(world: MakeWorld) -> None:
    """A key stands for a request to one API of one provider."""

    class OtherCodec(OpenAIResponsesCodec):
        api = "other"

    w = world(text("Hello."))
    seen: list[Any] = []

    def ask(llm: Any) -> Any:
        if w.sent:
            llm._codec = OtherCodec()
        seen.append(llm)
        return llm.run({**REQUEST}, budget=Budget(total_tokens=2_000), replay_key="k")

    def twice(llm: Any) -> Any:
        return both(llm, ask)

    with pytest.raises(ReplayMismatch) as error:
        w.within(twice)
    assert error.value.component == "api"
    assert (error.value.recorded, error.value.given) == ("openai/responses", "openai/other")
    assert w.sent == 1


def both(llm: Any, ask: Any) -> Any:
    """Ask twice; async if the first answer has to be awaited."""
    first = ask(llm)
    if not asyncio.iscoroutine(first):
        ask(llm)
        return None

    async def work() -> None:
        await first
        await ask(llm)

    return work()


def test_another_request_under_a_key_is_refused_while_the_first_is_unfinished(world: MakeWorld) -> None:
    """The mismatch goes before everything else, also when the first request's outcome is unknown."""
    w = world(read_timeout())
    w.ask(run()).raised(OutcomeUnknown)
    w.ask(run("Bye", on_unknown="block")).raised(ReplayMismatch)
    assert w.sent == 1


def at_once(w: World, held: Held, first: dict[str, Any], second: dict[str, Any]) -> list[Any]:
    """Two calls with one key at the same time: what each brought, or raised. The first is held meanwhile."""
    given = {"budget": Budget(total_tokens=2_000), "replay_key": "k"}

    def blocking(llm: Any) -> None:
        found = [None, None]

        def work() -> None:
            try:
                found[0] = llm.run(first, **given)
            except Exception as error:
                found[0] = error

        thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
        thread.start()
        assert held.wait_entered()
        try:
            found[1] = llm.run(second, **given)
        except Exception as error:
            found[1] = error
        held.release()
        thread.join(10)
        seen.extend(found)

    async def together(llm: Any) -> None:
        task = asyncio.create_task(llm.run(first, **given))
        assert await held.wait_entered_async()
        other = (await asyncio.gather(llm.run(second, **given), return_exceptions=True))[0]
        held.release()
        seen.extend([await task, other])

    seen: list[Any] = []
    w.within(together if w.is_async else blocking)
    return seen


def test_one_key_at_a_time(world: MakeWorld) -> None:
    """A second call under the key while the first is on its way is refused; nothing is sent for it."""
    held = hold(text("Hello."))
    w = world(held)
    first, second = at_once(w, held, REQUEST, REQUEST)
    assert first.response.output_text == "Hello."
    assert type(second) is InvalidRequest
    assert "in use" in str(second)
    assert (w.sent, len(w.invocations())) == (1, 1)


def test_a_mismatch_goes_before_the_key_being_in_use(world: MakeWorld) -> None:
    """Another request under a key in use is a mismatch, which is final; waiting would not help."""
    held = hold(text("Hello."))
    w = world(held)
    first, second = at_once(w, held, REQUEST, {**REQUEST, "input": "Bye"})
    assert first.response.output_text == "Hello."
    assert (type(second), second.component) == (ReplayMismatch, "request")
    assert w.sent == 1


# Versions of tools


def test_an_unfinished_call_is_not_finished_by_another_version(world: MakeWorld) -> None:
    """It was recorded under v1: v2 is refused by name, v1 finishes it."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1}), call("g", {"n": 2})), text("Done."))
    w.ask(loop(bench.make("f"), bench.failing("g", ValueError(), effect="idempotent"))).raised(ValueError)
    tools = [bench.make("f"), bench.make("g", effect="idempotent", version="v2")]
    error = w.ask(loop(*tools)).raised(ToolVersionMismatch)
    assert (error.tool, error.recorded, error.registered) == ("g", "v1", "v2")
    done = w.ask(loop(bench.make("f"), bench.make("g", effect="idempotent"))).result
    assert [r.restored for r in done.tool_results] == [True, False]
    assert [name for name, _ in bench.ran] == ["f", "g", "g"]


def test_a_finished_call_is_not_restored_for_another_version(world: MakeWorld) -> None:
    """Nothing is unfinished, so it is the executors that differ."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), status(500))
    w.ask(loop(bench.make("f"))).raised(OutcomeUnknown)
    assert w.ask(loop(bench.make("f", version="v2"))).raised(ReplayMismatch).component == "executors"
    assert len(bench.ran) == 1


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
