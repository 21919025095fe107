"""`@tool`, the tool it makes, and the set of tools of one call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from memoflow.declarations import Inspection
from memoflow.errors import InvalidTool
from memoflow.tools._arguments import (
    MAX_ARGUMENTS_BYTES,
    BoundArguments,
    Refusal,
    bind_checked,
    bind_json,
    bind_text,
)
from memoflow.tools._call import ToolCall
from memoflow.tools._checks import (
    ApprovalMode,
    EffectClass,
    check_approval,
    check_effect,
    check_inspection,
    check_pattern,
    check_timeout,
    check_version,
    describe,
)
from memoflow.tools._claims import with_claim, without_claim

if TYPE_CHECKING:
    from pydantic import BaseModel

    from memoflow.tools._signature import Shape

__all__ = ["Tool", "Toolset", "make_tool", "tool"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False)
class Tool(Generic[P, R]):
    """A function a model may call. Made by `tool`; calling it calls the plain function.

    Attributes:
        function: the function itself.
        name: as the model calls it.
        namespace: the provider's tool namespace, or None.
        version: part of the identity; a recorded call is only finished under its own version.
        effect: what may be done after a crash that leaves the outcome open.
        description: what the model reads.
        strict: whether the schema is in the dialect of OpenAI's strict mode.
        is_async: whether the function is ``async def``.
        timeout: seconds one execution may take, or None.
        custom: whether it takes the raw text of a freeform call instead of JSON arguments.
        approval: ``human`` if a person has to allow each call, or None. Not part of the identity: it holds
            for recorded calls that have not begun, too.
        claims: whether the model is asked for an audit claim with each call, in a reserved member of the
            arguments that is taken out before they are checked.
        inspect: what a call does and which arguments decide it, for inspection; None where nobody said. Not
            part of the identity.
    """

    function: Callable[P, R] = field(repr=False)
    name: str
    namespace: str | None
    version: str
    effect: EffectClass
    description: str = field(repr=False)
    strict: bool
    is_async: bool
    timeout: float | None
    custom: bool
    approval: ApprovalMode | None
    claims: bool
    inspect: Inspection | None
    _schema: str = field(repr=False)
    _shape: Shape = field(repr=False)
    _names: frozenset[str] = field(repr=False)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @property
    def __wrapped__(self) -> Callable[P, R]:
        """The function, for `inspect.signature`."""
        return self.function

    @property
    def identity(self) -> tuple[str, str, str]:
        """(namespace or ``""``, name, version)."""
        return (self.namespace or "", self.name, self.version)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, a fresh copy."""
        schema: dict[str, Any] = json.loads(self._schema)
        return schema

    @property
    def wants_call(self) -> bool:
        """Whether the function takes ``call: ToolCall``."""
        return self._shape.wants_call

    @property
    def is_foreign(self) -> bool:
        """Whether a server describes it, and not whoever offers it to a model."""
        return self._shape.check is not None

    def bind(self, raw: str, *, max_bytes: int = MAX_ARGUMENTS_BYTES) -> BoundArguments | Refusal:
        """Check the arguments of one call. Never raises, and never runs the function.

        Args:
            raw: the provider's text, untouched.
            max_bytes: most UTF-8 bytes of ``raw``.

        Returns:
            Fresh arguments, or a `Refusal` that names places and kinds of problems but no values.
        """
        if not self.claims:
            return self._bind(raw, max_bytes)
        rest, claim = without_claim(raw, max_bytes)
        bound = self._bind(rest, max_bytes)
        return bound if isinstance(bound, Refusal) else replace(bound, claim=claim)

    def _bind(self, raw: str, max_bytes: int) -> BoundArguments | Refusal:
        if self._shape.check is not None:
            return bind_checked(raw, self._shape.check, self._names, max_bytes)
        if self._shape.model is None:
            data = bind_text(raw, max_bytes)
            return data if isinstance(data, Refusal) else BoundArguments((raw,), {}, data)
        checked = bind_json(raw, self._shape.model, self._names, max_bytes)
        if isinstance(checked, Refusal):
            return checked
        model, data = checked
        return BoundArguments(*self._shape.arguments(model), data)

    def invoke(self, bound: BoundArguments, call: ToolCall) -> Any:
        """Call the function with checked arguments; returns a coroutine when `is_async`."""
        function: Callable[..., Any] = self.function
        if self.wants_call:
            return function(*bound.args, **bound.kwargs, call=call)
        return function(*bound.args, **bound.kwargs)


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    version: str,
    effect: EffectClass,
    name: str | None = None,
    namespace: str | None = None,
    description: str | None = None,
    parameters: type[BaseModel] | None = None,
    timeout: float | None = None,
    custom: bool = False,
    strict: bool = True,
    approval: ApprovalMode | None = None,
    claims: bool = False,
    inspect: Inspection | None = None,
) -> Tool[P, R]: ...


