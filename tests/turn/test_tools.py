"""Tools in a loop: what runs, what is refused, what the model is told, and what is on record about it."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from memoflow import (
    Budget,
    ClientCallRefused,
    InvalidProviderReply,
    ToolCall,
    tool,
)
from memoflow.budget import Amounts
from memoflow.testing import (
    call,
    calls,
    computer_call,
    custom_call,
    incomplete,
    items,
    mcp_call,
    reasoning,
    text,
    unknown_item,
    usage,
    web_search,
)
from tests.turn._asks import loop, stream
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld, World

LOOPS = {"whole": loop, "streamed": stream}


def told(w: World, request: int = -1) -> list[Any]:
    """The outputs that a request of the script's order hands back, decoded where they are JSON."""
    outputs = [item["output"] for item in w.provider.requests[request].json["input"] if "output" in item]
    return [json.loads(output) if output[:1] in "{[" else output for output in outputs]


def code(output: Any) -> str:
    """The code of an error that the model is told."""
    error: str = output["error"]["code"] if "error" in output else ""
    return error


# What runs


@pytest.mark.parametrize("kind", LOOPS)
def test_a_loop_runs_tools_and_hands_their_results_back(world: MakeWorld, kind: str) -> None:
    """Every round, in order; the result of the call has all of them."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1}), call("g", {"n": 2})), calls(call("f", {"n": 3})), text("Done."))
    result = w.ask(LOOPS[kind](bench.make("f"), bench.make_async("g", lambda n: f"got {n}"))).result
    assert result.response.output_text == "Done."
    assert [(r.name, r.round, r.ordinal, r.state, r.output) for r in result.tool_results] == [
        ("f", 0, 0, "DONE", '{"n":1}'),
        ("g", 0, 1, "DONE", "got 2"),
        ("f", 1, 0, "DONE", '{"n":3}'),
    ]
    assert [i.round for i in result.invocations] == [0, 1, 2]
    assert told(w) == [{"n": 1}, "got 2", {"n": 3}]


def test_a_continuation_hands_every_item_back_verbatim_and_in_order(world: MakeWorld) -> None:
    """Reasoning, hosted and unknown items stay where they were, then the outputs follow."""
    bench = Bench()
    said = [
        reasoning("Hm.", encrypted=True),
        web_search(),
        unknown_item(foo={"bar": [1, 2.50, None]}),
        call("f", {"n": 1}),
        mcp_call(),
    ]
    w = world(items(said, usage=usage(500, 60, reasoning=20)), text("Done."))
    request = {"store": False, "include": ["reasoning.encrypted_content"], "input": "Hello"}
    assert w.ask(loop(bench.make("f"), request=request)).error is None
    answered = w.provider.requests[0]
    given = w.provider.requests[1].json["input"]
    assert given[0] == {"type": "message", "role": "user", "content": "Hello"}
    assert [item["type"] for item in given[1:-1]] == [item["type"] for item in said]
    assert given[3]["foo"] == {"bar": [1, 2.50, None]}
    assert given[1]["encrypted_content"]
    assert given[-1]["call_id"] == given[4]["call_id"]
    assert answered.response_id


def test_hosted_items_are_recorded_as_the_providers_own(world: MakeWorld) -> None:
    """They are effects of nobody here: below zero, never restored, never run."""
    bench = Bench()
    w = world(items([web_search(), call("f", {"n": 1}), mcp_call(), unknown_item()]), text("Done."))
    assert w.ask(loop(bench.make("f"))).error is None
    found = [(e.ordinal, e.kind, e.tool_name, e.state) for e in w.effects()]
    assert found == [
        (-3, "hosted", "brand_new_call", "PROVIDER_SIDE"),
        (-2, "hosted", "mcp_call", "PROVIDER_SIDE"),
        (-1, "hosted", "web_search_call", "PROVIDER_SIDE"),
        (0, "function", "f", "DONE"),
    ]


def test_a_tool_is_told_who_calls_it(world: MakeWorld) -> None:
    """The idempotency key, where it stands, and on whose behalf."""
    seen: list[ToolCall] = []

    @tool(version="v1", effect="idempotent")
    def look(*, call: ToolCall) -> None:
        """Look."""
        seen.append(call)

    w = world(
        calls(call("look", call_id="call-a")), calls(call("look", ""), call("look", " \n")), text("Done.")
    )
    assert w.ask(loop(look)).error is None
    assert (seen[0].call_id, seen[0].round, seen[0].ordinal, seen[0].attempt) == ("call-a", 0, 0, 1)
    assert [(c.round, c.ordinal) for c in seen[1:]] == [(1, 0), (1, 1)]
    assert {str(c.identity) for c in seen} == {f"{w.rt.namespace}/w/r/answer"}
    assert len({c.idempotency_key for c in seen}) == 3


def test_a_tool_belongs_to_the_attempt_that_called_it(world: MakeWorld) -> None:
    """On whichever thread or task it runs, the runtime's current attempt is the caller's."""
    bench, seen = Bench(), []
    w = world(calls(call("f", {"n": 1}), call("g", {"n": 2})), text("Done."))

    def look(n: int) -> None:
        seen.append((w.rt.current().attempt, str(w.rt.current().identity)))

    assert w.ask(loop(bench.make("f", look), bench.make_async("g", look))).error is None
    assert seen == [(1, f"{w.rt.namespace}/w/r/answer")] * 2


def test_without_continuation_the_tools_of_the_first_reply_run(world: MakeWorld) -> None:
    """Their results are returned and not sent; a retry restores both."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1}), call("f", {"n": 2})))
    ask = loop(bench.make("f"), rounds=0)
    assert [r.output for r in w.ask(ask).result.tool_results] == ['{"n":1}', '{"n":2}']
    again = w.ask(ask).result
    assert (again.restored, [r.restored for r in again.tool_results]) == (True, [True, True])
    assert (len(bench.ran), w.sent) == (2, 1)


