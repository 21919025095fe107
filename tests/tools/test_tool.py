"""Registration: identity, effect class, names, and the set of tools of one call."""

from __future__ import annotations

import functools
import inspect
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from memoflow.declarations import Inspection
from memoflow.errors import InvalidTool
from memoflow.identity import ActivityIdentity
from memoflow.tools import BoundArguments, Refusal, Tool, ToolCall, Toolset, tool

CALL = ToolCall(
    idempotency_key="mf1_" + "0" * 64,
    call_id="call_1",
    attempt=1,
    ordinal=0,
    round=0,
    identity=ActivityIdentity("default", "w", "r", "a", "t", "v1"),
)


def make(function: Any, **options: Any) -> Tool[..., Any]:
    return tool(function, **{"version": "v1", "effect": "read_only", **options})


def city(city: str) -> str:
    """Current weather
    of a city.

    More for people who read the code.
    """
    return f"sunny in {city}"


def bound(made: Tool[..., Any], raw: str) -> BoundArguments:
    arguments = made.bind(raw)
    assert isinstance(arguments, BoundArguments)
    return arguments


def test_decorated_function_stays_callable() -> None:
    """A decorated function is still called like the plain one, with its own signature."""

    @tool(version="v1", effect="idempotent")
    def add(a: int, b: int = 2) -> int:
        return a + b

    assert add(1) == 3
    assert add(a=1, b=5) == 6
    assert str(inspect.signature(add)) == "(a: 'int', b: 'int' = 2) -> 'int'"


def test_identity_is_namespace_name_and_version() -> None:
    """Namespace, name and version identify a tool; no namespace is the empty one."""
    assert make(city, version="v7").identity == ("", "city", "v7")
    assert make(city, namespace="crm", name="look-up_1").identity == ("crm", "look-up_1", "v1")


def test_description_is_the_first_paragraph() -> None:
    """The model reads the first paragraph of the docstring, on one line, unless another text is given."""
    assert make(city).description == "Current weather of a city."
    assert make(city, description="Weather").description == "Weather"
    assert make(lambda: None, name="f").description == ""


@pytest.mark.parametrize("missing", ["version", "effect"])
def test_version_and_effect_have_no_default(missing: str) -> None:
    """Without a version or an effect class registration is refused with what to write."""
    options = {"version": "v1", "effect": "read_only"}
    del options[missing]
    with pytest.raises(InvalidTool, match=f"'city' has no {missing}.*{missing}=\""):
        tool(city, **options)  # type: ignore[call-overload]


def test_bare_decorator_is_refused() -> None:
    """``@tool`` without arguments is refused with a sentence, not a TypeError."""
    with pytest.raises(InvalidTool, match="has no version"):
        tool(city)  # type: ignore[call-overload]


@pytest.mark.parametrize("effect", ["READ_ONLY", "readonly", "", True, 1, ["read_only"]])
def test_unknown_effect_class_is_refused(effect: object) -> None:
    """Only the three effect classes exist, spelt exactly."""
    with pytest.raises(InvalidTool, match="at_most_once"):
        make(city, effect=effect)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a/b",
        "has space",
        "dot.ted",
        "trailing\n",
        "x" * 65,
        "x" * 129,
        unicodedata.normalize("NFC", "café_lookup"),
        unicodedata.normalize("NFD", "café_lookup"),
        "\N{FULLWIDTH DIGIT ONE}",
        "\ud800",
        7,
    ],
)
@pytest.mark.parametrize("what", ["name", "namespace"])
def test_unusable_names_are_refused(what: str, name: object) -> None:
    """A name a provider would refuse is refused at registration, and never changed into another."""
    with pytest.raises(InvalidTool, match="never changed") as refused:
        make(city, **{what: name})
    str(refused.value).encode()


@pytest.mark.parametrize("name", ["x" * 64, "-", "_a-Z9"])
def test_longest_and_oddest_allowed_names(name: str) -> None:
    """64 characters of the allowed set are a name."""
    assert make(city, name=name).name == name


def test_name_of_a_lambda_must_be_given() -> None:
    """A function without a usable name needs ``name=``."""
    with pytest.raises(InvalidTool, match="<lambda>"):
        make(lambda: None)


@pytest.mark.parametrize("version", ["", "x" * 65, "a\nb", "a\x00", "\x7f", "\udc80", 1, 1.5])
def test_unusable_versions_are_refused(version: object) -> None:
    """A version is text of 1 to 64 characters without control characters."""
    with pytest.raises(InvalidTool, match="version of tool 'city'"):
        make(city, version=version)


