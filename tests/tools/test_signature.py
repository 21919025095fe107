"""Signatures: which can be offered to a model, and how their arguments are passed."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from memoflow.errors import InvalidTool
from memoflow.tools import BoundArguments, Refusal, Tool, tool
from memoflow.tools._call import ToolCall

if TYPE_CHECKING:
    from decimal import Decimal as OnlyWhileChecking


def make(function: Any, **options: Any) -> Tool[..., Any]:
    return tool(function, **{"version": "v1", "effect": "read_only", "name": "f", **options})


def kwargs(made: Tool[..., Any], raw: str) -> dict[str, Any]:
    arguments = made.bind(raw)
    assert isinstance(arguments, BoundArguments)
    return arguments.kwargs


def _args(*items: int) -> None: ...


def _kwargs(**items: int) -> None: ...


def _slash(a: int, /) -> None: ...


def _bare(a) -> None: ...  # type: ignore[no-untyped-def]


def _field_default(a: int = Field(3)) -> None: ...


def _alias(a: Annotated[int, Field(alias="b")]) -> None: ...


def _unresolved(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def _only_checking(a: OnlyWhileChecking) -> None: ...


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (_args, r"takes \*args"),
        (_kwargs, r"takes \*\*kwargs"),
        (_slash, "positional-only"),
        (_bare, "no annotation. Annotate it"),
        (_field_default, r"Annotated\[type, Field"),
        (_alias, "has an alias"),
        (_unresolved, "cannot be resolved"),
        (_only_checking, "at the top of the module"),
    ],
)
def test_signatures_without_a_schema_are_refused(function: object, sentence: str) -> None:
    """A signature that no schema describes exactly is refused with what to change."""
    with pytest.raises(InvalidTool, match=sentence):
        make(function)


def test_return_annotation_need_not_exist_at_run_time() -> None:
    """Only the parameters must be resolvable; what comes back is checked when it comes."""

    def f(a: int) -> OnlyWhileChecking:
        raise NotImplementedError

    assert kwargs(make(f), '{"a":1}') == {"a": 1}


def test_reserved_parameter_names_work() -> None:
    """A parameter may have any name, also those that pydantic keeps for itself."""

    def f(schema: str, _x: int, copy: bool, model_config: int, json: int, p0: int) -> None: ...

    raw = '{"schema":"s","_x":1,"copy":true,"model_config":2,"json":3,"p0":4}'
    assert kwargs(make(f), raw) == {
        "schema": "s",
        "_x": 1,
        "copy": True,
        "model_config": 2,
        "json": 3,
        "p0": 4,
    }


def test_names_of_the_checking_model_are_not_arguments() -> None:
    """The names memoflow uses inside are no second way to pass an argument."""

    def f(city: str) -> None: ...

    assert isinstance(make(f).bind('{"p0":"x"}'), Refusal)
    assert isinstance(make(f).bind('{"city":"x","p0":"x"}'), Refusal)


def test_defaults_are_left_to_the_function() -> None:
    """What the model leaves out is not passed, so the function's own default counts."""
    marker = object()

    def f(a: int, b: Annotated[Any, Field(description="b")] = marker, *, c: int | None = None) -> None: ...

    made = make(f)
    assert kwargs(made, '{"a":1}') == {"a": 1}
    assert kwargs(made, '{"a":1,"c":null,"b":2}') == {"a": 1, "b": 2, "c": None}


def test_default_inside_the_annotation_is_passed() -> None:
    """A default that only the annotation knows is filled in, afresh each time."""

    def f(a: Annotated[list[int], Field(default_factory=list)]) -> None: ...

    made = make(f)
    first, second = kwargs(made, "{}"), kwargs(made, "{}")
    assert first == second == {"a": []}
    assert first["a"] is not second["a"]


def test_arguments_are_fresh_objects() -> None:
    """Binding the same text twice shares no mutable object."""

    def f(a: list[dict[str, Any]]) -> None: ...

    made = make(f)
    first, second = kwargs(made, '{"a":[{"b":[1]}]}'), kwargs(made, '{"a":[{"b":[1]}]}')
    first["a"][0]["b"].append(2)
    assert second == {"a": [{"b": [1]}]}


