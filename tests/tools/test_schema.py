"""Schemas: derived exactly, closed, and strict only where strict mode says the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, RootModel
from typing_extensions import TypedDict

from memoflow.errors import InvalidTool
from memoflow.tools import BoundArguments, Refusal, Tool, tool
from memoflow.tools._schema import declared_names, to_strict


def make(function: Any, **options: Any) -> Tool[..., Any]:
    return tool(function, **{"version": "v1", "effect": "read_only", "name": "f", **options})


class Point(BaseModel):
    """A point."""

    x: float
    y: float


class Tree(BaseModel):
    name: str
    children: list[Tree]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Pair:
    left: int
    right: int


class Typed(TypedDict):
    a: int


def of(hint: Any, **options: Any) -> Tool[..., Any]:
    def f(value: Any) -> None: ...

    f.__annotations__["value"] = hint
    return make(f, **options)


def test_schema_of_a_signature() -> None:
    """Types and descriptions come from the signature; titles that repeat a name do not."""

    def f(city: str, days: Annotated[int, Field(ge=1, le=7, description="Days ahead.")]) -> None: ...

    assert make(f).schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "description": "Days ahead."},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    }
    assert make(f).strict


def test_schema_without_parameters() -> None:
    """A tool without parameters has an empty closed object."""

    def f() -> None: ...

    assert make(f).schema == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }
    assert make(f).strict


@pytest.mark.parametrize(
    "hint",
    [
        str,
        int,
        float,
        bool,
        int | None,
        list[int],
        datetime,
        UUID,
        Colour,
        Point,
        Tree,
        Pair,
        Typed,
        list[Point] | Point | None,
        Literal["a", "b"],
        Literal["a"],
        Annotated[Point, Field(description="Where.")],
        Annotated[str, Field(pattern="^[a-z]+$", examples=["abc"])],
        Annotated[list[int], Field(min_length=1)],
    ],
)
def test_expressible_types_are_strict(hint: object) -> None:
    """What strict mode can say is offered strictly, in valid dialect."""
    made = of(hint)
    assert made.strict
    _check_dialect(made.schema)


def _check_dialect(node: Any) -> None:
    """An independent reading of the dialect's rules."""
    if isinstance(node, list):
        for child in node:
            _check_dialect(child)
    if not isinstance(node, dict):
        return
    if node.get("type") == "object":
        assert node["additionalProperties"] is False
        assert node["required"] == list(node["properties"])
    if "$ref" in node:
        assert node.keys() == {"$ref"}
    unknown = {"default", "examples", "oneOf", "allOf", "not", "prefixItems", "uniqueItems", "minLength"}
    assert not unknown & node.keys()
    for key, child in node.items():
        if key in ("properties", "$defs"):
            for named in child.values():
                _check_dialect(named)
        else:
            _check_dialect(child)


@pytest.mark.parametrize(
    ("hint", "keyword"),
    [
        (dict[str, int], "additionalProperties"),
        (dict, None),
        (Any, None),
        (list, None),
        (Annotated[str, Field(min_length=1)], "minLength"),
        (Annotated[str, Field(pattern=r"\bx")], "pattern"),
        (set[int], "uniqueItems"),
        (tuple[int, str], "prefixItems"),
        (AnyUrl, "format"),
        (bytes, "format"),
        (Literal[1, "a"], "enum"),
        (Annotated[Point | Typed, Field(json_schema_extra={"not": {}})], "not"),
    ],
)
def test_inexpressible_types_keep_their_meaning(hint: object, keyword: str | None) -> None:
    """A constraint that strict mode cannot say is kept, and strict is off instead."""
    made = of(hint)
    assert not made.strict
    if keyword is not None:
        assert keyword in made.schema["properties"]["value"]


def test_default_turns_strict_off() -> None:
    """A parameter that may be left out stays so; strict mode would make it required."""

    def f(a: int, b: int = 3) -> None: ...

    schema = make(f).schema
    assert not make(f).strict
    assert schema["required"] == ["a"]
    assert schema["properties"]["b"] == {"type": "integer", "default": 3}


def test_default_deep_inside_turns_strict_off() -> None:
    """The same holds for a field of a model inside."""

    class Inner(BaseModel):
        a: int = 1

    assert not of(Inner).strict


def test_default_that_json_cannot_show() -> None:
    """A default without a JSON form makes the parameter optional and is not shown."""
    marker = object()

    def f(a: Any = marker) -> None: ...

    assert make(f).schema["properties"] == {"a": {}}
    assert "required" not in make(f).schema


