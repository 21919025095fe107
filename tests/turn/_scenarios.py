"""Scenarios that the blocking and the async adapter have to play alike: the script, and what is asked of it.

A scenario is a function that makes everything afresh; each list of asks is one attempt of one activity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from memoflow import Budget
from memoflow.testing import (
    call,
    calls,
    code_interpreter,
    computer_call,
    custom_call,
    huge,
    incomplete,
    items,
    mcp_call,
    message,
    missing_usage,
    read_timeout,
    reasoning,
    snapshot_differs,
    status,
    text,
    unknown_item,
    usage,
    web_search,
)
from tests.turn._asks import LEAVE, LOOP, Ask, leave_at_the_end, loop, run, stream
from tests.turn._tools import AnyTool, Bench

__all__ = ["SCENARIOS", "Play"]


@dataclass
class Play:
    """A script, the calls of each attempt, and the options of the world it is played in."""

    script: list[Any]
    attempts: list[list[Ask]]
    bench: Bench = field(default_factory=Bench)
    options: dict[str, Any] = field(default_factory=dict)


SCENARIOS: dict[str, Callable[[], Play]] = {}


def scenario(make: Callable[[], Play]) -> Callable[[], Play]:
    """Register under the function's name."""
    SCENARIOS[make.__name__] = make
    return make


def _add(name: str, make: Callable[[], Play]) -> None:
    SCENARIOS[name] = make


def _whole(reply: Callable[[], Any], **options: Any) -> Callable[[], Play]:
    return lambda: Play([reply(), text("again")], [[run(**options)], [run(**options)]])


def _streamed(reply: Callable[[], Any], **options: Any) -> Callable[[], Play]:
    return lambda: Play([reply(), text("again")], [[stream(**options)], [stream(**options)]])


REPLIES: dict[str, Callable[[], Any]] = {
    "thought": lambda: text("Hello.", thought="Hm.", usage=usage(10, 7, cached=4, reasoning=5)),
    "hosted": lambda: items(
        [web_search(), code_interpreter(), mcp_call(), unknown_item(foo=1), message("Done.")]
    ),
    "over_the_reservation": lambda: text("Hello.", usage=usage(30_000, 40_000), honour_cap=False),
    "unknown_item": lambda: items([unknown_item(foo={"bar": [1, 2.5, None]})]),
    "other_model_and_tier": lambda: text("Hello.", model="gpt-test-2026", service_tier="flex"),
    "snapshot_differs": lambda: snapshot_differs(calls(call("f", {"n": 1}))),
}
for _name, _reply in REPLIES.items():
    _add(_name, _whole(_reply))
    _add(f"{_name}_streamed", _streamed(_reply))
_add("blocked", _whole(read_timeout, on_unknown="block"))
_add("blocked_streamed", _streamed(read_timeout, on_unknown="block"))


@scenario
def too_large() -> Play:
    return Play([huge(3_000), text("again")], [[run()], [run()]], options={"max_reply_bytes": 2_000})


@scenario
def two_calls_of_which_the_second_fails_once() -> Play:
    asks = [run(), run(replay_key="second")]
    return Play([text("one"), status(429), text("two")], [asks, asks, asks])


@scenario
def calls_without_a_key() -> Play:
    asks = [run(replay_key=None), run(replay_key=None)]
    return Play([text("one"), status(500), text("two"), text("three")], [asks, asks])


def _loops(
    name: str,
    script: Callable[[], list[Any]],
    tools: Callable[[Bench], list[AnyTool]],
    *,
    attempts: int = 2,
    **options: Any,
) -> None:
    """A tool loop, whole and as streams, played by several attempts."""
    for ask, suffix in ((loop, ""), (stream, "_streamed")):

        def make(ask: Any = ask) -> Play:
            bench = Bench()
            made = [[ask(*tools(bench), **options)] for _ in range(attempts)]
            return Play(script(), made, bench)

        SCENARIOS[name + suffix] = make


_loops("one_tool", lambda: [calls(call("f", {"n": 1})), text("Done.")], lambda b: [b.make("f")])
_loops(
    "three_rounds",
    lambda: [calls(call("f", {"n": 1})), calls(call("f", {"n": 2}), thought="More."), text("Done.")],
    lambda b: [b.make("f")],
)
_loops(
    "reasoning_and_unknown_items_go_back",
    lambda: [
        items([reasoning("Hm.", encrypted=True), web_search(), unknown_item(x=1), call("f", {"n": 1})]),
        text("Done."),
    ],
    lambda b: [b.make("f")],
    request={"store": False, "include": ["reasoning.encrypted_content"]},
)
_loops(
    "parallel",
    lambda: [calls(call("f", {"n": 1}), call("g", {"n": 2}), call("f", {"n": 1})), text("Done.")],
    lambda b: [b.make("f"), b.make_async("g")],
)
_loops(
    "bad_calls_beside_good_ones",
    lambda: [
        calls(
            call("f", '{"n": oops"}'),
            call("f", "null"),
            call("f", "[1]"),
            call("f", '"{\\"n\\": 1}"'),
            call("f", {"n": "1"}),
            call("nobody", {"n": 1}),
            call("f", {"n": 7}),
            call("patch", {"n": 7}),
        ),
        text("Done."),
    ],
    lambda b: [b.make("f"), b.custom()],
)
_loops(
    "custom_calls",
    lambda: [calls(custom_call("patch", "*** begin\n{not json"), custom_call("f", "1")), text("Done.")],
    lambda b: [b.custom(), b.make("f")],
)
_loops(
    "calls_that_are_not_allowed",
    lambda: [calls(call("f", {"n": 1})), text("Done.")],
    lambda b: [b.make("f")],
    request={"tool_choice": "none"},
)
_loops(
    "declined",
    lambda: [calls(call("decline", {"n": 1})), text("Done.")],
    lambda b: [b.declining()],
)
for _effect in ("read_only", "idempotent", "at_most_once"):
    _loops(
        f"raising_{_effect}",
        lambda: [calls(call("f", {"n": 1}), call("g", {"n": 2})), text("Done.")],
        lambda b, effect=_effect: [b.make("f"), b.failing("g", ValueError("secret"), effect=effect)],  # type: ignore[misc]
        tool_concurrency=1,
    )