@pytest.mark.parametrize("version", ["1", "2026-11-29 β", "x" * 64])
def test_any_other_text_is_a_version(version: str) -> None:
    """Versions are free text within these bounds."""
    assert make(city, version=version).version == version


@pytest.mark.parametrize("timeout", [0, -1, True, float("nan"), float("inf"), "5"])
def test_unusable_timeouts_are_refused(timeout: object) -> None:
    """A timeout is a positive finite number of seconds."""
    with pytest.raises(InvalidTool, match="timeout"):
        make(city, timeout=timeout)


def test_timeout_is_kept() -> None:
    """A timeout is kept in seconds; None means no limit."""
    assert make(city, timeout=5).timeout == 5.0
    assert make(city).timeout is None


def test_description_must_be_sendable() -> None:
    """A description that no request can carry is refused at registration."""
    with pytest.raises(InvalidTool, match="surrogate"):
        make(city, description="\ud800")


def test_async_functions_are_marked() -> None:
    """Who runs a tool can see that its result must be awaited."""
    assert make(_fetch).is_async
    assert not make(city).is_async


async def _fetch(url: str) -> str:
    return url


def test_invoking_an_async_tool_gives_its_coroutine() -> None:
    """`invoke` does not drive the coroutine of an async tool."""
    coroutine = make(_fetch).invoke(bound(make(_fetch), '{"url":"u"}'), CALL)
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    assert stop.value.value == "u"


def test_closure_with_local_types() -> None:
    """A tool defined inside a function may use types and names of that function."""

    class Place(BaseModel):
        name: str

    seen: list[str] = []

    @tool(version="v1", effect="at_most_once")
    def visit(place: Place) -> None:
        seen.append(place.name)

    visit.invoke(bound(visit, '{"place":{"name":"Rome"}}'), CALL)
    assert seen == ["Rome"]


class _Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    def stock(self, item: str) -> str:
        """Items in stock."""
        return f"{item} at {self.name}"

    async def order(self, item: str) -> str:
        return item

    @staticmethod
    def plain(item: str) -> str:
        return item

    @classmethod
    def made(cls, item: str) -> str:
        return cls.__name__ + item


def test_bound_methods_are_tools() -> None:
    """A bound method is a tool of its instance, and ``self`` is no parameter."""
    made = make(_Shop("A").stock)
    assert list(made.schema["properties"]) == ["item"]
    assert made.invoke(bound(made, '{"item":"pen"}'), CALL) == "pen at A"
    assert make(_Shop("A").order).is_async
    assert make(_Shop.made).invoke(bound(made, '{"item":"!"}'), CALL) == "_Shop!"


def test_static_method_objects_are_tools() -> None:
    """``@tool`` may stand above ``@staticmethod``, for async functions too."""
    assert make(staticmethod(city)).name == "city"
    assert make(staticmethod(_fetch)).is_async


def test_unbound_method_says_how_to_bind() -> None:
    """Decorating a method in its class is refused with the way to do it."""
    with pytest.raises(InvalidTool, match=r"tool\(\.\.\.\)\(instance\.method\)"):
        make(_Shop.stock)


class _Callable:
    __name__ = "callable"

    def __call__(self, x: int) -> int:
        return x


@pytest.mark.parametrize(
    "function", [_Callable(), functools.partial(city, city="x"), _Shop, len, make(city), None, "city"]
)
def test_only_functions_and_bound_methods(function: object) -> None:
    """Anything whose parameters are not plainly its signature is refused."""
    options: dict[str, Any] = {"version": "v1", "effect": "read_only", "name": "x"}
    with pytest.raises(InvalidTool, match="function or a bound method"):
        tool(**options)(function)  # type: ignore[arg-type]


def _generate(n: int) -> Iterator[int]:
    yield n


async def _generate_async(n: int) -> Any:
    yield n


@pytest.mark.parametrize("function", [_generate, _generate_async])
def test_generators_are_refused(function: object) -> None:
    """A generator has no single result, so it is no tool."""
    with pytest.raises(InvalidTool, match="generator"):
        make(function)


def test_nameless_callable_is_refused() -> None:
    """A callable without a name is refused before anything else."""
    with pytest.raises(InvalidTool, match="has no name"):
        make(functools.partial(city))