def test_strict_can_be_declined() -> None:
    """``strict=False`` leaves the schema as derived."""
    made = of(Point, strict=False)
    assert not made.strict
    assert made.schema["properties"]["value"] == {"$ref": "#/$defs/Point"}


def test_every_model_is_closed_even_without_strict() -> None:
    """The schema says that unknown keys are refused, because they are, at every level."""
    made = of(dict[str, Point])
    assert made.schema["$defs"]["Point"]["additionalProperties"] is False
    assert made.schema["additionalProperties"] is False
    assert isinstance(made.bind('{"value":{"k":{"x":1,"y":2,"z":3}}}'), Refusal)


def test_configured_strictness_of_a_model_does_not_loosen() -> None:
    """A model inside that ignores unknown keys or takes other types is checked as strictly as all."""

    class Loose(BaseModel):
        model_config = ConfigDict(extra="ignore", strict=False)
        a: int

    made = of(Loose)
    assert isinstance(made.bind('{"value":{"a":1}}'), BoundArguments)
    assert isinstance(made.bind('{"value":{"a":"1"}}'), Refusal)
    assert isinstance(made.bind('{"value":{"a":1,"b":1}}'), Refusal)


def test_description_beside_a_reference_replaces_it() -> None:
    """Strict mode allows nothing beside a reference, so the definition is written out."""
    schema = of(Annotated[Point, Field(description="Where.")]).schema
    value = schema["properties"]["value"]
    assert value["description"] == "Where."
    assert list(value["properties"]) == ["x", "y"]


def test_recursive_root_is_an_object() -> None:
    """A model that refers to itself is offered as an object, not as a bare reference."""

    def f(tree: Tree) -> None: ...

    schema = make(f, parameters=Tree).schema
    assert schema["type"] == "object"
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    _check_dialect(schema)


def test_described_recursion_ends() -> None:
    """A recursive reference with a description of its own cannot be written out: strict is off."""

    class Chain(BaseModel):
        next: list[Annotated[Chain, Field(description="The next.")]]

    assert not of(Chain).strict


def test_models_that_are_no_object_are_refused() -> None:
    """Arguments are an object, so a root model of something else is no parameters model."""

    def f(items: Any) -> None: ...

    with pytest.raises(InvalidTool, match="not a JSON object"):
        make(f, parameters=RootModel[list[int]])


def test_union_with_an_alternative_without_schema_is_refused() -> None:
    """An alternative is never left out of the schema in silence."""
    with pytest.raises(InvalidTool, match="no JSON Schema"):
        of(int | Callable[[], int])


def test_discriminated_unions_are_not_strict() -> None:
    """``oneOf`` is not in the dialect, and is kept as it is."""

    class A(BaseModel):
        kind: Literal["a"]

    class B(BaseModel):
        kind: Literal["b"]

    made = of(Annotated[A | B, Field(discriminator="kind")])
    assert not made.strict
    assert "oneOf" in made.schema["properties"]["value"]


def test_strict_mode_size_limits() -> None:
    """Schemas over strict mode's limits are offered without it."""
    many = {str(i): {"type": "null"} for i in range(5_001)}
    assert to_strict({**_object(many)}) is None
    assert to_strict(_object({"a": {"type": "string", "enum": ["x"] * 1_001}})) is None
    deep: dict[str, Any] = {"type": "null"}
    for _ in range(12):
        deep = _object({"a": deep})
    assert to_strict(deep) is None


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def test_schema_written_by_hand() -> None:
    """Extras of a model's author that strict mode cannot follow turn it off instead of failing."""
    assert not of(Annotated[list[Any], Field(json_schema_extra={"items": True})]).strict


def test_unencodable_schema_is_refused() -> None:
    """A schema that no request can carry is refused at registration."""
    with pytest.raises(InvalidTool, match="no JSON Schema"):
        of(Annotated[int, Field(json_schema_extra={"x": float("nan")})])


def test_declared_names_are_properties_only() -> None:
    """Only names of properties count as declared; examples and defaults declare nothing."""
    schema = {
        "properties": {"a": {"properties": {"b": {"default": {"properties": {"secret": {}}}}}}},
        "$defs": {"N": {"anyOf": [{"properties": {"c": True}}, {"items": {"properties": {"d": {}}}}]}},
    }
    assert declared_names(schema) == {"a", "b", "c", "d"}
