"""From a Python function to the pydantic model that checks its arguments."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType, MethodType, SimpleNamespace
from typing import Annotated, Any, Final, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from memoflow.errors import InvalidTool
from memoflow.tools._arguments import Check
from memoflow.tools._call import ToolCall
from memoflow.tools._schema import first_line

__all__ = ["Shape", "read_shape"]

_EMPTY: Final = inspect.Parameter.empty
_REFUSED_KINDS: Final = {
    inspect.Parameter.VAR_POSITIONAL: "takes *args",
    inspect.Parameter.VAR_KEYWORD: "takes **kwargs",
}


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    kind: Any
    hint: Any
    default: Any


@dataclass(frozen=True, slots=True)
class Shape:
    """How a function is called.

    Attributes:
        model: checks the arguments; None for a custom tool, which takes the raw text.
        fields: (parameter, model field, required) of each parameter; None when the function takes
            the model itself.
        wants_call: whether it takes ``call: ToolCall``.
        check: checks the arguments instead of a model; the function then takes them as one JSON object.
    """

    model: type[BaseModel] | None
    fields: tuple[tuple[str, str, bool], ...] | None
    wants_call: bool
    check: Check | None = None

    def arguments(self, checked: BaseModel) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments of the function, from a checked model."""
        if self.fields is None:
            return (checked,), {}
        given = checked.model_fields_set
        return (), {
            name: getattr(checked, field)
            for name, field, required in self.fields
            # What the model left out is left to the function's own default.
            if required or field in given
        }


def read_shape(
    function: Callable[..., Any], name: str, parameters: type[BaseModel] | None, custom: bool
) -> Shape:
    """Check a function's signature and derive how it is called.

    Raises:
        InvalidTool: the signature cannot be offered to a model as it is.
    """
    given, wants_call = _read_parameters(function, name)
    if custom:
        if parameters is not None:
            raise InvalidTool(f"Custom tool {name!r} takes raw text and has no parameters model. Drop one.")
        _check_single(given, name, str, "the raw text of the call, annotated str")
        return Shape(None, None, wants_call)
    if parameters is not None:
        if not (isinstance(parameters, type) and issubclass(parameters, BaseModel)):
            raise InvalidTool(f"The parameters of tool {name!r} must be a pydantic model class.")
        _check_single(given, name, parameters, f"the {parameters.__name__} with the checked arguments")
        return Shape(parameters, None, wants_call)
    return _from_parameters(given, name, wants_call)


def _check_single(given: list[_Parameter], name: str, expected: type, what: str) -> None:
    fits = (
        len(given) == 1
        and given[0].kind is not inspect.Parameter.KEYWORD_ONLY
        and (
            given[0].hint is Any or (isinstance(given[0].hint, type) and issubclass(expected, given[0].hint))
        )
    )
    if not fits:
        raise InvalidTool(f"The function of tool {name!r} must take exactly one positional argument: {what}.")


def _from_parameters(given: list[_Parameter], name: str, wants_call: bool) -> Shape:
    definitions: dict[str, Any] = {}
    fields: list[tuple[str, str, bool]] = []
    for index, parameter in enumerate(given):
        _check_plain(parameter, name)
        required = parameter.default is _EMPTY
        # Names of our own: a parameter may be called `schema`, `copy` or `_x`, which pydantic reserves.
        field = f"p{index}"
        fields.append((parameter.name, field, required))
        extra = {} if required else {"default": parameter.default}
        definitions[field] = (parameter.hint, Field(alias=parameter.name, **extra))
    try:
        model = create_model(name, __config__=ConfigDict(extra="forbid"), **definitions)
    except Exception as error:
        raise InvalidTool(
            f"The parameters of tool {name!r} cannot be checked ({first_line(error)}). "
            "Use JSON types, dates, UUID, Decimal, dataclasses or pydantic models."
        ) from error
    return Shape(model, tuple(fields), wants_call)


def _check_plain(parameter: _Parameter, name: str) -> None:
    what = f"Parameter {parameter.name!r} of tool {name!r}"
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise InvalidTool(f"{what} is positional-only, but a model names its arguments. Remove the '/'.")
    if isinstance(parameter.default, FieldInfo):
        raise InvalidTool(
            f"{what} has a pydantic Field as its default. Write Annotated[type, Field(...)] instead."
        )
    metadata = getattr(parameter.hint, "__metadata__", ())
    if any(isinstance(m, FieldInfo) and (m.alias or m.validation_alias) for m in metadata):
        raise InvalidTool(f"{what} has an alias. Rename the parameter, or pass parameters=<pydantic model>.")


def _read_parameters(function: Callable[..., Any], name: str) -> tuple[list[_Parameter], bool]:
    _check_function(function, name)
    local_names = _local_names(function)
    given: list[_Parameter] = []
    wants_call = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in _REFUSED_KINDS:
            raise InvalidTool(
                f"Tool {name!r} {_REFUSED_KINDS[parameter.kind]}, which no schema describes. "
                "Name every parameter."
            )
        hint = _resolve(function, parameter, name, local_names)
        if _is_call(hint):
            _check_call(parameter, name)
            wants_call = True
        else:
            given.append(_Parameter(parameter.name, parameter.kind, hint, parameter.default))
    return given, wants_call


def _check_function(function: object, name: str) -> None:
    if not isinstance(function, (FunctionType, MethodType)):
        raise InvalidTool(
            f"Tool {name!r} must be a function or a bound method, not {type(function).__name__}. "
            "Wrap it in a small function whose parameters are what the model may choose."
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidTool(f"Tool {name!r} is a generator; a tool returns one value. Return a list.")


def _is_call(hint: Any) -> bool:
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return plain is ToolCall or plain == ToolCall | None


def _check_call(parameter: inspect.Parameter, name: str) -> None:
    if parameter.name != "call" or parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
        raise InvalidTool(
            f"Parameter {parameter.name!r} of tool {name!r} is a ToolCall. It must be keyword-only and named "
            "call: def f(..., *, call: ToolCall)."
        )


def _resolve(
    function: Callable[..., Any],
    parameter: inspect.Parameter,
    name: str,
    local_names: dict[str, Any] | None,
) -> Any:
    if parameter.annotation is _EMPTY:
        hint = (
            "Register a bound method with tool(...)(instance.method)."
            if parameter.name in ("self", "cls")
            else "Annotate it."
        )
        raise InvalidTool(f"Parameter {parameter.name!r} of tool {name!r} has no annotation. {hint}")
    # One at a time, because the return annotation need not exist at run time and does not matter.
    holder = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        hints = get_type_hints(holder, _plain(function).__globals__, local_names or {}, include_extras=True)
    except Exception as error:
        raise InvalidTool(
            f"The annotation of parameter {parameter.name!r} of tool {name!r} cannot be resolved "
            f"({first_line(error)}). Import its names at run time, at the top of the module."
        ) from error
    return hints[parameter.name]


def _plain(function: Any) -> FunctionType:
    plain = inspect.unwrap(function)
    return cast(FunctionType, plain.__func__ if isinstance(plain, MethodType) else plain)


def _local_names(function: Callable[..., Any]) -> dict[str, Any] | None:
    """Names of the running scope that defined ``function``, for annotations kept as text."""
    code: CodeType = _plain(function).__code__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _defines(frame.f_code.co_consts, code):
            return dict(frame.f_locals)
        frame = frame.f_back
    return None


def _defines(constants: Iterable[object], code: CodeType) -> bool:
    return any(constant is code for constant in constants)