def test_wrapped_function_is_read_through() -> None:
    """A decorator that uses functools.wraps keeps the wrapped signature, and its wrapper runs."""

    @functools.wraps(city)
    def louder(*args: Any, **kwargs: Any) -> str:
        return city(*args, **kwargs).upper()

    made = make(louder)
    assert made.invoke(bound(made, '{"city":"Rome"}'), CALL) == "SUNNY IN ROME"


def test_call_is_injected_and_not_in_the_schema() -> None:
    """A keyword-only ``call: ToolCall`` gets this call and is hidden from the model."""

    @tool(version="v1", effect="idempotent")
    def refund(order: str, *, call: ToolCall) -> str:
        return f"{order} {call.idempotency_key}"

    assert refund.wants_call
    assert list(refund.schema["properties"]) == ["order"]
    assert refund.invoke(bound(refund, '{"order":"o"}'), CALL) == f"o {CALL.idempotency_key}"
    assert isinstance(refund.bind('{"order":"o","call":{}}'), Refusal)


def test_optional_call_is_injected() -> None:
    """``call: ToolCall | None = None`` lets the plain function be called without one."""

    @tool(version="v1", effect="read_only")
    def attempt(*, call: ToolCall | None = None) -> int:
        return 0 if call is None else call.attempt

    assert attempt() == 0
    assert attempt.invoke(bound(attempt, ""), CALL) == 1


def _positional_call(call: ToolCall) -> None: ...


def _renamed_call(*, context: ToolCall) -> None: ...


@pytest.mark.parametrize("function", [_positional_call, _renamed_call])
def test_misplaced_tool_call_is_refused(function: object) -> None:
    """A ToolCall parameter of another form is refused, so that a model can never make one up."""
    with pytest.raises(InvalidTool, match="keyword-only and named call"):
        make(function)


def test_call_of_another_type_is_an_ordinary_parameter() -> None:
    """A parameter that is merely named ``call`` belongs to the model."""

    @tool(version="v1", effect="read_only")
    def dial(*, call: str) -> str:
        return call

    assert not dial.wants_call
    assert dial.invoke(bound(dial, '{"call":"1"}'), CALL) == "1"


def test_tool_is_frozen_and_its_schema_is_a_copy() -> None:
    """Nobody can change a registered tool, not even through its schema."""
    made = make(city)
    made.schema["properties"].clear()
    assert list(made.schema["properties"]) == ["city"]
    with pytest.raises(AttributeError):
        made.version = "v2"  # type: ignore[misc]


def test_toolset_looks_up_exactly() -> None:
    """Lookup is by exact namespace and name; an absent namespace is the empty one."""
    plain, crm = make(city), make(city, namespace="crm", version="v2")
    tools = Toolset([crm, plain])
    assert tools.lookup(None, "city") is plain
    assert tools.lookup("", "city") is plain
    assert tools.lookup("crm", "city") is crm
    assert tools.lookup("crm", "City") is None
    assert tools.lookup(None, "") is None
    assert list(tools) == [crm, plain]
    assert len(tools) == 2


def test_toolset_digest_entries_are_sorted() -> None:
    """What a replay record is bound to does not depend on the order of the tools."""
    tools = [make(city, name=name) for name in ("b", "a")] + [make(city, namespace="n", name="a")]
    entries = [("", "a", "v1"), ("", "b", "v1"), ("n", "a", "v1")]
    assert Toolset(tools).digest_entries() == entries
    assert Toolset(reversed(tools)).digest_entries() == entries
    assert Toolset().digest_entries() == []


def test_toolset_refuses_duplicates() -> None:
    """Two tools of one name are refused, whatever their versions."""
    with pytest.raises(InvalidTool, match="Two tools are called 'city'"):
        Toolset([make(city), make(city, version="v2")])


def test_toolset_refuses_plain_functions() -> None:
    """A function that was not decorated is refused with what to do."""
    with pytest.raises(InvalidTool, match="Decorate"):
        Toolset([city])  # type: ignore[list-item]


def test_a_declaration_for_inspection_is_kept_and_is_no_identity() -> None:
    """What a call does can be said later: a recorded call is finished all the same."""
    declared = Inspection(action="network", sensitive={"city": "host"})
    assert make(city).inspect is None
    assert make(city, inspect=declared).inspect is declared
    assert make(city, inspect=declared).identity == make(city).identity


@pytest.mark.parametrize("declared", ["network", {"action": "network"}, Inspection])
def test_what_is_no_declaration_is_refused(declared: Any) -> None:
    """With a sentence that shows one."""
    with pytest.raises(InvalidTool, match=r"Inspection\(action="):
        make(city, inspect=declared)
