"""JSON Schemas of tool parameters, and the stricter dialect a provider can enforce while it generates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Set
from typing import Any, Final

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from memoflow.errors import InvalidTool

__all__ = ["declared_names", "derive_schema", "first_line", "to_strict"]

Schema = dict[str, Any]

_NAMED_SCHEMAS: Final = frozenset({"properties", "$defs", "patternProperties", "dependentSchemas"})
_LISTED_SCHEMAS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLE_SCHEMAS: Final = frozenset(
    {"items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"}
)

_NOTES: Final = frozenset({"title", "description"})
_IDLE: Final = frozenset({"examples", "deprecated", "readOnly", "writeOnly", "$comment"})
"""Keywords that allow or forbid nothing, so that removing them changes no meaning."""
_CHOICE: Final = frozenset({"enum", "const"})
_RANGE: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_STRICT_KEYWORDS: Final[dict[str, frozenset[str]]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": _CHOICE | {"pattern", "format"},
    "integer": _CHOICE | _RANGE,
    "number": _CHOICE | _RANGE,
    "boolean": _CHOICE,
    "null": _CHOICE,
}
_STRICT_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)
# Lookarounds, other (?...) groups, back references and word boundaries are not regular.
_IRREGULAR: Final = re.compile(r"\(\?|\\[1-9bB]")
_STRICT_LEVELS: Final = 10
_STRICT_PROPERTIES: Final = 5_000
_STRICT_CHOICES: Final = 1_000


class _Generator(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        # A title made from the name tells a model nothing and costs tokens in every request.
        return False

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        # A default that JSON cannot show is merely not shown; a dropped alternative changes the meaning.
        if kind == "skipped-choice":
            raise PydanticInvalidForJsonSchema("one alternative of a union has no JSON Schema")


def derive_schema(model: type[BaseModel], name: str) -> Schema:
    """The JSON Schema of a parameters model: an object, every model in it closed to unknown keys.

    Raises:
        InvalidTool: it has no JSON Schema, is not an object, or a model in it is open.
    """
    try:
        schema = model.model_json_schema(schema_generator=_Generator)
        schema = json.loads(json.dumps(schema, allow_nan=False))
    except Exception as error:
        raise InvalidTool(
            f"The parameters of tool {name!r} have no JSON Schema ({first_line(error)}). "
            "Use JSON types, dates, UUID, Decimal, dataclasses or pydantic models."
        ) from error
    schema = _inline_root(schema)
    if schema.get("type") != "object":
        raise InvalidTool(f"The parameters of tool {name!r} are not a JSON object. Use a model with fields.")
    schema.pop("title", None)
    for node in _nodes(schema):
        _close(node, name)
    return schema


def first_line(error: Exception) -> str:
    """The kind of an error and the first line of its text, for errors about code and never about data."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"


def _inline_root(schema: Schema) -> Schema:
    # pydantic writes a model that refers to itself as a bare reference, but providers want an object here.
    reference = schema.get("$ref")
    if reference is None:
        return schema
    return {**_follow(schema, reference), "$defs": schema["$defs"]}


def _follow(root: Schema, reference: str) -> Schema:
    target: Schema = root["$defs"][reference.removeprefix("#/$defs/")]
    return target


def _close(node: Schema, name: str) -> None:
    if "properties" not in node:
        return
    if node.setdefault("additionalProperties", False) is not False:
        raise InvalidTool(
            f"A model among the parameters of tool {name!r} allows unknown keys, which are always refused. "
            "Give it a field of type dict for free keys."
        )


def _nodes(schema: Schema) -> Iterator[Schema]:
    """Every schema in a schema; texts, defaults and choices are not entered."""
    yield schema
    for child in _children(schema):
        if isinstance(child, dict):
            yield from _nodes(child)


def _children(schema: Schema) -> Iterator[Any]:
    for keyword, value in schema.items():
        if keyword in _NAMED_SCHEMAS and isinstance(value, dict):
            yield from value.values()
        elif keyword in _LISTED_SCHEMAS and isinstance(value, list):
            yield from value
        elif keyword in _SINGLE_SCHEMAS:
            yield value


def declared_names(schema: Schema) -> frozenset[str]:
    """All property names a schema declares: the only keys that may be repeated in an error."""
    return frozenset(name for node in _nodes(schema) for name in node.get("properties", ()))


class _NotStrictError(Exception):
    """The schema says something the strict dialect cannot."""


def to_strict(schema: Schema) -> Schema | None:
    """The same schema in the dialect of OpenAI's strict mode, or None if that would change its meaning.

    Every object is closed and every property required; only keywords the dialect knows are left.
    """
    nodes = list(_nodes(schema))
    if sum(len(node.get("properties", ())) for node in nodes) > _STRICT_PROPERTIES:
        return None
    if sum(len(node.get("enum", ())) for node in nodes) > _STRICT_CHOICES:
        return None
    definitions = schema.get("$defs", {})
    try:
        strict = _strict(_without(schema, {"$defs"}), schema, 0, frozenset())
        if definitions:
            strict["$defs"] = {
                name: _strict(node, schema, 0, frozenset()) for name, node in definitions.items()
            }
    except _NotStrictError:
        return None
    return strict


def _strict(given: Any, root: Schema, level: int, inlined: frozenset[str]) -> Schema:
    if not isinstance(given, dict) or level > _STRICT_LEVELS:
        raise _NotStrictError
    node = _without(given, _IDLE)
    if "$ref" in node:
        return _strict_reference(node, root, level, inlined)
    if "anyOf" in node:
        _allow(node, frozenset({"anyOf"}))
        return {**node, "anyOf": [_strict(choice, root, level, inlined) for choice in node["anyOf"]]}
    kind = node.get("type")
    if not isinstance(kind, str) or kind not in _STRICT_KEYWORDS:
        raise _NotStrictError
    _allow(node, _STRICT_KEYWORDS[kind] | {"type"})
    if node.get("format", "date") not in _STRICT_FORMATS or _IRREGULAR.search(node.get("pattern", "")):
        raise _NotStrictError
    if kind == "object":
        return _strict_object(node, root, level, inlined)
    if kind == "array":
        return {**node, "items": _strict(node.get("items"), root, level + 1, inlined)}
    return node


def _without(node: Schema, keywords: Set[str]) -> Schema:
    return {key: value for key, value in node.items() if key not in keywords}


def _allow(node: Schema, keywords: frozenset[str]) -> None:
    if not node.keys() <= keywords | _NOTES:
        raise _NotStrictError


def _strict_object(node: Schema, root: Schema, level: int, inlined: frozenset[str]) -> Schema:
    properties = node.get("properties")
    if properties is None or node.get("additionalProperties") is not False:
        raise _NotStrictError
    if set(node.get("required", ())) != set(properties):
        raise _NotStrictError
    return {
        **node,
        "properties": {key: _strict(child, root, level + 1, inlined) for key, child in properties.items()},
        "required": list(properties),
    }


def _strict_reference(node: Schema, root: Schema, level: int, inlined: frozenset[str]) -> Schema:
    reference = node["$ref"]
    notes = _without(node, {"$ref"})
    if not notes:
        return node
    # The dialect allows nothing beside a reference. Replacing it is exact only if the rest merely describes.
    if not notes.keys() <= _NOTES or reference in inlined:
        raise _NotStrictError
    return {**_strict(_follow(root, reference), root, level, inlined | {reference}), **notes}