def test_calls_run_side_by_side_up_to_the_limit(world: MakeWorld) -> None:
    """Two at a time: never fewer while there are any, never more."""
    pair, lock, running, most = threading.Barrier(2), threading.Lock(), [0], [0]

    def meet(n: int) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        pair.wait(10)
        with lock:
            running[0] -= 1
        pair.wait(10)

    bench = Bench()
    w = world(calls(*[call("f", {"n": n}) for n in range(6)]), text("Done."))
    assert w.ask(loop(bench.make("f", meet), tool_concurrency=2)).error is None
    assert most == [2]
    assert len(bench.ran) == 6


def test_each_outcome_is_recorded_as_it_comes(world: MakeWorld) -> None:
    """A tool that is slow keeps nobody's finished work out of the ledger."""
    bench, seen = Bench(), []
    w = world(calls(call("fast", {"n": 1}), call("slow", {"n": 2})), text("Done."))

    def wait(n: int) -> None:
        for _ in range(1_000):
            states = {e.tool_name: e.state for e in w.effects()}
            if states["fast"] == "DONE":
                break
            threading.Event().wait(0.01)
        seen.append(states)

    assert w.ask(loop(bench.make("fast"), bench.make("slow", wait))).error is None
    assert seen == [{"fast": "DONE", "slow": "STARTED"}]


def test_a_blocking_call_within_an_event_loop_can_run_async_tools(world: MakeWorld) -> None:
    """Someone else's running loop is in nobody's way."""
    import asyncio

    bench = Bench()
    w = world(calls(call("f", {"n": 1})), text("Done."))
    if w.is_async:
        assert w.ask(loop(bench.make_async("f"))).error is None
        return

    async def within() -> Any:
        return w.ask(loop(bench.make_async("f")))

    assert asyncio.run(within()).result.response.output_text == "Done."


# What does not run