_loops(
    "raising_first_one_at_a_time",
    lambda: [calls(call("g", {"n": 1}), call("f", {"n": 2})), text("Done.")],
    lambda b: [b.make("f"), b.failing("g", ValueError("secret"))],
    tool_concurrency=1,
)
_loops(
    "result_that_cannot_be_encoded",
    lambda: [calls(call("f", {"n": 1})), text("Done.")],
    lambda b: [b.make("f", lambda n: {1, 2})],
)
_loops(
    "result_too_large",
    lambda: [calls(call("f", {"n": 1})), text("Done.")],
    lambda b: [b.make("f", lambda n: "x" * 1_000)],
    max_result_bytes=500,
)
_loops(
    "too_many_calls",
    lambda: [calls(*[call("f", {"n": n}) for n in range(9)])],
    lambda b: [b.make("f")],
)
_loops("too_many_rounds", lambda: [calls(call("f", {"n": n})) for n in range(4)], lambda b: [b.make("f")])
_loops("no_further_round", lambda: [calls(call("f", {"n": 1}))], lambda b: [b.make("f")], rounds=1)
_loops(
    "duplicate_call_ids",
    lambda: [calls(call("f", {"n": 1}, call_id="c"), call("f", {"n": 2}, call_id="c"))],
    lambda b: [b.make("f")],
)
_loops("blank_call_id", lambda: [calls(call("f", {"n": 1}, call_id=" "))], lambda b: [b.make("f")])
_loops("long_call_id", lambda: [calls(call("f", {"n": 1}, call_id="c" * 65))], lambda b: [b.make("f")])
_loops(
    "asks_the_client_itself",
    lambda: [items([computer_call(), call("f", {"n": 1})])],
    lambda b: [b.make("f")],
)
_loops(
    "cut_off_with_calls",
    lambda: [incomplete(call("f", {"n": 1}, status="completed"), call("f", '{"n": 2'))],
    lambda b: [b.make("f")],
)
_loops(
    "a_call_of_its_own_incomplete",
    lambda: [calls(call("f", {"n": 1}, status="in_progress"), call("f", {"n": 2})), text("Done.")],
    lambda b: [b.make("f")],
)
_loops(
    "second_round_fails_once",
    lambda: [calls(call("f", {"n": 1})), status(500), text("Done.")],
    lambda b: [b.make("f")],
    attempts=3,
)
_loops(
    "second_round_without_usage",
    lambda: [missing_usage(calls(call("f", {"n": 1}))), text("Done.")],
    lambda b: [b.make("f")],
)


@scenario
def tools_without_continuation() -> Play:
    bench = Bench()
    ask = loop(bench.make("f"), rounds=0)
    return Play([calls(call("f", {"n": 1}))], [[ask], [ask]], bench)


@scenario
def tools_in_a_namespace() -> Play:
    bench = Bench()
    ask = loop(bench.make("f", namespace="crm"))
    script = [calls(call("f", {"n": 1}, namespace="crm"), call("f", {"n": 2})), text("Done.")]
    return Play(script, [[ask]], bench)


@scenario
def left_early() -> Play:
    ask = stream(watch=lambda event: LEAVE)
    return Play([text("Hello."), text("again")], [[ask], [ask]])


@scenario
def left_after_the_terminal_event() -> Play:
    ask = stream(watch=leave_at_the_end)
    return Play([text("Hello.")], [[ask], [ask]])


@scenario
def left_after_a_round_with_tools() -> Play:
    bench = Bench()
    leaving = stream(bench.make("f"), watch=leave_at_the_end)
    return Play([calls(call("f", {"n": 1})), text("Done.")], [[leaving], [replace(leaving, watch=id)]], bench)


@scenario
def consumer_raises() -> Play:
    def watch(event: Any) -> None:
        raise LookupError

    return Play([text("Hello."), text("again")], [[stream(watch=watch)], [stream()]])


@scenario
def refused_before_anything_is_sent() -> Play:
    asks = [
        run(request={"max_output_tokens": 100_000}, replay_key="a"),
        run(budget=Budget(total_tokens=50), replay_key="b"),
    ]
    return Play([], [[asks[0]], [asks[1]], [run("x" * 90_000, strict_input=True, replay_key="c")]])


@scenario
def denied_by_the_account() -> Play:
    return Play(
        [text("one")], [[run(), run(replay_key="second")]], options={"limits": Budget(total_tokens=20_005)}
    )


@scenario
def another_request_under_the_key() -> Play:
    asks = [run(), run("Something else")]
    return Play([text("one")], [asks])


@scenario
def another_version_of_a_tool() -> Play:
    first, second = Bench(), Bench()
    return Play(
        [calls(call("f", {"n": 1}))],
        [[loop(first.failing("f", ValueError()))], [loop(second.make("f", version="v2"))]],
    )


@scenario
def budget_of_the_next_round_is_too_small() -> Play:
    bench = Bench()
    ask = loop(bench.make("f"), continuation=[Budget(total_tokens=30)])
    return Play(
        [calls(call("f", {"n": 1})), text("Done.")], [[ask], [loop(bench.make("f"), continuation=[LOOP])]]
    )