@overload
def tool(
    *,
    version: str,
    effect: EffectClass,
    name: str | None = None,
    namespace: str | None = None,
    description: str | None = None,
    parameters: type[BaseModel] | None = None,
    timeout: float | None = None,
    custom: bool = False,
    strict: bool = True,
    approval: ApprovalMode | None = None,
    claims: bool = False,
    inspect: Inspection | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    version: object = None,
    effect: object = None,
    name: str | None = None,
    namespace: str | None = None,
    description: str | None = None,
    parameters: type[BaseModel] | None = None,
    timeout: float | None = None,
    custom: bool = False,
    strict: bool = True,
    approval: object = None,
    claims: bool = False,
    inspect: object = None,
) -> Any:
    """Make a function callable by a model.

    The schema comes from the signature, or from ``parameters``; then the function takes the checked model
    as its only argument. A keyword-only ``call: ToolCall`` is filled in and is not part of the schema.
    Arguments are checked strictly: ``"5"`` and ``true`` are no integers, ``5.0`` is the integer 5 as in
    JSON Schema, and unknown keys are refused at every level, whatever a model's own configuration says.

    Args:
        function: the function, when not used as a decorator.
        version: 1 to 64 characters; change it when a call recorded under the old one must not be finished
            by the new code.
        effect: ``read_only``, ``idempotent`` or ``at_most_once``; there is no default.
        name: 1 to 64 of ``a-z A-Z 0-9 _ -``; the function's own name by default. Never changed for you.
        namespace: the provider's tool namespace, under the same rule.
        description: the first paragraph of the docstring by default.
        parameters: a pydantic model of the arguments.
        timeout: seconds one execution may take.
        custom: a freeform tool: the function takes the raw text of the call.
        strict: offer the schema in OpenAI's strict mode where it can say the same. Parameters with defaults,
            free-form dicts and constraints that strict mode does not know turn it off; nothing is dropped.
        approval: ``human`` if a person has to allow each call before it runs (`ApprovalRequired`).
        claims: ask the model for an audit claim with each call: what for, because of which record, and at
            what risk. It is kept by digest and compared with what the host sees; it permits nothing.
        inspect: what a call does and which arguments decide who gets something and where it goes, for
            runtimes that inspect calls. Without one both are guessed from names.

    Raises:
        InvalidTool: something about the tool cannot work; the message says what to change.
    """

    def register(function: Callable[..., Any]) -> Tool[..., Any]:
        if isinstance(function, staticmethod):
            function = function.__func__
        # Here and not at the top: importing memoflow is to be cheap, and these import pydantic.
        from memoflow.tools._schema import declared_names
        from memoflow.tools._signature import read_shape

        chosen = _check_tool_name(function, name)
        shape = read_shape(function, chosen, parameters, custom)
        schema, is_strict = _offer(shape, chosen, strict)
        return make_tool(
            function,
            name=chosen,
            namespace=namespace,
            version=version,
            effect=effect,
            description=description,
            timeout=timeout,
            strict=is_strict,
            custom=custom,
            approval=approval,
            claims=claims,
            inspect=inspect,
            schema=schema,
            shape=shape,
            names=declared_names(schema),
        )

    return register if function is None else register(function)


def make_tool(
    function: Callable[..., Any],
    *,
    name: str,
    namespace: object,
    version: object,
    effect: object,
    description: str | None,
    timeout: object,
    schema: Mapping[str, Any],
    shape: Shape,
    names: frozenset[str],
    strict: bool = False,
    custom: bool = False,
    approval: object = None,
    claims: bool = False,
    inspect: object = None,
) -> Tool[..., Any]:
    """A tool of parts that are checked here, but for its name, which is checked already.

    Raises:
        InvalidTool: a part cannot work.
    """
    return Tool(
        function=function,
        name=name,
        namespace=None if namespace is None else check_pattern("Namespace", namespace),
        version=check_version(version, name),
        effect=check_effect(effect, name),
        description=describe(function, description, name),
        strict=strict,
        is_async=iscoroutinefunction(function),
        timeout=check_timeout(timeout, name),
        custom=custom,
        approval=check_approval(approval, name),
        claims=claims,
        inspect=check_inspection(inspect, name),
        _schema=json.dumps(with_claim(schema, strict=strict) if claims else schema),
        _shape=shape,
        _names=names,
    )


def _offer(shape: Shape, name: str, strict: bool) -> tuple[dict[str, Any], bool]:
    if shape.model is None:
        return {"type": "string"}, False
    from memoflow.tools._schema import derive_schema, to_strict

    schema = derive_schema(shape.model, name)
    narrowed = to_strict(schema) if strict else None
    return (schema, False) if narrowed is None else (narrowed, True)


def _check_tool_name(function: object, name: str | None) -> str:
    chosen = getattr(function, "__name__", None) if name is None else name
    if chosen is None:
        raise InvalidTool(f"A tool made from a {type(function).__name__} has no name. Pass name=...")
    return check_pattern("Tool name", chosen)


class Toolset:
    """The tools of one call, looked up by exact code points.

    Raises:
        InvalidTool: an entry is no tool, or two have the same namespace and name.
    """

    __slots__ = ("_tools",)

    def __init__(self, tools: Iterable[Tool[..., Any]] = ()) -> None:
        self._tools: dict[tuple[str, str], Tool[..., Any]] = {}
        for entry in tools:
            if not isinstance(entry, Tool):
                raise InvalidTool(
                    f"A {type(entry).__name__} is no tool. Decorate the function with @tool(...)."
                )
            key = entry.identity[:2]
            if key in self._tools:
                raise InvalidTool(
                    f"Two tools are called {entry.name!r} in namespace {entry.namespace!r}. Rename one."
                )
            self._tools[key] = entry

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def lookup(self, namespace: str | None, name: str) -> Tool[..., Any] | None:
        """The tool of exactly this namespace and name, or None."""
        return self._tools.get((namespace or "", name))

    def digest_entries(self) -> list[tuple[str, str, str]]:
        """(namespace or ``""``, name, version) of every tool, sorted: what a replay record is bound to."""
        return sorted(entry.identity for entry in self)
