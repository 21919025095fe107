"""Checking values against schemas that somebody else wrote."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the MCP SDK is not installed: memoflow-runtime[mcp]")

from memoflow import InvalidTool
from memoflow.mcp._schema import CheckedSchema
from memoflow.tools import BoundArguments, Refusal, schema_tool

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def _nested(levels: int) -> Any:
    """An object in an object, and so on."""
    value: Any = {}
    for _ in range(levels):
        value = {"n": value}
    return value


def problems(schema: Any, value: Any) -> list[Any]:
    """What is wrong with a value."""
    return CheckedSchema(schema, "The schema").problems(value)


def bind(schema: Any, raw: str) -> BoundArguments | Refusal:
    """Arguments as a tool would take them."""
    checked = CheckedSchema(schema, "The schema")
    tool = schema_tool(
        lambda arguments, *, call: None,
        name="f",
        version="v1",
        effect="read_only",
        schema=schema,
        check=checked.problems,
        names=checked.names,
    )
    return tool.bind(raw)


@pytest.mark.parametrize(
    ("schema", "value", "found"),
    [
        ({"type": "string"}, 1, [((), "string_type")]),
        ({"type": ["string", "null"]}, 1, [((), "type")]),
        ({"type": "integer"}, 5.0, []),
        ({"type": "integer"}, True, [((), "integer_type")]),
        ({"enum": [1, "a"]}, True, [((), "enum")]),
        ({"const": 1}, True, [((), "const")]),
        ({"properties": {"a": {"items": {"maxLength": 1}}}}, {"a": ["b", "cc"]}, [(("a", 1), "maxLength")]),
        ({"required": ["a", "b", "c"]}, {"b": 1}, [(("a",), "missing"), (("c",), "missing")]),
        ({"additionalProperties": False}, {"x": 1}, [(("",), "extra_forbidden")]),
        ({"properties": {"a": False}}, {"a": 1}, [((), "not_allowed")]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, [((), "anyOf")]),
        ({"uniqueItems": True}, [{"a": 1}, {"a": 1.0}], [((), "uniqueItems")]),
        ({"uniqueItems": True}, [1, True, "1"], []),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, 1, [((), "null_type")]),
        ({"$schema": DRAFT_7, "$ref": "#/definitions/a", "definitions": {"a": {"type": "null"}}}, None, []),
        ({"$ref": "#x", "$defs": {"a": {"$anchor": "x", "type": "null"}}}, 1, [((), "null_type")]),
    ],
)
def test_what_is_found(schema: Any, value: Any, found: list[Any]) -> None:
    """Places and kinds, in the words that refusals of other tools use."""
    assert problems(schema, value) == found


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 5_000 + "b"),
        ({"pattern": r"^\p{L}(?<x>y)$"}, "1"),
        ({"patternProperties": {"^(a+)+$": False}}, {"a" * 5_000 + "b": 1}),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"xy": 1, "z": 2}),
        ({"unevaluatedProperties": False}, {"x": 1}),
        ({"format": "date"}, "no date"),
    ],
)
def test_what_is_left_to_the_server(schema: Any, value: Any) -> None:
    """Patterns are of another language and may take for ever: no time is spent on them here."""
    started = time.monotonic()
    assert problems(schema, value) == []
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"$ref": "https://example.com/schema.json"}, r"refers to 'https://example\.com/schema\.json'"),
        ({"$ref": "other.json"}, "is not in it"),
        ({"$ref": "file:///etc/passwd"}, "never fetched"),
        ({"$ref": "#/$defs/none"}, "is not in it"),
        ({"properties": {"a": {"items": {"$ref": "#none"}}}}, "is not in it"),
        ({"$dynamicRef": "https://example.com/x"}, "is not in it"),
        ({"$id": "https://example.com/a", "properties": {"a": {"$ref": "b"}}}, "is not in it"),
        ({"$ref": "#"}, "lead in circles"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "circles"),
        ({"$schema": "https://example.com/mine"}, "is of dialect 'https://example.com/mine'. Known are"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "is of dialect"),
        ({"$schema": 3}, "is of dialect 3"),
        ({"properties": {"a": {"$schema": DRAFT_7}}}, "a dialect of its own"),
        ({"properties": {"a": {"$ref": "#/x/y"}}, "x": {"y": {"$schema": DRAFT_7}}}, "dialect of its own"),
        ({"properties": {"a": {"$ref": "#/x/y"}}, "x": {"y": {"$ref": "#/none"}}}, "'#/none', which is not"),
        ({"properties": {"a": {"$ref": "#/x/y"}}, "x": {"y": {"properties": {"b": {"$ref": "z"}}}}}, "'z'"),
        ({"type": "text"}, "no valid JSON Schema"),
        ([], "must be a JSON object, not list"),
        ({"description": "x" * 300_000}, "offered at most"),
        ({"default": {1: 2}}, "is not plain JSON"),
    ],
)
def test_a_schema_that_is_refused(schema: Any, problem: str) -> None:
    """Whatever cannot be checked later is refused when the tool is made; nothing is ever fetched."""
    with pytest.raises(InvalidTool, match=problem):
        CheckedSchema(schema, "The schema")


def test_a_deep_schema_is_refused() -> None:
    """Its depth is bounded before anything walks through it."""
    schema: Any = {}
    for _ in range(60):
        schema = {"properties": {"a": schema}}
    with pytest.raises(InvalidTool, match="deeper than 48 levels"):
        CheckedSchema(schema, "The schema")


@pytest.mark.parametrize("keyword", ["not", "allOf", "properties"])
def test_a_schema_at_the_limit_of_depth_is_sound(keyword: str) -> None:
    """What is allowed does not exhaust Python's stack."""
    schema: Any = {}
    for _ in range(47 if keyword == "not" else 23):
        schema = {keyword: {"a": schema} if keyword == "properties" else [schema]}
        schema = schema if keyword != "not" else {"not": schema["not"][0]}
    assert CheckedSchema(schema, "The schema").names == ({"a"} if keyword == "properties" else set())
    assert bind({"properties": {"n": {"$ref": "#"}}}, json.dumps(_nested(40))) is not None


