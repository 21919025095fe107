"""Requests of the Responses API."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import pytest
from openai.types.responses import response_create_params
from openai.types.responses.response_output_text import ResponseOutputText
from pydantic import BaseModel

from memoflow.errors import InvalidRequest
from memoflow.providers._responses_request import MEASURED_TOOLS
from memoflow.tools import Toolset, tool
from tests.providers._bodies import CODEC, function_call

SIMPLE = {"model": "gpt-5", "input": "hi"}


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


@tool(version="v1", effect="idempotent", namespace="crm", custom=True, description="")
def note(text: str) -> str:
    return text


@tool(version="v1", effect="read_only")
def loose(city: str = "Rome") -> str:
    """A default that strict mode cannot say."""
    return city


def test_a_request_is_frozen() -> None:
    """Changing the caller's object after the call was prepared changes nothing."""
    part = {"type": "input_text", "text": "hi"}
    request: dict[str, Any] = {"model": "gpt-5", "input": [{"role": "user", "content": [part]}]}
    prepared = CODEC.prepare(request)
    part["text"] = "changed"
    request["model"] = "other"
    assert prepared.body["input"][0]["content"][0]["text"] == "hi"
    assert prepared.model == prepared.body["model"] == "gpt-5"


def test_a_request_is_left_as_it_is() -> None:
    """Nothing is added, renamed or reordered, unknown fields included; streaming is not part of the body."""
    request = {**SIMPLE, "brand_new": {"b": 1, "a": [None, 1.5]}, "store": False, "max_output_tokens": None}
    for streaming in (False, True):
        prepared = CODEC.prepare(request, streaming=streaming)
        assert list(prepared.body.items()) == list(request.items())
        assert prepared.streaming is streaming


def test_mappings_sequences_and_models_become_plain_json() -> None:
    """A request may be built from the SDK's own objects."""
    text = ResponseOutputText(type="output_text", text="hi", annotations=[])
    request: Mapping[str, Any] = OrderedDict(model="gpt-5", input=({"role": "user", "content": [text]},))
    content = CODEC.prepare(request).body["input"][0]["content"]
    assert content == [{"type": "output_text", "text": "hi", "annotations": []}]


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), "\ud83d", {1: "a"}, {"\ud83d": 1}, b"x", {1, 2}, object(), 10**5000],
    ids=["nan", "inf", "surrogate", "int key", "surrogate key", "bytes", "set", "object", "huge int"],
)
def test_what_json_cannot_carry_is_refused(value: object) -> None:
    """It is refused before anything is reserved, wherever it stands."""
    for request in (
        {**SIMPLE, "metadata": {"a": [value]}},
        {"model": "gpt-5", "input": [{"content": value}]},
    ):
        with pytest.raises(InvalidRequest):
            CODEC.prepare(request)


@pytest.mark.parametrize("request_", [None, [], "text", 5])
def test_a_request_must_be_a_mapping(request_: Any) -> None:
    """Anything else is refused with its type."""
    with pytest.raises(InvalidRequest, match="must be a mapping"):
        CODEC.prepare(request_)


@pytest.mark.parametrize("cap", [0, -1, "10", True, False, 1.0, 10.5, [], {}, 10**30])
def test_a_cap_that_is_no_positive_whole_number_is_refused(cap: object) -> None:
    """A limit that cannot be meant is never repaired or dropped."""
    with pytest.raises(InvalidRequest, match="max_output_tokens must be a whole number from 1 to"):
        CODEC.prepare({**SIMPLE, "max_output_tokens": cap})


def test_the_cap_of_the_request_is_reported() -> None:
    """Null is no cap, as for the API."""
    assert CODEC.prepare({**SIMPLE, "max_output_tokens": 10}).output_cap == 10
    assert CODEC.prepare({**SIMPLE, "max_output_tokens": None}).output_cap is None
    assert CODEC.prepare(SIMPLE).output_cap is None


def test_with_cap_changes_a_copy() -> None:
    """The body that the record is bound to keeps the caller's cap."""
    prepared = CODEC.prepare({**SIMPLE, "max_output_tokens": 10})
    assert CODEC.with_cap(prepared.body, 7) == {**SIMPLE, "max_output_tokens": 7}
    assert prepared.body["max_output_tokens"] == 10


