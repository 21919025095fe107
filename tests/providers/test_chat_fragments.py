"""Fragments of streamed chat completions: what is read, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import pytest

from memoflow.providers._chat_reply import STREAM_PROBLEMS
from memoflow.providers._chat_stream import MAX_CHOICES
from memoflow.providers.base import Usage
from tests.providers._chat_bodies import (
    END,
    STOP,
    begun,
    chunk,
    counted,
    delta,
    final,
    fragment,
    function_call,
    message,
    more_of,
)

PROBLEMS = {
    "AFTER_END": [
        (delta({"content": "x"}), STOP, delta({"content": "y"})),
        (STOP, begun()),
        (STOP, delta({"refusal": "no"})),
        (begun(), END, more_of("{}")),
    ],
    "CALL_AMBIGUOUS": [
        (fragment(None, function={"arguments": "{}"}), END),
        (begun(), fragment(None, function={"arguments": "{}"}), END),
        (begun(None, arguments="{}"), fragment(None, function={"arguments": "{}"}), END),
        (begun(None, arguments=None), END),
        (begun(None, call_id=""), END),
        (begun(None, name=""), END),
        (begun(0), begun(None, "call_2", "inc", "{}"), END),
        (begun(None, "call_2", "inc", "{}"), begun(0), END),
    ],
    "CALL_ID_CHANGED": [
        (begun(0, "call_1", arguments="{}"), begun(0, "call_2", "", "{}"), END),
        (begun(0, "call_1", "inc", "{}"), begun(0, "call_2", "inc", "{}"), END),
    ],
    "CALL_NAME": [
        (begun(), fragment(0, function={"name": "inc", "arguments": "{}"}), END),
        (begun(name="f"), fragment(0, function={"name": "f"}), END),
        (begun(name="get_"), fragment(0, function={"name": "weather"}), END),
        (begun(name=5), END),
    ],
    "CALL_SHAPE": [
        (delta({"tool_calls": "f"}), END),
        (delta({"tool_calls": ["f"]}), END),
        (fragment(-1, id="call_1"), END),
        (fragment("0", id="call_1"), END),
        (fragment(True, id="call_1"), END),
        (fragment(0, id=5), END),
        (begun(), fragment(0, type="custom"), END),
        (begun(), fragment(0, type=5), END),
        (begun(), fragment(0, custom={"input": "x"}), END),
        (begun(), fragment(0, function="x"), END),
        (begun(), more_of({"n": 1}), END),
    ],
    "CHOICE_SHAPE": [
        (chunk("text"), STOP),
        (delta("text"), STOP),
        (chunk({"index": 0, "message": message(), "finish_reason": "stop"}),),
        (delta({}, index="0"), STOP),
        (delta({}, index=True), STOP),
        (delta({}, index=-1), STOP),
        (delta({}, index=MAX_CHOICES), STOP),
        (chunk({"delta": {}}, {"delta": {}}), STOP),
    ],
    "END_CHANGED": [(STOP, END), (begun(arguments="{}"), END, delta(end="length"))],
    "ID_CHANGED": [(delta({"content": "x"}), STOP | {"id": "chatcmpl-2"})],
}


@pytest.mark.parametrize(
    ("code", "events"), [(code, events) for code, streams in PROBLEMS.items() for events in streams]
)
def test_a_stream_that_contradicts_itself_runs_nothing(code: str, events: tuple[Any, ...]) -> None:
    """The reply is settled, and says so again when it is read from its record."""
    reply = final(*events, counted())
    assert reply.problem == STREAM_PROBLEMS[code]
    assert not any(call.complete for call in reply.calls)
    assert reply.usage == Usage(10, 5)


def test_a_choice_that_was_not_asked_for_is_a_problem() -> None:
    """Nobody reserved it."""
    reply = final(STOP, delta({}, "stop", 1), choices=1)
    assert reply.problem == STREAM_PROBLEMS["UNASKED_CHOICE"]
    assert {*PROBLEMS, "UNASKED_CHOICE"} == STREAM_PROBLEMS.keys()


@pytest.mark.parametrize(
    "events",
    [
        (begun(arguments='{"n": 1}'), END),
        (begun(), more_of('{"n": 1}'), END),
        (begun(arguments=None), more_of('{"n": 1}'), END),
        (begun(), fragment(0, id="call_1", type="function", function={"arguments": '{"n": 1}'}), END),
        (begun(), fragment(0, id="", type=None, function={"name": "", "arguments": '{"n": 1}'}), END),
        (begun(call_id=""), fragment(0, id="call_1", function={"name": None, "arguments": '{"n": 1}'}), END),
        (begun(7, arguments='{"n": 1}'), END),
        (begun(None, arguments='{"n": 1}'), END),
        (begun(None, arguments='{"n": 1}'), STOP),
        (begun(arguments='{"n": 1}'), END, END, delta({"content": "", "tool_calls": []}, "tool_calls")),
        (
            fragment(0, function={"name": "inc"}),
            fragment(0, id="call_1", function={"arguments": '{"n": 1}'}),
            END,
        ),
    ],
)
def test_what_known_servers_send_is_read(events: tuple[Any, ...]) -> None:
    """Repeated or late ids, blank names, calls in one piece without an index, ends that come twice."""
    reply = final(*events)
    assert [(c.call_id, c.name, c.arguments, c.complete) for c in reply.calls] == [
        ("call_1", "inc", '{"n": 1}', True)
    ]
    assert (reply.problem, reply.finish_reason) == (None, "tool_calls")
    assert reply.body["choices"][0]["message"]["tool_calls"] == [function_call()]


def test_whole_calls_without_an_index_stay_apart() -> None:
    """Each fragment is a call of its own, in one chunk or in several."""
    one, two = (
        {"id": f"call_{n}", "type": "function", "function": {"name": "inc", "arguments": "{}"}} for n in "12"
    )
    for events in (
        (delta({"tool_calls": [one, two]}), END),
        (delta({"tool_calls": [one]}), delta({"tool_calls": [two]}), END),
    ):
        reply = final(*events)
        assert [(call.call_id, call.complete) for call in reply.calls] == [("call_1", True), ("call_2", True)]


@pytest.mark.parametrize(
    "events",
    [
        (begun(0), begun(1)),
        (begun(None, arguments="{}"), begun(None, arguments="{}")),
        (begun(call_id=""),),
        (begun(arguments=None),),
        (begun(name=None),),
        (begun(call_id=" "),),
    ],
)
def test_what_is_wrong_with_the_whole_call_is_found_like_in_a_whole_reply(events: tuple[Any, ...]) -> None:
    """An id that is repeated or missing, a name or arguments that never came."""
    reply = final(*events, END)
    assert reply.problem
    assert not any(call.complete for call in reply.calls)


def test_a_blank_name_is_one_that_nobody_registered_as_in_a_whole_reply() -> None:
    """It is refused by the tool layer on its own, and its siblings are not lost."""
    reply = final(
        begun(0, name="", arguments="{}"),
        more_of(""),
        begun(1, "call_2", name="", arguments=""),
        fragment(1, function={"name": "inc", "arguments": "{}"}),
        END,
    )
    assert reply.problem is None
    assert [(one.name, one.arguments, one.complete) for one in reply.calls] == [
        ("", "{}", True),
        ("inc", "{}", True),
    ]


def test_calls_are_in_the_order_of_their_index() -> None:
    """Not in the order of arrival."""
    reply = final(begun(1, "call_2", arguments="{}"), begun(0, "call_1", arguments="{}"), END)
    assert [call.call_id for call in reply.calls] == ["call_1", "call_2"]
