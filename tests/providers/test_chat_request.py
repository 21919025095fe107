"""Requests of chat completions."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
from openai.types.chat import ChatCompletionToolUnionParam, completion_create_params
from openai.types.chat.chat_completion_message import ChatCompletionMessage
from pydantic import TypeAdapter

from memoflow.errors import ConfigurationError, InvalidRequest
from memoflow.providers._chat_measure import _NOT_PROMPT
from memoflow.providers._chat_request import CAP_FIELDS
from memoflow.providers.openai_chat import OpenAIChatCodec
from memoflow.tools import Toolset, tool
from tests.providers._chat_bodies import CODEC

SIMPLE: dict[str, Any] = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}


@tool(version="v1", effect="read_only")
def lookup(city: str) -> str:
    """Look a city up."""
    return city


@tool(version="v1", effect="read_only", custom=True)
def patch(text: str) -> str:
    """Apply a patch."""
    return text


@tool(version="v1", effect="read_only", namespace="crm")
def find(name: str) -> str:
    """Find a customer."""
    return name


@tool(version="v1", effect="read_only", description="")
def loose(city: str = "Rome") -> str:
    return city


def test_a_request_is_frozen() -> None:
    """Changing the caller's object after the call was prepared changes nothing."""
    part = {"type": "text", "text": "hi"}
    request: dict[str, Any] = {"model": "gpt-5", "messages": [{"role": "user", "content": [part]}]}
    prepared = CODEC.prepare(request)
    part["text"] = "changed"
    request["model"] = "other"
    assert prepared.body["messages"][0]["content"][0]["text"] == "hi"
    assert prepared.model == prepared.body["model"] == "gpt-5"


def test_a_request_is_left_as_it_is() -> None:
    """Nothing is added, renamed or reordered, unknown fields included; streaming is not part of the body."""
    request = {**SIMPLE, "brand_new": {"b": 1, "a": [None, 1.5]}, "store": False, "max_tokens": None}
    for streaming in (False, True):
        prepared = CODEC.prepare(request, streaming=streaming)
        assert list(prepared.body.items()) == list(request.items())
        assert prepared.streaming is streaming


def test_mappings_sequences_and_models_become_plain_json() -> None:
    """A request may be built from the SDK's own objects."""
    said = ChatCompletionMessage(role="assistant", content="hello")
    prepared = CODEC.prepare(OrderedDict(model="gpt-5", messages=(said,)))
    assert prepared.body["messages"] == [{"role": "assistant", "content": "hello"}]


@pytest.mark.parametrize("request_", [None, [], "text", 5])
def test_a_request_must_be_a_mapping(request_: Any) -> None:
    """Anything else is refused with its type."""
    with pytest.raises(InvalidRequest, match="must be a mapping"):
        CODEC.prepare(request_)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"stream": True}, "key 'stream'"),
        ({"extra_body": {}}, "key 'extra_body'"),
        ({"extra_headers": {}}, "key 'extra_headers'"),
        ({"extra_query": {}}, "key 'extra_query'"),
        ({"timeout": 5}, "key 'timeout'"),
        ({"functions": []}, "replaced by tools"),
        ({"function_call": "auto"}, "replaced by tool_choice"),
        ({"stream_options": {"include_usage": True}}, "only has a meaning for stream"),
        ({"model": ""}, "names no model"),
        ({"model": None}, "names no model"),
        ({"messages": None}, "messages must be a list"),
        ({"messages": "hi"}, "messages must be a list"),
        ({"messages": ["hi"]}, "messages must be a list"),
        ({"max_tokens": 5, "max_completion_tokens": 5}, "two names of one limit"),
        ({"max_tokens": 0}, "max_tokens must be a whole number from 1 to"),
        ({"max_tokens": True}, "max_tokens must be a whole number from 1 to"),
        ({"max_completion_tokens": "9"}, "max_completion_tokens must be a whole number from 1 to"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens must be a whole number from 1 to"),
        ({"n": 0}, "n must be a whole number from 1 to 128"),
        ({"n": 129}, "n must be a whole number from 1 to 128"),
        ({"n": True}, "n must be a whole number from 1 to 128"),
        ({"n": "2"}, "n must be a whole number from 1 to 128"),
        ({"tools": {}}, "tools must be a list of objects"),
        ({"tools": [{"function": {"name": "f"}}]}, "tools must be a list of objects"),
        ({"tools": [{"type": "function", "name": "f"}]}, "has no name"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "has no name"),
        ({"tools": [{"type": "custom", "custom": {}}]}, "has no name"),
        ({"tools": [{"type": "namespace", "name": "crm"}]}, "no namespaces"),
        ({"tool_choice": 5}, "tool_choice must be"),
    ],
)
def test_what_cannot_be_right_is_refused(more: dict[str, Any], sentence: str) -> None:
    """Before anything is reserved, with what to do instead."""
    with pytest.raises(InvalidRequest, match=sentence):
        CODEC.prepare({**SIMPLE, **more})