@pytest.mark.parametrize("cap", [0, -5, True])
def test_with_cap_never_sends_a_cap_that_means_no_cap(cap: int) -> None:
    """A reservation without room for output is refused, not sent as zero."""
    with pytest.raises(InvalidRequest, match="at least 1 token"):
        CODEC.with_cap({}, cap)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("stream", True),
        ("stream", False),
        ("stream", None),
        ("background", True),
        ("background", "yes"),
        ("background_options", {}),
        ("extra_body", {"max_output_tokens": 9}),
        ("extra_headers", {}),
        ("extra_query", {}),
        ("timeout", 5),
        ("stream_options", {"include_obfuscation": False}),
    ],
)
def test_keys_that_memoflow_decides_are_refused(key: str, value: object) -> None:
    """How a call is sent is decided by the method; the sentence names the key and what to do."""
    with pytest.raises(InvalidRequest, match=key if key != "background" else "background response"):
        CODEC.prepare({**SIMPLE, key: value})


def test_switched_off_is_as_good_as_absent() -> None:
    """Explicit defaults are no reason to refuse, and stream options belong to a stream."""
    CODEC.prepare({**SIMPLE, "background": False, "stream_options": None})
    CODEC.prepare({**SIMPLE, "stream_options": {"include_obfuscation": False}}, streaming=True)


@pytest.mark.parametrize("model", [None, "", " ", 5, "gpt\0"])
def test_a_request_names_its_model(model: object) -> None:
    """Calls are priced and recorded by model, so there is no call without one."""
    with pytest.raises(InvalidRequest, match="names no model"):
        CODEC.prepare({"model": model, "input": "hi"})


@pytest.mark.parametrize("given", [5, {"role": "user"}, ["hi"], [None], True])
def test_input_is_text_or_items(given: object) -> None:
    """What cannot be continued or measured is refused."""
    with pytest.raises(InvalidRequest, match="input must be text or a list"):
        CODEC.prepare({"model": "gpt-5", "input": given})


def test_two_histories_are_refused() -> None:
    """The API does not take a conversation together with an earlier response."""
    request = {**SIMPLE, "previous_response_id": "resp_0", "conversation": "conv_1"}
    with pytest.raises(InvalidRequest, match="exclude each other"):
        CODEC.prepare(request)


def test_no_message_shows_payload() -> None:
    """What is wrong is said without the value of the caller."""
    for request in (
        {**SIMPLE, "max_output_tokens": "secret"},
        {"model": "gpt-5", "input": {"secret": "secret"}},
        {**SIMPLE, "tools": [{"type": "function", "secret": "secret"}]},
        {**SIMPLE, "stream": "secret"},
    ):
        with pytest.raises(InvalidRequest) as caught:
            CODEC.prepare(request)
        assert "secret" not in str(caught.value)


def test_the_toolset_goes_into_a_request_without_tools() -> None:
    """Functions, freeform tools and namespaces take the form the API wants, in the order of the toolset."""
    prepared = CODEC.prepare(SIMPLE, Toolset([find, lookup, patch, note, loose]))
    crm, first, second, third = prepared.body["tools"]
    assert first == {
        "type": "function",
        "name": "lookup",
        "description": "Look a city up.",
        "parameters": lookup.schema,
        "strict": True,
    }
    assert second == {"type": "custom", "name": "patch", "description": "Apply a patch."}
    assert (third["name"], third["strict"]) == ("loose", False)
    assert (crm["type"], crm["name"], [member["name"] for member in crm["tools"]]) == (
        "namespace",
        "crm",
        ["find", "note"],
    )
    assert crm["tools"][1] == {"type": "custom", "name": "note"}
    assert prepared.offered == {
        ("crm", "find"),
        ("crm", "note"),
        (None, "lookup"),
        (None, "patch"),
        (None, "loose"),
    }


def test_the_tools_that_go_in_are_what_the_sdk_calls_tools() -> None:
    """The entries validate as the SDK's own types without loss."""
    from openai.types.responses import Tool
    from pydantic import TypeAdapter

    for entry in CODEC.prepare(SIMPLE, Toolset([find, lookup, patch, note])).body["tools"]:
        parsed = TypeAdapter(Tool).validate_python(entry)
        assert isinstance(parsed, BaseModel)
        assert parsed.model_dump(exclude_unset=True) == entry


@pytest.mark.parametrize("tools", [[], [{"type": "function", "name": "own", "parameters": {}}]])
def test_a_request_with_tools_is_sent_unchanged(tools: list[dict[str, Any]]) -> None:
    """The registered tools do not go in, and only the named ones are offered."""
    prepared = CODEC.prepare({**SIMPLE, "tools": tools}, Toolset([lookup]))
    assert prepared.body["tools"] == tools
    assert prepared.offered == {(None, entry["name"]) for entry in tools}


