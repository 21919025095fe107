"""Checking a JSON value against a JSON Schema that somebody else wrote, at a bounded price.

The schema comes from a server and the value from a model, so neither may cost much: references
are only followed inside the schema and never fetched, and the work of one check is counted. What
cannot be bounded or would be read differently here is left to the server, which has to check its
input anyway:

- ``pattern`` and ``patternProperties`` (and ``additionalProperties`` beside them): the patterns are of
  another language than Python's, and one can take for ever;
- ``unevaluatedProperties`` and ``unevaluatedItems``, whose cost is not seen from outside;
- ``format``, which asserts nothing unless it is asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any, Final

from jsonschema import FormatChecker, SchemaError
from jsonschema.exceptions import ValidationError
from jsonschema.validators import Draft7Validator, Draft201909Validator, Draft202012Validator, extend
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import specification_with

from memoflow.canonical import canonical
from memoflow.errors import InvalidRequest, InvalidTool
from memoflow.tools import Problem

__all__ = ["CheckedSchema"]

MAX_SCHEMA_BYTES: Final = 262_144
MAX_SCHEMA_DEPTH: Final = 48
MAX_WORK: Final = 200_000
"""Most steps of one check: keywords looked at, and the items of what each looks through."""

MAX_NESTING: Final = 100
"""Most keywords inside each other in one check. Python's own limit would end it inside of compiled code."""

_MAX_PROBLEMS: Final = 9  # one more than a refusal shows
# Older ones are not offered: the library checks their own schemas at a price without a bound.
_DIALECTS: Final[dict[str, Any]] = {
    "http://json-schema.org/draft-07/schema": Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": Draft202012Validator,
}
_TOO_COMPLEX: Final = "too_complex_to_check"
_UNSOUND: Final = "unsound_schema"
_UNCHECKED: Final = frozenset({_TOO_COMPLEX, _UNSOUND})
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class _TooCostlyError(Exception):
    """The check of one value takes more steps than are given to it, or goes too deep."""


class _Work:
    """What one check has left."""

    def __init__(self) -> None:
        self._left, self._nesting = MAX_WORK, 0

    @contextmanager
    def step(self, cost: int) -> Generator[None]:
        """Work on one keyword."""
        self._left -= cost
        self._nesting += 1
        try:
            if self._left < 0 or self._nesting > MAX_NESTING:
                raise _TooCostlyError
            yield
        finally:
            self._nesting -= 1


_WORK: ContextVar[_Work] = ContextVar("memoflow_schema_work")


class CheckedSchema:
    """A JSON Schema, found sound once and then used for many values.

    Args:
        schema: as the server wrote it.
        what: how errors call it: the beginning of a sentence.

    Attributes:
        names: every property name it declares.
        canonical: its canonical form, for a digest.

    Raises:
        InvalidTool: it is no schema, of an unknown dialect, too large, or refers outside itself.
    """

    def __init__(self, schema: Any, what: str) -> None:
        self.canonical = _measured(schema, what)
        dialect = _dialect(schema, what)
        try:
            # Patterns need not be Python's, so their format is no matter.
            dialect.check_schema(schema, format_checker=FormatChecker(()))
        except SchemaError as error:
            place = "/".join(str(part) for part in error.absolute_path)[:80]
            raise InvalidTool(f"{what} is no valid JSON Schema (at {place or 'its root'}).") from None
        # Named again, a dialect would be looked up by every reference to the root, and with it the
        # keywords as they were.
        plain = {key: value for key, value in schema.items() if key != "$schema"}
        self.names = frozenset(_Reader(dialect, plain, what).names)
        self._validator = _metered(dialect)(plain, registry=Registry())
        if {kind for _, kind in self.problems({})} & _UNCHECKED:
            raise InvalidTool(f"{what} cannot be checked: its references lead in circles, or nowhere.")

    def problems(self, value: Any) -> list[Problem]:
        """What is wrong with a value: places and kinds, no more of them than are shown."""
        token = _WORK.set(_Work())
        try:
            found = list(islice(self._validator.iter_errors(value), _MAX_PROBLEMS))
        except _TooCostlyError:
            return [((), _TOO_COMPLEX)]
        except Exception:
            # What stands where no keyword leads was never found sound.
            return [((), _UNSOUND)]
        finally:
            _WORK.reset(token)
        return list(dict.fromkeys(problem for error in found for problem in _problems(error)))

    def is_broken_by(self, value: Any) -> bool:
        """Whether a value is surely none of the schema's; one that could not be checked may be."""
        return any(kind not in _UNCHECKED for _, kind in self.problems(value))