def test_stream_options_are_an_object() -> None:
    """They are completed for a stream, so they have to be one."""
    with pytest.raises(InvalidRequest, match="must be an object"):
        CODEC.prepare({**SIMPLE, "stream_options": "usage"}, streaming=True)


def test_no_message_shows_payload() -> None:
    """What is wrong is said without the value of the caller."""
    for more in (
        {"max_tokens": "secret"},
        {"messages": {"secret": "secret"}},
        {"tools": [{"type": "function", "secret": "secret"}]},
        {"n": "secret"},
        {"stream": "secret"},
    ):
        with pytest.raises(InvalidRequest) as caught:
            CODEC.prepare({**SIMPLE, **more})
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("field", CAP_FIELDS)
def test_the_cap_is_the_one_the_request_names(field: str) -> None:
    """Whichever of the two names it uses is used again; null is no cap."""
    prepared = CODEC.prepare({**SIMPLE, field: 10})
    assert prepared.output_cap == 10
    assert CODEC.with_cap(prepared.body, 7) == {**SIMPLE, field: 7}
    assert prepared.body[field] == 10
    assert CODEC.prepare({**SIMPLE, field: None}).output_cap is None


@pytest.mark.parametrize("field", CAP_FIELDS)
def test_a_request_without_a_cap_gets_the_codec_s(field: str) -> None:
    """OpenAI's newer models refuse one name, many servers know no other."""
    body = OpenAIChatCodec(cap_field=field).with_cap({**SIMPLE, "max_tokens": None}, 7)
    assert body[field] == 7
    assert [body.get(name) for name in CAP_FIELDS if name != field] == [None]


def test_the_codec_s_cap_field_is_one_of_the_two() -> None:
    """Another name would leave the output without a bound."""
    with pytest.raises(ConfigurationError, match="cap_field must be one of"):
        OpenAIChatCodec(cap_field="max_output_tokens")


@pytest.mark.parametrize("cap", [0, -5, True])
def test_with_cap_never_sends_a_cap_that_means_no_cap(cap: int) -> None:
    """A reservation without room for output is refused, not sent as zero."""
    with pytest.raises(InvalidRequest, match="at least 1 token"):
        CODEC.with_cap({}, cap)


def test_a_stream_asks_for_its_usage() -> None:
    """What the caller asked of the stream stays; the body that the record is bound to has none of it."""
    prepared = CODEC.prepare({**SIMPLE, "stream_options": {"include_obfuscation": False}}, streaming=True)
    body = CODEC.streamed(prepared.body)
    assert body["stream"] is True
    assert body["stream_options"] == {"include_obfuscation": False, "include_usage": True}
    assert "include_usage" not in prepared.body["stream_options"]
    assert CODEC.streamed(SIMPLE) == {**SIMPLE, "stream": True, "stream_options": {"include_usage": True}}


def test_choices_are_what_is_asked_for() -> None:
    """Each is generated up to the cap."""
    assert CODEC.prepare(SIMPLE).choices == 1
    assert CODEC.prepare({**SIMPLE, "n": None}).choices == 1
    assert CODEC.prepare({**SIMPLE, "n": 3}).choices == 3


def test_several_choices_have_no_tools() -> None:
    """No further round could say which of them it goes on with."""
    with pytest.raises(InvalidRequest, match="several choices"):
        CODEC.prepare({**SIMPLE, "n": 2}, Toolset([lookup]))
    assert CODEC.prepare({**SIMPLE, "n": 2}, Toolset([])).choices == 2
    assert CODEC.prepare({**SIMPLE, "n": 1}, Toolset([lookup])).choices == 1


