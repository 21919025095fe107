"""What a request says of its session: whose words are whose, and which texts came from outside."""

from __future__ import annotations

from typing import Any

import pytest

from memoflow.inspection import ManifestSeen, ManifestTool, Prompt, ToolResult
from memoflow.inspection.calls import API, calls_in_reply, continues, history, results_in_reply
from tests.inspection.calls._streams import APIS, Call, Said, whole


def told(api: API, body: dict[str, Any]) -> list[tuple[str, ...]]:
    """What a request says, as plain tuples."""
    found: list[tuple[str, ...]] = []
    for one in history(api, body):
        match one:
            case Prompt():
                found.append(("prompt", one.content))
            case ToolResult():
                found.append((one.tool, one.content, one.source.trust))
    return found


CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "No jokes."}]},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {}}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "page one"}]},
        {"role": "tool", "tool_call_id": "other", "content": "page two"},
        {"role": "function", "name": "old", "content": "page three"},
        {"role": "assistant", "content": "I looked."},
        "noise",
    ]
}
MESSAGES: dict[str, Any] = {
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "lookup", "input": {}},
                {
                    "type": "web_search_tool_result",
                    "content": [{"type": "web_search_result", "title": "found page"}],
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "page one"},
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "content": [
                        {"type": "text", "text": "page two"},
                        {"type": "search_result", "content": [{"type": "text", "text": "page three"}]},
                    ],
                },
                {"type": "text", "text": "And this."},
                {"type": "document", "source": {"type": "text", "data": "page four"}},
                {
                    "type": "document",
                    "source": {"type": "content", "content": [{"type": "text", "text": "page five"}]},
                },
                {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
            ],
        },
    ],
}
RESPONSES: dict[str, Any] = {
    "instructions": "Be brief.",
    "input": [
        {"role": "developer", "content": "No jokes."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "lookup", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "page one"},
        {
            "type": "custom_tool_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "page two"}],
        },
        {
            "type": "mcp_call",
            "name": "remote",
            "server_label": "s",
            "arguments": "{}",
            "output": "page three",
        },
        {"type": "shell_call_output", "call_id": "c3", "output": [{"stdout": "page four"}]},
        {"role": "assistant", "content": "I looked."},
    ],
}


def test_a_chat_request_is_read() -> None:
    """Users and developers prompt, tools return, and what the model said is neither."""
    assert told("chat", CHAT) == [
        ("prompt", "Be brief."),
        ("prompt", "No jokes."),
        ("prompt", "Look."),
        ("prompt", '{"type": "image_url", "image_url": {}}'),
        ("lookup", "page one", "untrusted"),
        ("(api-tool)", "page two", "untrusted"),
        ("old", "page three", "untrusted"),
    ]


def test_a_messages_request_is_read() -> None:
    """Texts inside of lists, documents and search results too; what is attached is not the user's word."""
    assert told("messages", MESSAGES) == [
        ("prompt", "Be brief."),
        ("prompt", "Look."),
        ("(web_search)", '{"type": "web_search_result", "title": "found page"}', "untrusted"),
        ("lookup", "page one", "untrusted"),
        ("(api-tool)", "page two\npage three", "untrusted"),
        ("prompt", "And this."),
        ("(attachment)", "page four", "untrusted"),
        ("(attachment)", "page five", "untrusted"),
    ]


def test_a_responses_request_is_read() -> None:
    """Every item that holds an output is one, whoever ran it."""
    assert told("responses", RESPONSES) == [
        ("prompt", "Be brief."),
        ("prompt", "No jokes."),
        ("prompt", "Look."),
        ("lookup", "page one", "untrusted"),
        ("(api-tool)", "page two", "untrusted"),
        ("(remote)", "page three", "untrusted"),
        ("(api-tool)", '{"stdout": "page four"}', "untrusted"),
    ]
    assert told("responses", {"input": "Just this."}) == [("prompt", "Just this.")]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "body", [{}, {"messages": 5, "input": 7}, {"messages": [7, None, {}], "input": [None, {}]}]
)
def test_an_odd_request_says_nothing(api: API, body: dict[str, Any]) -> None:
    """And raises nothing: what is refused is the API's to refuse."""
    assert told(api, body) == []
    assert calls_in_reply(api, {"choices": body, "content": 5, "output": [5]}) == ()
    assert results_in_reply(api, {"content": [5], "output": 5}) == ()