def test_a_request_that_names_no_tools_offers_none() -> None:
    """None says that the request does not restrict; an empty toolset adds nothing."""
    for toolset in (None, Toolset([])):
        prepared = CODEC.prepare(SIMPLE, toolset)
        assert prepared.offered is None
        assert "tools" not in prepared.body


@pytest.mark.parametrize("tools", [None, {}, "lookup", [None], [{"name": "lookup"}], [{"type": 5}]])
def test_tools_of_another_shape_are_refused(tools: object) -> None:
    """A list of objects with a type, or nothing."""
    with pytest.raises(InvalidRequest, match="tools must be a list of objects"):
        CODEC.prepare({**SIMPLE, "tools": tools})


@pytest.mark.parametrize(
    "entry",
    [{"type": "function", "function": {"name": "f"}}, {"type": "custom"}, {"type": "namespace", "name": ""}],
)
def test_a_tool_without_a_name_is_refused(entry: dict[str, Any]) -> None:
    """The form of another API is told apart before it costs a request."""
    with pytest.raises(InvalidRequest, match="has no name"):
        CODEC.prepare({**SIMPLE, "tools": [entry]})


@pytest.mark.parametrize("choice", [5, [], True])
def test_a_tool_choice_of_another_shape_is_refused(choice: object) -> None:
    """Text or an object."""
    with pytest.raises(InvalidRequest, match="tool_choice"):
        CODEC.prepare({**SIMPLE, "tool_choice": choice})


INNER = {"type": "namespace", "name": "deep", "tools": [{"type": "function", "name": "g"}]}
OWN = [
    {"type": "function", "name": "f"},
    {"type": "custom", "name": "c"},
    {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "f"}, "bad", INNER]},
    {"type": "web_search"},
]
ALL = {(None, "f"), (None, "c"), ("crm", "f")}


@pytest.mark.parametrize(
    ("choice", "offered"),
    [
        (None, ALL),
        ("auto", ALL),
        ("required", ALL),
        ({"type": "web_search"}, ALL),
        ({"type": "function", "name": "f"}, {(None, "f"), ("crm", "f")}),
        ({"type": "function", "name": "f", "namespace": "crm"}, {("crm", "f")}),
        ({"type": "custom", "name": "c"}, {(None, "c")}),
        ({"type": "function", "name": "other"}, set()),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "c"}]},
            {(None, "c")},
        ),
        ({"type": "allowed_tools", "tools": [{"type": "namespace", "name": "crm"}]}, {("crm", "f")}),
        ({"type": "allowed_tools", "tools": [{"type": "web_search"}, 5]}, set()),
        ({"type": "allowed_tools"}, set()),
    ],
)
def test_a_tool_choice_narrows_what_is_offered(choice: Any, offered: set[tuple[str | None, str]]) -> None:
    """A call outside the chosen subset is outside the offer, although its tool is in the request."""
    prepared = CODEC.prepare({**SIMPLE, "tools": OWN, "tool_choice": choice})
    assert prepared.offered == offered
    assert prepared.calls_allowed
    assert prepared.hosted == ("web_search",)


def test_tool_choice_none_allows_no_call() -> None:
    """The tools stay in the request, but no call may be answered."""
    prepared = CODEC.prepare({**SIMPLE, "tools": OWN, "tool_choice": "none"})
    assert not prepared.calls_allowed
    assert prepared.offered == ALL


def test_tools_added_by_input_items_are_offered() -> None:
    """Tools may come with the history instead of with the request."""
    items = [
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "late"}]},
        {
            "type": "tool_search_output",
            "tools": [{"type": "mcp", "server_label": "x"}, {"type": "function"}, 5],
        },
        function_call(),
    ]
    prepared = CODEC.prepare({"model": "gpt-5", "input": items})
    assert prepared.offered == {(None, "late")}
    assert prepared.hosted == ("mcp",)


def test_a_hosted_type_that_is_no_word_is_not_repeated() -> None:
    """Types reach the ledger, so only words do."""
    prepared = CODEC.prepare({**SIMPLE, "tools": [{"type": "my secret prompt"}]})
    assert prepared.hosted == ("unknown",)


def test_the_sdk_has_the_fields_this_codec_knows() -> None:
    """Names that decide something are names of the installed SDK."""
    keys = set(response_create_params.ResponseCreateParamsBase.__annotations__)
    assert {
        "model",
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "max_output_tokens",
        "background",
    } <= keys
    assert {"previous_response_id", "conversation", "prompt", "context_management"} <= keys
    assert "stream" in response_create_params.ResponseCreateParamsStreaming.__annotations__
    assert {"function", "custom", "namespace"} == MEASURED_TOOLS
