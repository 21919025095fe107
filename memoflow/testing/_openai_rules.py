"""What all of OpenAI's APIs refuse alike, with the codes and wording they use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from memoflow.testing._rejections import Rejection

__all__ = ["UNREADABLE", "about", "check_least", "check_name", "check_strict", "missing", "mistyped"]

UNREADABLE = Rejection(message="We could not parse the JSON body of your request.")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_LONGEST_NAME = 64


def about(param: str, message: str, code: str | None = None) -> Rejection:
    """A rejection that names the parameter it is about."""
    return Rejection(message=message, param=param, code=code)


def missing(param: str) -> Rejection:
    """A parameter that has to be there and is not."""
    return about(param, f"Missing required parameter: '{param}'.", "missing_required_parameter")


def mistyped(param: str, expected: str) -> Rejection:
    """A parameter of another type than ``expected``."""
    return about(param, f"Invalid type for '{param}': expected {expected}.", "invalid_type")


def check_least(value: Any, param: str, least: int) -> Iterator[Rejection]:
    """What is wrong with a whole number that may not be below ``least``."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        yield mistyped(param, "an integer")
    elif value < least:
        wanted = f"Expected a value >= {least}, but got {value} instead."
        message = f"Invalid '{param}': integer below minimum value. {wanted}"
        yield about(param, message, "integer_below_min_value")


def check_name(name: Any, param: str) -> Iterator[Rejection]:
    """What is wrong with the name of a tool."""
    if not isinstance(name, str):
        yield missing(param)
    elif not _NAME.fullmatch(name):
        message = f"Invalid '{param}': string does not match pattern '^[a-zA-Z0-9_-]+$'."
        yield about(param, message, "invalid_value")
    elif len(name) > _LONGEST_NAME:
        message = f"Invalid '{param}': string too long. Expected a maximum length of {_LONGEST_NAME}."
        yield about(param, message, "string_above_max_length")


def check_strict(tool: Mapping[str, Any], param: str) -> Iterator[Rejection]:
    """Why the schema of a function is not a strict one."""
    problem = _strict_problem(tool.get("parameters"))
    if problem is not None:
        message = f"Invalid schema for function '{tool['name']}': {problem}"
        yield about(f"{param}.parameters", message, "invalid_function_parameters")


def _strict_problem(schema: Any) -> str | None:
    """Why a schema is not a strict one: every object closed, and all of its properties required."""
    if isinstance(schema, list):
        return next(filter(None, map(_strict_problem, schema)), None)
    if not isinstance(schema, Mapping):
        return None
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    if schema.get("type") == "object" or properties:
        if schema.get("additionalProperties") is not False:
            return "'additionalProperties' is required to be supplied and to be false."
        required = schema.get("required")
        if not isinstance(required, list) or sorted(map(str, required)) != sorted(properties):
            return (
                "'required' is required to be supplied and to be an array including every key in properties."
            )
    defined = schema.get("$defs")
    named = [*properties.values(), *(defined.values() if isinstance(defined, Mapping) else ())]
    nested = [*named, schema.get("items"), schema.get("anyOf"), schema.get("allOf")]
    return _strict_problem(nested)