def test_the_toolset_goes_into_a_request_without_tools() -> None:
    """Functions and freeform tools take the form the API wants, in the order of the toolset."""
    prepared = CODEC.prepare(SIMPLE, Toolset([lookup, patch, loose]))
    described = {"name": "lookup", "description": "Look a city up.", "parameters": lookup.schema}
    assert prepared.body["tools"] == [
        {"type": "function", "function": {**described, "strict": True}},
        {"type": "custom", "custom": {"name": "patch", "description": "Apply a patch."}},
        {"type": "function", "function": {"name": "loose", "parameters": loose.schema}},
    ]
    assert prepared.offered == {(None, "lookup"), (None, "patch"), (None, "loose")}
    assert prepared.hosted == ()


def test_the_tools_that_go_in_are_what_the_sdk_calls_tools() -> None:
    """The entries validate as the SDK's own types without loss."""
    adapter: TypeAdapter[Any] = TypeAdapter(ChatCompletionToolUnionParam)
    for entry in CODEC.prepare(SIMPLE, Toolset([lookup, patch, loose])).body["tools"]:
        assert adapter.validate_python(entry) == entry


def test_a_namespace_is_refused() -> None:
    """Leaving it out could give two tools one name."""
    with pytest.raises(InvalidRequest, match="'find' is in the namespace 'crm'"):
        CODEC.prepare(SIMPLE, Toolset([lookup, find]))


def test_a_request_with_tools_is_sent_unchanged() -> None:
    """The registered tools do not go in, and only the named ones are offered."""
    own = {"type": "function", "function": {"name": "own", "parameters": {}}}
    prepared = CODEC.prepare({**SIMPLE, "tools": [own]}, Toolset([lookup]))
    assert prepared.body["tools"] == [own]
    assert prepared.offered == {(None, "own")}
    assert CODEC.prepare({**SIMPLE, "tools": []}, Toolset([lookup])).offered == frozenset()


def test_a_request_that_names_no_tools_offers_none() -> None:
    """None says that the request does not restrict; an empty toolset adds nothing."""
    for toolset in (None, Toolset([])):
        prepared = CODEC.prepare(SIMPLE, toolset)
        assert prepared.offered is None
        assert "tools" not in prepared.body


def test_what_runs_elsewhere_is_hosted() -> None:
    """Tools of other types and the search of the API itself; types reach the ledger, so only words do."""
    tools = [{"type": "function", "function": {"name": "f"}}, {"type": "builtin_function"}, {"type": "a b"}]
    prepared = CODEC.prepare({**SIMPLE, "tools": tools, "web_search_options": {}})
    assert prepared.hosted == ("builtin_function", "unknown", "web_search")
    assert prepared.offered == {(None, "f")}


OWN = [{"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {"name": "c"}}]
ALL = {(None, "f"), (None, "c")}


@pytest.mark.parametrize(
    ("choice", "offered"),
    [
        (None, ALL),
        ("auto", ALL),
        ("required", ALL),
        ({"type": "web_search"}, ALL),
        ({"type": "function", "function": {"name": "f"}}, {(None, "f")}),
        ({"type": "custom", "custom": {"name": "c"}}, {(None, "c")}),
        ({"type": "function", "function": {"name": "other"}}, set()),
        ({"type": "function", "name": "f"}, set()),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "custom", "custom": {"name": "c"}}, 5]},
            },
            {(None, "c")},
        ),
        ({"type": "allowed_tools", "tools": OWN}, set()),
        ({"type": "allowed_tools", "allowed_tools": {"tools": "f"}}, set()),
    ],
)
def test_a_tool_choice_narrows_what_is_offered(choice: Any, offered: set[tuple[None, str]]) -> None:
    """A call outside the chosen subset is outside the offer, although its tool is in the request."""
    prepared = CODEC.prepare({**SIMPLE, "tools": OWN, "tool_choice": choice})
    assert prepared.offered == offered
    assert prepared.calls_allowed


def test_tool_choice_none_allows_no_call() -> None:
    """The tools stay in the request, but no call may be answered."""
    prepared = CODEC.prepare({**SIMPLE, "tools": OWN, "tool_choice": "none"})
    assert not prepared.calls_allowed
    assert prepared.offered == ALL


def test_the_sdk_has_the_fields_this_codec_knows() -> None:
    """Names that decide something are names of the installed SDK."""
    keys = set(completion_create_params.CompletionCreateParamsBase.__annotations__)
    assert keys >= _NOT_PROMPT
    assert {"messages", "n", "tools", "tool_choice", "functions", "function_call", *CAP_FIELDS} <= keys
    assert {"prediction", "modalities", "web_search_options", "response_format", "stream_options"} <= keys
