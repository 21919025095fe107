"""Requests of the Messages API."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest
from anthropic.types import ToolParam, ToolUnionParam, message_create_params
from anthropic.types.browser_member_name import BROWSER_MEMBER_NAME_VALUES
from anthropic.types.computer_member_name import COMPUTER_MEMBER_NAME_VALUES
from pydantic import BaseModel, Field, TypeAdapter

from memoflow.errors import InvalidRequest
from memoflow.providers import _messages_tools
from memoflow.providers.anthropic_messages import AnthropicMessagesCodec
from memoflow.tools import Toolset, tool
from tests.providers._message_bodies import CODEC

USER = {"role": "user", "content": "hi"}
SIMPLE = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": [USER]}


@tool(version="v1", effect="read_only")
def lookup(city: str) -> str:
    """Look a city up."""
    return city


@tool(version="v1", effect="read_only", description="")
def loose(city: str = "Rome") -> str:
    """A default that strict mode cannot say."""
    return city


@tool(version="v1", effect="read_only", custom=True)
def patch(text: str) -> str:
    """Apply a patch."""
    return text


@tool(version="v1", effect="read_only", namespace="crm")
def find(name: str) -> str:
    """Find a customer."""
    return name


class Leaf(BaseModel):
    """A model within another."""

    maximum: str


class Branch(BaseModel):
    """A model with models within it."""

    leaf: Leaf
    leaves: list[Leaf]


class Tree(BaseModel):
    """A model that leads back to itself."""

    children: list[Tree]


class Ranged(BaseModel):
    """Limits that the provider's strict mode does not take."""

    n: int = Field(ge=1)


class Bounded(BaseModel):
    """The same, deeper."""

    items: list[Ranged]


def test_a_request_is_frozen() -> None:
    """Changing the caller's object after the call was prepared changes nothing."""
    message = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    prepared = CODEC.prepare({**SIMPLE, "messages": [message]})
    message["content"][0]["text"] = "changed"  # type: ignore[index]
    assert prepared.body["messages"][0]["content"][0]["text"] == "hi"
    assert prepared.model == "claude-sonnet-4-5"


def test_a_request_is_left_as_it_is() -> None:
    """Nothing is added, renamed or reordered, unknown fields included; streaming is not part of the body."""
    request = {**SIMPLE, "brand_new": {"b": 1, "a": [None, 1.5]}, "system": "be brief"}
    for streaming in (False, True):
        prepared = CODEC.prepare(request, streaming=streaming)
        assert list(prepared.body.items()) == list(request.items())
        assert prepared.streaming is streaming


def test_a_stream_is_asked_for_in_a_copy() -> None:
    """The record of a call is bound to the body without it, and the cap stays in one field."""
    body = CODEC.prepare(SIMPLE).body
    assert CODEC.streamed(body) == {**SIMPLE, "stream": True}
    assert CODEC.with_cap(body, 7) == {**SIMPLE, "max_tokens": 7}
    assert body == SIMPLE


@pytest.mark.parametrize("cap", [0, -5, True])
def test_with_cap_never_sends_a_cap_that_means_no_cap(cap: int) -> None:
    """A reservation without room for output is refused, not sent as zero."""
    with pytest.raises(InvalidRequest, match="at least 1 token"):
        CODEC.with_cap({}, cap)


@pytest.mark.parametrize("cap", [0, -1, "10", True, 1.0, [], 10**30])
def test_a_cap_that_is_no_positive_whole_number_is_refused(cap: object) -> None:
    """Zero would only fill a prompt cache: there is no reply to return or record."""
    with pytest.raises(InvalidRequest, match="max_tokens must be a whole number from 1 to"):
        CODEC.prepare({**SIMPLE, "max_tokens": cap})


def test_the_api_wants_a_cap() -> None:
    """memoflow sets one from the budget where the request names none."""
    prepared = CODEC.prepare({key: value for key, value in SIMPLE.items() if key != "max_tokens"})
    assert (prepared.output_cap, prepared.cap_required, prepared.choices) == (None, True, 1)
    assert CODEC.prepare(SIMPLE).output_cap == 100