class Order(BaseModel):
    """An order."""

    id: str
    lines: list[int] = []


def test_explicit_model_is_passed_as_the_only_argument() -> None:
    """With ``parameters=`` the function takes the checked model itself."""

    def f(order: Order, *, call: ToolCall) -> list[int]:
        return order.lines

    made = make(f, parameters=Order)
    arguments = made.bind('{"id":"o","lines":[1,2]}')
    assert isinstance(arguments, BoundArguments)
    assert arguments.args == (Order(id="o", lines=[1, 2]),)
    assert arguments.kwargs == {}


def test_explicit_model_may_be_positional_only_or_any() -> None:
    """The single argument is passed by position, under whatever name."""

    def f(order: Any, /) -> str:
        return str(order.id)

    arguments = make(f, parameters=Order).bind('{"id":"o"}')
    assert isinstance(arguments, BoundArguments)
    assert f(*arguments.args) == "o"


def _no_argument() -> None: ...


def _two(a: Order, b: int) -> None: ...


def _other(a: int) -> None: ...


def _keyword_only(*, a: Order) -> None: ...


@pytest.mark.parametrize("function", [_no_argument, _two, _other, _keyword_only])
def test_function_must_fit_its_explicit_model(function: object) -> None:
    """With ``parameters=`` exactly one positional argument of that type is allowed."""
    with pytest.raises(InvalidTool, match="exactly one positional argument: the Order"):
        make(function, parameters=Order)


@pytest.mark.parametrize("parameters", [dict, Order(id="o"), "Order"])
def test_parameters_must_be_a_model_class(parameters: object) -> None:
    """``parameters=`` takes a pydantic model class and nothing else."""
    with pytest.raises(InvalidTool, match="pydantic model class"):
        make(_other, parameters=parameters)


def _free(text: str) -> None: ...


def test_custom_tool_takes_text() -> None:
    """A custom tool has one text argument and no parameters model."""
    assert make(_free, custom=True).custom
    with pytest.raises(InvalidTool, match="has no parameters model"):
        make(_free, custom=True, parameters=Order)
    with pytest.raises(InvalidTool, match="annotated str"):
        make(_other, custom=True)


class _Odd: ...


def _not_checkable(a: _Odd) -> None: ...


def test_types_that_cannot_be_checked_are_refused() -> None:
    """A type that pydantic cannot check is refused at registration."""
    with pytest.raises(InvalidTool, match="PydanticSchemaGenerationError"):
        make(_not_checkable)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


def _open(a: Open) -> None: ...


@pytest.mark.parametrize("options", [{}, {"parameters": Open}])
def test_open_models_are_refused(options: dict[str, Any]) -> None:
    """A model that keeps unknown keys is refused, since unknown keys never reach a tool."""
    with pytest.raises(InvalidTool, match="field of type dict"):
        make(_open, **options)


def test_annotation_text_means_the_defining_scope() -> None:
    """A local type wins over a module's type of the same name, as it does for Python itself."""

    class Order(BaseModel):
        other: int

    def f(a: Order) -> None: ...

    assert kwargs(make(f), '{"a":{"other":1}}') == {"a": Order(other=1)}


def test_annotation_text_ignores_the_names_of_the_registering_scope() -> None:
    """A function defined elsewhere is read with its own module's names."""
    Order = int
    assert Order is int
    assert kwargs(make(_module_order), '{"a":{"id":"x"}}')["a"].id == "x"


def _module_order(a: Order) -> None: ...


def test_tool_call_keeps_its_annotation_when_annotated() -> None:
    """``Annotated[ToolCall, ...]`` is injected as well and never offered to a model."""

    def f(*, call: Annotated[ToolCall, "note"]) -> None: ...

    made = make(f)
    assert made.wants_call
    assert made.schema["properties"] == {}
    assert "call" in inspect.signature(made).parameters