def _measured(schema: Any, what: str) -> bytes:
    try:
        data = canonical(schema)
    except InvalidRequest:
        raise InvalidTool(f"{what} is not plain JSON.") from None
    if len(data) > MAX_SCHEMA_BYTES:
        raise InvalidTool(f"{what} has {len(data)} bytes; {MAX_SCHEMA_BYTES} are offered at most.")
    if _depth(schema) > MAX_SCHEMA_DEPTH:
        raise InvalidTool(f"{what} is nested deeper than {MAX_SCHEMA_DEPTH} levels.")
    return data


def _depth(schema: Any) -> int:
    level, depth = [schema], 0
    while level := [node for node in level if isinstance(node, (dict, list))]:
        depth += 1
        level = [child for node in level for child in (node.values() if isinstance(node, dict) else node)]
    return depth


def _dialect(schema: Any, what: str) -> Any:
    if not isinstance(schema, dict):
        raise InvalidTool(f"{what} must be a JSON object, not {type(schema).__name__}.")
    named = schema.get("$schema")
    if named is None:
        return Draft202012Validator
    known = _DIALECTS.get(named.removesuffix("#")) if isinstance(named, str) else None
    if known is None:
        raise InvalidTool(
            f"{what} is of dialect {ascii(named)[:120]}. Known are {', '.join(_DIALECTS)}; without one it is "
            "the last of them."
        )
    return known


class _Reader:
    """Goes through all schemas in a schema, and through whatever its references lead to.

    Attributes:
        names: the property names that were met.
    """

    def __init__(self, dialect: Any, schema: dict[str, Any], what: str) -> None:
        self.names: set[str] = set()
        self._what = what
        self._seen: set[int] = set()
        self._specification = specification_with(dialect.ID_OF(dialect.META_SCHEMA))
        root: Resource[Any] = self._specification.create_resource(schema)
        self._walk(root, Registry().with_resource("", root).crawl().resolver())

    def _walk(self, resource: Resource[Any], resolver: Any) -> None:
        node = resource.contents
        if not isinstance(node, dict) or id(node) in self._seen:
            return
        self._seen.add(id(node))
        resolver = resolver.in_subresource(resource)
        if "$schema" in node:
            raise InvalidTool(f"{self._what} holds a schema of a dialect of its own.")
        for keyword in _REFERENCES:
            self._follow(node.get(keyword), resolver)
        properties = node.get("properties")
        self.names.update(properties if isinstance(properties, dict) else ())
        for below in resource.subresources():
            self._walk(below, resolver)

    def _follow(self, reference: object, resolver: Any) -> None:
        if not isinstance(reference, str):
            return
        try:
            target = resolver.lookup(reference)
        except (Unresolvable, ValueError, LookupError):
            raise InvalidTool(
                f"{self._what} refers to {ascii(reference)[:120]}, which is not in it. References are never "
                "fetched: the server has to put what it refers to under $defs."
            ) from None
        # It may be where no keyword would lead.
        self._walk(self._specification.create_resource(target.contents), target.resolver)


# Keywords


def _metered(dialect: Any) -> Any:
    keywords = {name: _counted(keyword) for name, keyword in dialect.VALIDATORS.items()}
    left_out = ("pattern", "patternProperties", "unevaluatedProperties", "unevaluatedItems", "format")
    keywords |= {name: _left_to_the_server for name in left_out if name in keywords}
    keywords["uniqueItems"] = _counted(_unique_items)
    keywords["additionalProperties"] = _beside_no_patterns(keywords["additionalProperties"])
    return extend(dialect, keywords)


def _counted(keyword: Keyword) -> Keyword:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        with _WORK.get().step(1 + _size(value) + _size(instance)):
            yield from keyword(validator, value, instance, schema) or ()

    return counted


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (list, dict)) else 0


def _left_to_the_server(validator: Any, value: Any, instance: Any, schema: Any) -> None:
    return None


def _beside_no_patterns(keyword: Keyword) -> Keyword:
    def checked(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:
        return None if "patternProperties" in schema else keyword(validator, value, instance, schema)

    return checked


def _unique_items(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # Each with each, as the library does it, takes for ever with a long array of objects.
    if value and isinstance(instance, list) and len({canonical(item) for item in instance}) < len(instance):
        yield ValidationError("")


# Problems


def _problems(error: ValidationError) -> list[Problem]:
    """Places and kinds of one error; the names in it are the schema's or are masked where they are shown."""
    place: tuple[int | str, ...] = tuple(error.absolute_path)
    kind = error.validator if isinstance(error.validator, str) else "not_allowed"
    value, given = error.validator_value, error.instance
    if kind == "required" and isinstance(value, list) and isinstance(given, dict):
        return [((*place, name), "missing") for name in value if name not in given]
    if kind == "additionalProperties" and value is False:
        return [((*place, ""), "extra_forbidden")]
    if kind == "type" and isinstance(value, str):
        return [(place, f"{value}_type")]
    return [(place, kind)]