@pytest.mark.parametrize(
    ("thinking", "minimum"),
    [
        (None, 1),
        ({"type": "enabled", "budget_tokens": 1024}, 1025),
        ({"type": "disabled", "budget_tokens": 1024}, 1),
        ({"type": "adaptive"}, 1),
        ({"type": "enabled"}, 1),
        ({"type": "enabled", "budget_tokens": True}, 1),
        ({"type": "enabled", "budget_tokens": "1024"}, 1),
        ({"type": "enabled", "budget_tokens": -1}, 1),
        ("enabled", 1),
    ],
)
def test_a_cap_has_room_beside_the_thinking(thinking: Any, minimum: int) -> None:
    """The API refuses a cap that is not above the budget for thinking."""
    assert CODEC.prepare({**SIMPLE, "thinking": thinking}).cap_minimum == minimum


@pytest.mark.parametrize("key", ["stream", "extra_body", "extra_headers", "extra_query", "timeout"])
@pytest.mark.parametrize("value", [True, False, None, {}])
def test_keys_that_memoflow_decides_are_refused(key: str, value: object) -> None:
    """How a call is sent is decided by the method; the sentence names the key."""
    with pytest.raises(InvalidRequest, match=f"has the key '{key}'; "):
        CODEC.prepare({**SIMPLE, key: value})


def test_the_sdk_s_request_fields_are_not_refused() -> None:
    """Every field of the installed SDK's request goes through but the one that memoflow decides."""
    fields = get_type_hints(message_create_params.MessageCreateParamsBase)
    given = {key: {"type": "auto"} for key in fields} | SIMPLE | {"tools": []}
    assert CODEC.prepare(given).body == given


@pytest.mark.parametrize("model", [None, "", " ", 5, "claude\0"])
def test_a_request_names_its_model(model: object) -> None:
    """Calls are priced and recorded by model, so there is no call without one."""
    with pytest.raises(InvalidRequest, match="names no model"):
        CODEC.prepare({**SIMPLE, "model": model})


@pytest.mark.parametrize("messages", [None, "hi", {"role": "user"}, ["hi"], [None], 5])
def test_messages_are_a_list_of_objects(messages: object) -> None:
    """What cannot be continued or measured is refused."""
    with pytest.raises(InvalidRequest, match="messages must be a list"):
        CODEC.prepare({**SIMPLE, "messages": messages})
    with pytest.raises(InvalidRequest, match="messages must be a list"):
        CODEC.prepare({"model": "m"})


@pytest.mark.parametrize("request_", [None, [], "text", 5])
def test_a_request_must_be_a_mapping(request_: Any) -> None:
    """Anything else is refused with its type."""
    with pytest.raises(InvalidRequest, match="must be a mapping"):
        CODEC.prepare(request_)


@pytest.mark.parametrize("value", [float("nan"), "\ud83d", {1: "a"}, b"x", {1, 2}, object()])
def test_what_json_cannot_carry_is_refused(value: object) -> None:
    """It is refused before anything is reserved."""
    with pytest.raises(InvalidRequest):
        CODEC.prepare({**SIMPLE, "messages": [{"role": "user", "content": value}]})


@pytest.mark.parametrize("tools", [None, {}, "tools", ["a"], [None], [{"type": 5, "name": "a"}]])
def test_tools_are_a_list_of_objects(tools: object) -> None:
    """Null is no list either: whoever wants none leaves the key out."""
    with pytest.raises(InvalidRequest, match="tools must be a list"):
        CODEC.prepare({**SIMPLE, "tools": tools})


@pytest.mark.parametrize(
    "given",
    [
        {"type": "function", "function": {"name": "secret"}},
        {"type": "function", "name": "secret", "parameters": {}},
        {"input_schema": {}, "description": "secret"},
        {"name": "", "input_schema": {}},
        {"type": "custom", "name": 5},
    ],
)
def test_a_tool_of_another_api_is_refused(given: dict[str, Any]) -> None:
    """The sentence shows the form, and nothing of the tool."""
    with pytest.raises(InvalidRequest, match="input_schema") as caught:
        CODEC.prepare({**SIMPLE, "tools": [given]})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("choice", ["auto", "none", 5, [], {}, {"type": None}, {"name": "a"}])
