"""OpenAI's items and messages, as its SDK has them, become records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from memoflow.canonical import Digester
from memoflow.causal._frozen import freeze
from memoflow.causal.adapters import Seen, Terms, Tracer, correlate, openai_chat, openai_responses
from memoflow.causal.strict import audit_strict
from memoflow.errors import InvalidRequest
from tests.causal._records import ALICE

DIGEST = Digester().json
NO = {"type": "http_error", "code": 500, "message": "no"}
BASE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 0,
    "model": "m",
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def function_call(call_id: str, arguments: str = '{"q": 1}', **more: Any) -> dict[str, Any]:
    """A call of a function."""
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": arguments, **more}


def output(call_id: str, text: str = '{"hits": 3}') -> dict[str, Any]:
    """The host's answer to it."""
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def response(*items: dict[str, Any]) -> Response:
    """The SDK's own object."""
    return Response.model_validate({**BASE, "output": list(items)})


def traced(seen: Seen, **options: Any) -> Tracer:
    """The records of one turn below a request."""
    numbers = iter(range(1, 100))
    tracer = Tracer(clock=lambda: 7, make_id=lambda: f"r{next(numbers)}", **options)
    tracer.event(ALICE, "ask", permitted_by="root_event:x", id="root")
    tracer.turn(seen, lambda call: Terms(permitted_by="root", action="look"))
    return tracer


def test_a_call_and_its_result_are_one_record() -> None:
    """With the envelope of the specification, exactly, and digests of arguments and output."""
    seen = openai_responses.read(
        [*response(function_call("c1", id="fc_1", status="completed")).output, output("c1")]
    )
    _, record = traced(seen).records
    arguments, result = DIGEST({"q": 1}), DIGEST({"hits": 3})
    assert record.to_dict()["object"] == {
        "tool": "look",
        "risk_level": "low",
        "human_approval": {"required": False, "status": "not_required"},
        "evidence_bundle": {
            "request_digest": arguments,
            "result_digest": result,
            "artifacts": [],
            "simulated": False,
        },
        "provider_envelope": {
            "provider": "openai",
            "api": "responses",
            "execution_boundary": "host_custom_function",
            "request_item": {
                "type": "function_call",
                "call_id": "c1",
                "name": "look",
                "arguments_digest": arguments,
            },
            "result_item": {"type": "function_call_output", "call_id": "c1", "output_digest": result},
        },
    }
    assert record.parent_cause == "root"


def test_payloads_stand_in_a_record_only_where_they_are_wanted() -> None:
    """Otherwise nothing of them does."""
    seen = openai_responses.read([function_call("c1", '{"q": "SECRET"}'), output("c1", "SECRET")])
    assert "SECRET" not in repr(traced(seen).records)
    assert "SECRET" not in repr(seen)
    payload = traced(seen, payloads=True).records[1].object
    assert (payload["request"], payload["result"]) == ({"q": "SECRET"}, "SECRET")


def test_parallel_calls_are_branches_that_are_joined() -> None:
    """One parent for all of them, not a line; what follows is caused by the join, whose parent is theirs."""
    seen = openai_responses.read(
        [
            *response(function_call("c1"), function_call("c2"), function_call("c3")).output,
            *map(output, ("c3", "c1", "c2")),
        ]
    )
    tracer = traced(seen)
    _, *calls, join = tracer.records
    assert {record.parent_cause for record in calls} == {"root"}
    assert (join.parent_cause, join.joins) == ("root", ("r1", "r2", "r3"))
    assert tracer.cursor == join.id
    assert tracer.problems == []
    assert audit_strict(tracer.records).findings == ()


def test_a_single_call_needs_no_join() -> None:
    """It is what causes the next turn."""
    tracer = traced(openai_responses.read([function_call("c1"), output("c1")]))
    assert tracer.cursor == "r1"
    tracer.turn(openai_responses.read([]), lambda call: Terms(permitted_by="root"))
    assert tracer.cursor == "r1"