def test_what_was_never_found_sound_is_no_failure() -> None:
    """Outside of all keywords a schema may hold anything; a value that meets it is not checked."""
    checked = CheckedSchema({"properties": {"a": {"$ref": "#/x"}}, "x": {"type": 3}}, "The schema")
    assert checked.problems({"a": 1}) == [((), "unsound_schema")]
    assert not checked.is_broken_by({"a": 1})


def test_references_inside_the_schema_are_followed() -> None:
    """Also to a part with an address of its own, and to itself where the value ends it."""
    tree = {"properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}, "$schema": DRAFT_7}
    assert problems(tree, {"next": {"next": {"n": "x"}}}) == [(("next", "next", "n"), "integer_type")]
    parts = {"$id": "https://example.com/a", "$ref": "b", "$defs": {"b": {"$id": "b", "type": "null"}}}
    assert problems(parts, 1) == [((), "null_type")]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        # Twice as many steps with every definition.
        (
            {
                "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(12)}
                | {"d12": {"items": {"type": "integer"}}},
                "properties": {"a": {"$ref": "#/$defs/d0"}},
            },
            {"a": [1] * 1_000},
        ),
        ({"properties": {"a": {"items": {"enum": list(range(5_000))}}}}, {"a": [4_999] * 5_000}),
        # Too deep for Python, and worse for compiled code that is called on the way.
        ({"properties": {"n": {"$ref": "#"}}}, _nested(60)),
        ({"properties": {"a": {"contains": False}}}, {"a": [1] * 300_000}),
    ],
)
def test_a_check_that_costs_too_much_is_ended(schema: Any, value: Any) -> None:
    """The arguments are refused then: a server's schema cannot hold the process."""
    checked = CheckedSchema(schema, "The schema")
    started = time.monotonic()
    assert checked.problems(value) == [((), "too_complex_to_check")]
    assert time.monotonic() - started < 30


def test_a_long_array_of_unique_objects_is_checked_quickly() -> None:
    """The library compares each with each."""
    value = {"a": [{"n": n} for n in range(20_000)]}
    assert problems({"properties": {"a": {"uniqueItems": True}}}, value) == []


def test_a_refusal_shows_only_the_schemas_own_names() -> None:
    """A key the model made up may be payload, and so may any value."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "object", "additionalProperties": {"type": "integer"}}},
        "additionalProperties": False,
        "required": ["b"],
    }
    refused = bind(schema, '{"a":{"secret":"secret"},"hidden":1}')
    assert isinstance(refused, Refusal)
    assert sorted(refused.detail.split("; ")) == [
        "(unknown key): extra_forbidden",
        "*: missing",
        "a.*: integer_type",
    ]


def test_many_problems_are_cut() -> None:
    """As in any other refusal."""
    refused = bind({"properties": {"a": {"items": {"type": "null"}}}}, '{"a":[' + ",".join("1" * 50) + "]}")
    assert isinstance(refused, Refusal)
    assert refused.detail.endswith("; and 1 more")


def test_arguments_are_read_from_what_was_digested() -> None:
    """Two texts of one value are one call."""
    one, other = bind({}, '{"b":5.0,"a":"é"}'), bind({}, ' {"a":"\\u00e9","b":5}')
    assert isinstance(one, BoundArguments)
    assert isinstance(other, BoundArguments)
    assert one == other
    assert one.args == ({"a": "é", "b": 5},)


def test_a_check_that_raises_refuses_the_call() -> None:
    """Nothing has run, so the call is a bad one."""

    def broken(value: Any) -> Any:
        raise ValueError("the payload")

    tool = schema_tool(
        print, name="f", version="v1", effect="read_only", schema={}, check=broken, names=frozenset()
    )
    refused = tool.bind("{}")
    assert isinstance(refused, Refusal)
    assert refused.detail == "The arguments could not be checked: a validator raised ValueError."