def test_a_tool_choice_is_an_object_with_a_type(choice: object) -> None:
    """The words of another API are refused before anything is reserved."""
    with pytest.raises(InvalidRequest, match="tool_choice must be an object"):
        CODEC.prepare({**SIMPLE, "tool_choice": choice})


def test_the_toolset_goes_into_a_request_without_tools() -> None:
    """In its order, and as the SDK's type wants it."""
    tools = CODEC.prepare(SIMPLE, Toolset([loose, lookup])).body["tools"]
    description = "Look a city up."
    assert tools == [
        {"name": "loose", "input_schema": loose.schema},
        {"name": "lookup", "description": description, "input_schema": lookup.schema, "strict": True},
    ]
    for entry in tools:
        TypeAdapter(ToolParam).validate_python(entry)


def test_a_request_with_tools_of_its_own_keeps_them() -> None:
    """An empty list is a choice too, and an empty toolset adds nothing."""
    own = [{"name": "mine", "input_schema": {"type": "object"}}]
    for tools in (own, []):
        prepared = CODEC.prepare({**SIMPLE, "tools": tools}, Toolset([lookup, find, patch]))
        assert prepared.body["tools"] == tools
    assert CODEC.prepare(SIMPLE, Toolset([])).body == SIMPLE


@pytest.mark.parametrize(("one", "what"), [(patch, "takes raw text"), (find, "is in a namespace")])
def test_a_tool_without_a_form_in_this_api_is_refused(one: Any, what: str) -> None:
    """Offering it in another form would make it another tool."""
    with pytest.raises(InvalidRequest, match=f"The tool '{one.name}' {what}"):
        CODEC.prepare(SIMPLE, Toolset([lookup, one]))


@pytest.mark.parametrize(
    ("model", "strict"), [(Branch, True), (Tree, False), (Ranged, False), (Bounded, False)]
)
def test_a_schema_is_enforced_where_the_provider_can(model: type[BaseModel], strict: bool) -> None:
    """It refuses ranges and schemas that lead back to themselves; names of properties are no keywords."""

    @tool(version="v1", effect="read_only", parameters=model)
    def run(given: Any) -> str:
        return str(given)

    (entry,) = CODEC.prepare(SIMPLE, Toolset([run])).body["tools"]
    assert entry.get("strict", False) is strict


def test_strict_tools_can_be_turned_off() -> None:
    """Models and compatible servers may not know it; the API takes twenty of them."""
    (entry,) = AnthropicMessagesCodec(strict_tools=False).prepare(SIMPLE, Toolset([lookup])).body["tools"]
    assert "strict" not in entry

    def named(number: int) -> Any:
        return tool(version="v1", effect="read_only", name=f"t{number}")(lambda: "")

    for count in (20, 21):
        tools = CODEC.prepare(SIMPLE, Toolset([named(number) for number in range(count)])).body["tools"]
        assert sum("strict" in entry for entry in tools) == (20 if count == 20 else 0)


def offered(tools: Any, **more: Any) -> Any:
    """The calls a request allows."""
    return CODEC.prepare({**SIMPLE, "tools": tools, **more}).offered


TWO = [{"name": "a", "input_schema": {}}, {"type": "custom", "name": "b", "input_schema": {}}]
BOTH = frozenset({(None, "a"), (None, "b")})


@pytest.mark.parametrize(
    ("choice", "expected", "allowed"),
    [
        (None, BOTH, True),
        ({"type": "auto"}, BOTH, True),
        ({"type": "any", "disable_parallel_tool_use": True}, BOTH, True),
        ({"type": "brand_new"}, BOTH, True),
        ({"type": "none"}, BOTH, False),
        ({"type": "tool", "name": "a"}, {(None, "a")}, True),
        ({"type": "tool", "name": "c"}, set(), True),
        ({"type": "tool"}, set(), True),
        ({"type": "tool", "name": []}, set(), True),
    ],
)
def test_a_tool_choice_narrows_what_is_offered(choice: Any, expected: Any, allowed: bool) -> None:
    """A call outside of it is never run."""
    prepared = CODEC.prepare({**SIMPLE, "tools": TWO, "tool_choice": choice})
    assert (prepared.offered, prepared.calls_allowed) == (expected, allowed)