def test_bad_calls_are_told_and_their_siblings_run(world: MakeWorld) -> None:
    """Each gets one bounded result of its own; nothing is repaired; only what is valid runs."""
    bench = Bench()
    bad = [
        '{"n": oops"}',
        "null",
        "[1]",
        '"{\\"n\\": 1}"',
        '{"n": 1, "n": 2}',
        '{"n": 1e400}',
        '{"n": "1"}',
        '{"m": 1}',
    ]
    w = world(calls(*[call("f", raw) for raw in bad], call("f", {"n": 7})), text("Done."))
    wide = Budget(total_tokens=20_000, tool_calls=20)
    result = w.ask(loop(bench.make("f"), budget=wide)).result
    assert bench.ran == [("f", 7)]
    assert [code(output) for output in told(w)] == ["INVALID_ARGUMENTS"] * len(bad) + [""]
    assert [r.state for r in result.tool_results] == ["REFUSED"] * len(bad) + ["DONE"]
    assert w.balance()[0].tool_calls == 1
    refused = w.effects()[0]
    assert (refused.state, refused.reason, refused.idempotency_key) == ("REFUSED", "INVALID_ARGUMENTS", None)
    assert not any("oops" in str(output) for output in told(w))


def test_unknown_and_blank_names_are_told(world: MakeWorld) -> None:
    """The name a model invented is not in the ledger."""
    bench = Bench()
    w = world(calls(call("delete_everythng"), call(" "), call("f", {"n": 1})), text("Done."))
    assert w.ask(loop(bench.make("f"))).error is None
    assert [code(output) for output in told(w)] == ["UNKNOWN_TOOL", "UNKNOWN_TOOL", ""]
    assert [e.tool_name for e in w.effects()] == ["(unknown)", "(unknown)", "f"]


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


def offers(*names: str) -> list[dict[str, Any]]:
    """Tools as a request names them."""
    return [{"type": "function", "name": name, "parameters": SCHEMA} for name in names]


@pytest.mark.parametrize(
    ("request_", "codes"),
    [
        ({"tool_choice": "none"}, ["NOT_OFFERED", "NOT_OFFERED"]),
        ({"tools": offers("f")}, ["", "UNKNOWN_TOOL"]),
        ({"tools": []}, ["UNKNOWN_TOOL", "UNKNOWN_TOOL"]),
        ({"tools": offers("f", "g"), "tool_choice": {"type": "function", "name": "g"}}, ["UNKNOWN_TOOL", ""]),
        (
            {
                "tools": offers("f", "g"),
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{"type": "function", "name": "f"}],
                },
            },
            ["", "UNKNOWN_TOOL"],
        ),
    ],
)
def test_calls_outside_what_is_offered_do_not_run(
    world: MakeWorld, request_: dict[str, Any], codes: list[str]
) -> None:
    """A registered tool is run only where the request offers it."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1}), call("g", {"n": 2})), text("Done."))
    assert w.ask(loop(bench.make("f"), bench.make("g"), request=request_)).error is None
    assert [code(output) for output in told(w)] == codes
    assert len(bench.ran) == codes.count("")


def test_a_request_without_tools_is_given_their_schemas(world: MakeWorld) -> None:
    """One that names its own is sent as it is."""
    bench = Bench()
    w = world(text("a"), text("b"))
    own = offers("f")
    w.ask(loop(bench.make("f")), loop(bench.make("f"), replay_key="b", request={"tools": own}))
    bodies = [record.json for record in w.provider.requests]
    assert [entry["name"] for entry in bodies[0]["tools"]] == ["f"]
    assert bodies[0]["tools"][0]["strict"] is True
    assert bodies[1]["tools"] == own


def test_custom_calls_go_to_custom_tools_only(world: MakeWorld) -> None:
    """The raw text goes in, and the answer is of the same kind; the wrong kind is told so."""
    bench = Bench()
    w = world(
        calls(custom_call("patch", "*** begin\n{not"), custom_call("f", "1"), call("patch", "{}")),
        text("Done."),
    )
    assert w.ask(loop(bench.custom(), bench.make("f"))).error is None
    assert bench.ran == [("patch", "*** begin\n{not")]
    answers = [i for i in w.provider.requests[1].json["input"] if i["type"].endswith("_output")]
    assert [a["type"] for a in answers] == ["custom_tool_call_output"] * 2 + ["function_call_output"]
    assert answers[0]["output"] == "applied 14 characters"
    assert [code(output) for output in told(w)[1:]] == ["UNKNOWN_TOOL"] * 2


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
@pytest.mark.parametrize("kind", LOOPS)
def test_nothing_runs_from_a_turn_that_was_cut_short(world: MakeWorld, kind: str, reason: str) -> None:
    """Not even a call that is complete in itself; the reply is returned and paid for."""
    bench = Bench()
    said = [call("f", {"n": 1}, status="completed"), call("f", '{"n": 2', status="incomplete")]
    w = world(incomplete(*said, reason=reason, usage=usage(10, 5)))
    result = w.ask(LOOPS[kind](bench.make("f"))).result
    assert result.finish_reason == ("length" if reason == "max_output_tokens" else reason)
    assert (bench.ran, result.tool_results, w.effects(), w.sent) == ([], (), [], 1)
    assert w.balance()[0] == Amounts(15, 10, 5, 1)


def test_a_call_that_is_not_complete_itself_does_not_run(world: MakeWorld) -> None:
    """Its sibling in the same completed reply does."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1}, status="in_progress"), call("f", {"n": 2})), text("Done."))
    assert w.ask(loop(bench.make("f"))).error is None
    assert bench.ran == [("f", 2)]
    assert code(told(w)[0]) == "INCOMPLETE_CALL"


