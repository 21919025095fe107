"""Recorded rounds are restored: for nothing, to the same caller only, and never as something else."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import Response, ResponseCompletedEvent, ResponseIncompleteEvent

from memoflow import (
    Budget,
    OutcomeUnknown,
)
from memoflow.ledger import schema as s
from memoflow.testing import (
    call,
    calls,
    incomplete,
    status,
    text,
    usage,
)
from tests.turn._asks import loop, run, stream
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld

KINDS = {"whole": run, "streamed": stream}


def dump(response: Any) -> Any:
    """Everything in an SDK object."""
    return response.model_dump(warnings=False)


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


def test_a_restored_stream_ends_in_its_terminal_event(world: MakeWorld) -> None:
    """Of the SDK's own type, with the recorded response in it."""
    w = world(text("Hello."), incomplete("Hel"))
    keys = {"a": ResponseCompletedEvent, "b": ResponseIncompleteEvent}
    live = [w.ask(stream(replay_key=key)).events[-1] for key in keys]
    for before, (key, kind) in zip(live, keys.items(), strict=True):
        event = w.ask(stream(replay_key=key)).events[-1]
        assert type(event) is type(before) is kind
        assert event.type == before.type
        assert type(event.response) is Response
        assert dump(event.response) == dump(before.response)


def test_a_restored_loop_yields_the_events_of_every_round(world: MakeWorld) -> None:
    """Consumers see every round of a restored stream, each with the whole response at its end."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), calls(call("f", {"n": 2})), status(500), text("Done."))
    asks = [stream(bench.make("f"))] * 2
    w.ask(asks[0]).raised(OutcomeUnknown)
    got = w.ask(asks[1])
    called = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done"]
    round = ["created", *called, "output_item.done", "completed"]
    kinds = [event.type.removeprefix("response.") for event in got.events]
    assert kinds[:12] == round * 2
    assert kinds[12] == "created"
    assert [got.events[at].response.output[0].type for at in (5, 11)] == ["function_call"] * 2
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