@pytest.mark.parametrize(
    ("item", "name", "arguments", "result", "is_error"),
    [
        (
            {"type": "web_search_call", "action": {"type": "search", "query": "q"}},
            "web_search",
            {"action": {"type": "search", "query": "q"}},
            {"status": "completed"},
            False,
        ),
        (
            {"type": "file_search_call", "queries": ["q"], "results": [{"file_id": "f"}]},
            "file_search",
            {"queries": ["q"]},
            {"status": "completed", "results": [{"file_id": "f"}]},
            False,
        ),
        (
            {
                "type": "code_interpreter_call",
                "code": "1",
                "container_id": "c",
                "outputs": None,
                "status": "failed",
            },
            "code_interpreter",
            {"code": "1", "container_id": "c"},
            {"status": "failed"},
            True,
        ),
        (
            {
                "type": "mcp_call",
                "name": "ask",
                "server_label": "s",
                "arguments": '{"a": 1}',
                "output": "fine",
            },
            "ask",
            {"a": 1},
            {"status": "completed", "output": "fine"},
            False,
        ),
        (
            {"type": "mcp_call", "name": "ask", "server_label": "s", "arguments": "{}", "error": NO},
            "ask",
            {},
            {"status": "completed", "error": NO},
            True,
        ),
    ],
)
def test_hosted_tools_are_recorded_after_the_fact(
    item: dict[str, Any], name: str, arguments: Any, result: Any, is_error: bool
) -> None:
    """With what the item says of them, as calls that the provider executed."""
    (sent,) = response({"id": "h1", "status": "completed", **item}).output
    seen = openai_responses.read([sent])
    (call,) = seen.calls
    assert (call.name, call.arguments, call.hosted, call.call_id) == (name, freeze(arguments), True, "h1")
    assert call.result is not None
    assert call.result.output == freeze(result)
    assert call.result.is_error is is_error
    record = traced(seen).records[1]
    assert record.object["provider_envelope"]["execution_boundary"] == "provider_hosted_tool"
    assert audit_strict(traced(seen).records).findings == ()


def test_other_calls_of_the_host_are_calls_too() -> None:
    """A shell, a computer, a custom tool: whatever has an id to answer to."""
    items = [
        {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": '{"a":  1}'},
        {"type": "shell_call", "call_id": "c2", "id": "s", "action": {"commands": ["ls"]}},
        {"type": "local_shell_call", "call_id": "c3", "action": {"command": ["ls"]}},
    ]
    answers = [
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "[1]"},
        {"type": "shell_call_output", "call_id": "c2", "output": [{"stdout": "x"}]},
        {"type": "local_shell_call_output", "id": "c3", "output": "x"},
    ]
    pairs, orphans = correlate(openai_responses.read([*items, *answers]))
    assert orphans == ()
    assert [(pair.call.name, pair.call.hosted, pair.problems) for pair in pairs] == [
        ("sql", False, ()),
        ("shell", False, ()),
        ("local_shell", False, ()),
    ]
    assert pairs[0].call.arguments == '{"a":  1}'
    assert pairs[0].result is not None
    assert pairs[0].result.output == "[1]"


def test_the_input_of_a_custom_tool_is_digested_as_its_bytes() -> None:
    """As the ledger does it, so that an approval of the one fits the other."""
    seen = openai_responses.read(
        [{"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "[1]"}]
    )
    for payloads in (False, True):
        tracer = traced(seen, payloads=payloads)
        assert tracer.records[1].object["evidence_bundle"]["request_digest"] == Digester().bytes(b"[1]")
        assert audit_strict(tracer.records).findings == ()


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        (" \n", {}),
        ("{}", {}),
        ('{"a": 1.0}', {"a": 1.0}),
        ("{oops", "{oops"),
        ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
    ],
)
def test_arguments_are_parsed_strictly_or_left_as_text(text: str, arguments: Any) -> None:
    """Never repaired: what is no JSON document is digested as the text it is."""
    (call,) = openai_responses.read([function_call("c", text)]).calls
    assert call.arguments == arguments


def test_messages_and_reasoning_are_passed_over() -> None:
    """They cross no boundary."""
    items = [
        {"type": "message", "content": []},
        {"type": "reasoning", "summary": []},
        {"no": "type"},
        {"type": 5},
    ]
    assert openai_responses.read(items) == Seen((), ())
    with pytest.raises(InvalidRequest):
        openai_responses.read([object()])


def test_chat_completions_have_their_own_envelope() -> None:
    """From the SDK's objects too."""
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": 1}'}},
        {"id": "c2", "type": "custom", "custom": {"name": "sql", "input": "select 1"}},
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    completion = ChatCompletion.model_validate(
        {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    )
    answers = [{"role": "tool", "tool_call_id": id, "content": json.dumps([id])} for id in ("c2", "c1")]
    tracer = traced(openai_chat.read([completion.choices[0].message, *answers]))
    assert tracer.problems == []
    assert tracer.records[1].to_dict()["object"]["provider_envelope"] == {
        "provider": "openai",
        "api": "chat_completions",
        "execution_boundary": "host_custom_function",
        "request_item": {
            "type": "function",
            "id": "c1",
            "name": "look",
            "arguments_digest": DIGEST({"q": 1}),
        },
        "result_item": {"type": "tool", "tool_call_id": "c1", "content_digest": DIGEST(["c1"])},
    }
    assert tracer.records[2].object["evidence_bundle"]["request_digest"] == Digester().bytes(b"select 1")
    assert audit_strict(tracer.records).findings == ()