@pytest.mark.parametrize(
    "said",
    [
        [call("f", {"n": 1}, call_id="c"), call("f", {"n": 2}, call_id="c")],
        [call("f", {"n": 1}, call_id=""), call("f", {"n": 2})],
        [call("f", {"n": 1}, call_id="  ")],
    ],
)
@pytest.mark.parametrize("kind", LOOPS)
def test_a_reply_that_contradicts_itself_runs_nothing(world: MakeWorld, kind: str, said: list[Any]) -> None:
    """It is settled and recorded, and the same again on a retry, for nothing."""
    bench = Bench()
    w = world(items(said, usage=usage(10, 5)))
    for _ in range(2):
        error = w.ask(LOOPS[kind](bench.make("f"))).raised(InvalidProviderReply)
        assert error.invocation_id == w.invocation.id
    assert (w.invocation.state, w.invocation.reservation_state) == ("SUCCEEDED", "SETTLED")
    assert w.balance()[0] == Amounts(15, 10, 5, 1)
    assert (bench.ran, w.sent) == ([], 1)


@pytest.mark.parametrize("kind", LOOPS)
def test_a_reply_that_waits_for_the_client_runs_nothing(world: MakeWorld, kind: str) -> None:
    """It is settled and recorded, also on a retry; the error says what waits, and what can be done."""
    bench = Bench()
    w = world(items([computer_call(), call("f", {"n": 1})], usage=usage(10, 5)))
    for _ in range(2):
        error = w.ask(LOOPS[kind](bench.make("f"))).raised(ClientCallRefused)
        assert (error.invocation_id, error.items) == (w.invocation.id, ("computer_call",))
    assert (w.invocation.state, w.invocation.reservation_state) == ("SUCCEEDED", "SETTLED")
    assert w.balance()[0] == Amounts(15, 10, 5, 1)
    assert (bench.ran, w.sent) == ([], 1)


@pytest.mark.parametrize("kind", LOOPS)
def test_a_client_call_that_was_cut_short_waits_for_nobody(world: MakeWorld, kind: str) -> None:
    """A reply that reached its output cap ends there, as with any half call in it; also on a retry."""
    bench = Bench()
    w = world(incomplete(call("f", {"n": 1}), computer_call(), usage=usage(10, 5)))
    for restored in (False, True):
        result = w.ask(LOOPS[kind](bench.make("f"))).result
        assert (result.finish_reason, result.restored) == ("length", restored)
    assert (w.invocation.state, w.invocation.finish_reason) == ("SUCCEEDED", "length")
    assert (bench.ran, w.sent) == ([], 1)


def test_a_call_id_of_any_length_is_kept(world: MakeWorld) -> None:
    """Never truncated or hashed: the answer names the call as it was named."""
    bench, long = Bench(), "c" * 300
    w = world(calls(call("f", {"n": 1}, call_id=long)), text("Done."))
    assert w.ask(loop(bench.make("f"))).error is None
    assert w.effects()[0].call_id == long
    assert w.provider.requests[1].json["input"][-1]["call_id"] == long
