"""Claude's content blocks, as its SDK has them, become records."""

from __future__ import annotations

from typing import Any

import pytest

anthropic_types = pytest.importorskip("anthropic.types")

from memoflow.canonical import Digester  # noqa: E402
from memoflow.causal.adapters import Seen, anthropic_messages, correlate  # noqa: E402
from memoflow.causal.strict import audit_strict  # noqa: E402
from tests.causal.test_adapters_openai import traced  # noqa: E402


def message(*blocks: dict[str, Any]) -> Any:
    """The SDK's own object."""
    return anthropic_types.Message.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": list(blocks),
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    )


def tool_use(id: str) -> dict[str, Any]:
    """A call of a client tool."""
    return {"type": "tool_use", "id": id, "name": "look", "input": {"q": 1}}


def tool_result(id: str, content: Any = "fine", **more: Any) -> dict[str, Any]:
    """The host's answer to it."""
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


@pytest.mark.parametrize("failed", [True, False])
def test_a_call_and_its_result_are_one_record(failed: bool) -> None:
    """With the envelope of the specification, exactly; an error is said to be one."""
    reply = message(tool_use("t1"))
    seen = anthropic_messages.read(
        [*reply.content, tool_result("t1", is_error=failed)], stop_reason=reply.stop_reason
    )
    _, record = traced(seen).records
    arguments, result = Digester().json({"q": 1}), Digester().json("fine")
    assert record.to_dict()["object"]["provider_envelope"] == {
        "provider": "claude",
        "api": "messages",
        "execution_boundary": "client_side_tool",
        "assistant_stop_reason": "tool_use",
        "request_block": {"type": "tool_use", "id": "t1", "name": "look", "input_digest": arguments},
        "result_block": {
            "type": "tool_result",
            "tool_use_id": "t1",
            "is_error": failed,
            "content_digest": result,
        },
    }
    assert list(record.object["provider_envelope"]["result_block"]) == [
        "type",
        "tool_use_id",
        "is_error",
        "content_digest",
    ]


def test_parallel_calls_are_branches_that_are_joined() -> None:
    """As with the other provider."""
    reply = message({"type": "text", "text": "I will look."}, tool_use("t1"), tool_use("t2"))
    tracer = traced(anthropic_messages.read([*reply.content, tool_result("t2"), tool_result("t1")]))
    assert tracer.problems == []
    assert [record.parent_cause for record in tracer.records[1:]] == ["root"] * 3
    assert tracer.records[-1].joins == ("r1", "r2")
    assert audit_strict(tracer.records).findings == ()


def test_server_tools_are_recorded_after_the_fact() -> None:
    """Their results stand in blocks of their own kinds, errors among them."""
    result = {
        "type": "web_search_result",
        "title": "t",
        "url": "u",
        "encrypted_content": "e",
        "page_age": None,
    }
    error = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    reply = message(
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [result]},
        {"type": "server_tool_use", "id": "s2", "name": "web_search", "input": {"query": "r"}},
        {"type": "web_search_tool_result", "tool_use_id": "s2", "content": error},
    )
    seen = anthropic_messages.read(reply.content)
    pairs, orphans = correlate(seen)
    assert orphans == ()
    assert [(pair.call.hosted, pair.problems) for pair in pairs] == [(True, ()), (True, ())]
    assert [pair.result.is_error for pair in pairs if pair.result] == [False, True]
    tracer = traced(seen)
    assert tracer.records[1].object["provider_envelope"]["execution_boundary"] == "server_side_tool"
    assert audit_strict(tracer.records).findings == ()


def test_mcp_tools_of_the_provider_are_hosted() -> None:
    """As other tools that it executes; plain JSON is read as well as objects."""
    blocks = [
        {"type": "mcp_tool_use", "id": "m1", "name": "ask", "server_name": "s", "input": {}},
        {
            "type": "mcp_tool_result",
            "tool_use_id": "m1",
            "is_error": True,
            "content": [{"type": "text", "text": "no"}],
        },
    ]
    ((pair,), _) = correlate(anthropic_messages.read(blocks))
    assert pair.call.hosted
    assert pair.result is not None
    assert pair.result.is_error


def test_text_and_thinking_are_passed_over() -> None:
    """They cross no boundary."""
    assert anthropic_messages.read(
        [{"type": "text", "text": "x"}, {"type": "thinking"}, {"type": None}]
    ) == Seen((), ())


def test_a_result_has_one_digest_however_its_json_was_written() -> None:
    """Text that is one JSON document is digested as that."""
    digests = {
        traced(anthropic_messages.read([tool_use("t"), tool_result("t", text)]))
        .records[1]
        .object["evidence_bundle"]["result_digest"]
        for text in ('{"a": 1, "b": [2]}', '{"b":[2],"a":1}\n', '{"b":[2.0],"a":1}')
    }
    assert digests == {Digester().json({"a": 1, "b": [2]})}