def test_what_is_offered_depends_on_the_tools_of_the_request() -> None:
    """A request that names no tools narrows nothing; one with an empty list offers none."""
    assert CODEC.prepare(SIMPLE).offered is None
    assert offered([]) == frozenset()
    assert CODEC.prepare(SIMPLE, Toolset([lookup])).offered == {(None, "lookup")}


def test_predefined_tools_are_answered_by_name() -> None:
    """The caller runs them, so a registered tool of that name may answer."""
    types = ["bash_20250124", "text_editor_20250728", "computer_20250124", "memory_20250818"]
    tools = [{"type": kind, "name": f"tool_{number}"} for number, kind in enumerate(types)]
    prepared = CODEC.prepare({**SIMPLE, "tools": tools})
    assert prepared.offered == {(None, f"tool_{number}") for number in range(4)}
    assert prepared.hosted == ()
    assert CODEC.needs_declaration(prepared) == ("predefined_tool",)


def test_the_members_of_a_toolset_are_offered_in_its_name() -> None:
    """All that are not switched off; two toolsets have members of the same name."""
    configs = {"zoom": {"enabled": False}, "wait": {"enabled": True}, "key": None, "type": {}}
    got = offered([{"type": "computer_toolset_20260801", "configs": configs}])
    assert got == {("computer", name) for name in COMPUTER_MEMBER_NAME_VALUES if name != "zoom"}
    got = offered([{"type": "browser_toolset_20260801"}], tool_choice={"type": "tool", "name": "zoom"})
    assert got == {("browser", "zoom")}
    assert offered([{"type": "brand_toolset_2", "name": "x"}]) == {(None, "x")}


def test_the_members_are_the_sdk_s() -> None:
    """The lists here are those of the installed SDK."""
    members = {"browser": set(BROWSER_MEMBER_NAME_VALUES), "computer": set(COMPUTER_MEMBER_NAME_VALUES)}
    assert members == _messages_tools._MEMBERS


def test_hosted_tools_are_reported_and_not_offered() -> None:
    """A tool that is unknown here may be either."""
    tools = [{"type": "web_search_20250305", "name": "web_search"}, {"type": "brand_new_1", "name": "x"}]
    prepared = CODEC.prepare({**SIMPLE, "tools": [*tools, {"type": "odd words"}, *TWO]})
    assert prepared.hosted == ("web_search_20250305", "brand_new_1", "unknown")
    assert prepared.offered == BOTH | {(None, "x")}


def words(hint: Any) -> set[str]:
    """The literals in a type."""
    return {word for part in get_args(hint) for word in ([part] if isinstance(part, str) else words(part))}


def test_every_tool_type_of_the_sdk_is_known() -> None:
    """No type that the installed SDK names is taken for an unknown one."""
    kinds = {kind for one in get_args(ToolUnionParam) for kind in words(get_type_hints(one)["type"])}
    assert {"custom", "bash_20250124", "computer_toolset_20260801", "web_search_20260318"} <= kinds
    for kind in kinds:
        entry = {"type": kind}
        is_ours = _messages_tools.is_described(entry) or _messages_tools.is_predefined(entry)
        assert is_ours or kind.startswith(_messages_tools._HOSTED), kind


def test_no_message_shows_payload() -> None:
    """What is wrong is said without the value of the caller."""
    for request in (
        {**SIMPLE, "max_tokens": "secret"},
        {**SIMPLE, "messages": {"secret": "secret"}},
        {**SIMPLE, "tools": [{"secret": "secret"}]},
        {**SIMPLE, "tool_choice": "secret"},
        {**SIMPLE, "stream": "secret"},
    ):
        with pytest.raises(InvalidRequest) as caught:
            CODEC.prepare(request)
        assert "secret" not in str(caught.value)