@pytest.mark.parametrize(
    ("api", "body", "goes_on_from"),
    [
        ("responses", {"previous_response_id": "resp_1"}, "resp_1"),
        ("responses", {"conversation": "conv_1"}, "conv_1"),
        ("responses", {"conversation": {"id": "conv_1"}}, "conv_1"),
        ("responses", {"input": "x"}, None),
        ("chat", {"previous_response_id": "resp_1"}, None),
    ],
)
def test_a_request_that_goes_on_from_another_says_so(
    api: API, body: dict[str, Any], goes_on_from: str | None
) -> None:
    """Its history is not in it, so its taint is not either."""
    assert continues(api, body) == goes_on_from


@pytest.mark.parametrize("api", APIS)
def test_calls_of_a_whole_reply_are_read(api: API) -> None:
    """In order, with their ids; a call without arguments has none."""
    made = calls_in_reply(api, whole(api, Said("x", (Call("lookup", {"a": 1}), Call("save_note", {})))))
    assert [(call.name, call.event().args, call.complete, call.ran) for call in made] == [
        ("lookup", {"a": 1}, True, False),
        ("save_note", {}, True, False),
    ]
    assert len({call.call_id for call in made}) == 2


def test_arguments_that_are_no_json_are_judged_as_they_stand() -> None:
    """A lenient client runs what a strict one refuses, so both readings are looked at."""

    def args(text: Any) -> Any:
        function = {"name": "f", "arguments": text}
        body = {
            "choices": [{"message": {"tool_calls": [{"id": "c", "type": "function", "function": function}]}}]
        }
        (call,) = calls_in_reply("chat", body)
        return call.event().args, call.event().raw

    assert args("") == ({}, "")
    assert args("{cut") == ("{cut", "{cut")
    assert args('{"a": 1, "a": 2}') == ({"a": 2}, '{"a": 1, "a": 2}')
    assert args(None) == ({}, "")


def test_what_the_provider_ran_is_known_as_such() -> None:
    """Its calls are told and not stopped, and its results are texts from outside."""
    message = {
        "content": [
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "s",
                "content": [{"type": "text", "text": "page"}],
            },
            {"type": "mcp_tool_use", "id": "m", "name": "n", "server_name": "srv", "input": {}},
        ]
    }
    assert [(c.name, c.ran) for c in calls_in_reply("messages", message)] == [
        ("web_search", True),
        ("srv.n", True),
    ]
    assert [r.content for r in results_in_reply("messages", message)] == ["page"]
    response = {
        "output": [
            {
                "type": "code_interpreter_call",
                "id": "c",
                "code": "1+1",
                "outputs": [{"type": "logs", "logs": "2"}],
            },
            {"type": "file_search_call", "id": "f", "queries": ["q"], "results": [{"text": "page"}]},
        ]
    }
    assert [(c.name, c.ran) for c in calls_in_reply("responses", response)] == [
        ("code_interpreter_call", True),
        ("file_search_call", True),
    ]
    assert [r.content for r in results_in_reply("responses", response)] == [
        '{"type": "logs", "logs": "2"}',
        "page",
    ]


def test_what_a_server_says_of_its_tools_is_read_too() -> None:
    """In a reply that lists them, and in a request that sends the list back; whatever form it has."""
    tools = [
        {
            "name": "wiki",
            "description": "Ask the wiki.",
            "input_schema": {"type": "object"},
            "annotations": None,
        },
        {"name": 7, "description": None},
        "noise",
    ]
    listed = {"type": "mcp_list_tools", "id": "l", "server_label": "docs", "tools": tools}
    seen = ManifestSeen(
        "docs",
        (ManifestTool("wiki", "Ask the wiki.", {"type": "object"}), ManifestTool("", "", None)),
    )
    assert results_in_reply("responses", {"output": [listed]}) == (seen,)
    assert history("responses", {"input": [listed]}) == (seen,)
    assert history("responses", {"input": [{**listed, "tools": None}]}) == (ManifestSeen("docs", ()),)


@pytest.mark.parametrize("kind", ["mcp_call", "mcp_list_tools"])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("It is away.", "It is away."),
        ({"type": "http_error", "message": "away"}, '{"type": "http_error", "message": "away"}'),
        (None, None),
    ],
)
def test_an_error_that_a_server_tells_is_read_as_a_result_is(kind: str, error: Any, said: str | None) -> None:
    """It chooses those words too, and the model reads them."""
    item = {"type": kind, "id": "m", "server_label": "docs", "output": None, "error": error}
    read = [one for one in results_in_reply("responses", {"output": [item]}) if isinstance(one, ToolResult)]
    assert [(one.tool, one.content) for one in read] == ([] if said is None else [(f"({kind})", said)])
    assert not read or read[0].source.trust == "untrusted"
