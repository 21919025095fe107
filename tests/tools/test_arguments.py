"""Arguments: bounded, parsed strictly, never repaired, and refused without repeating them."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from memoflow.canonical import Digester, canonical
from memoflow.tools import MAX_ARGUMENTS_BYTES, BoundArguments, Refusal, Tool, tool

DIGESTER = Digester()
SECRET = "hunter2"


def make(function: Any, **options: Any) -> Tool[..., Any]:
    return tool(function, **{"version": "v1", "effect": "read_only", "name": "f", **options})


def of(hint: Any) -> Tool[..., Any]:
    def f(value: Any) -> None: ...

    f.__annotations__["value"] = hint
    return make(f)


def bound(made: Tool[..., Any], raw: str) -> BoundArguments:
    arguments = made.bind(raw)
    assert isinstance(arguments, BoundArguments), arguments
    return arguments


def detail(made: Tool[..., Any], raw: str) -> str:
    refusal = made.bind(raw)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "INVALID_ARGUMENTS"
    assert json.loads(refusal.text) == {"error": {"code": "INVALID_ARGUMENTS", "detail": refusal.detail}}
    return refusal.detail


def _nothing() -> None: ...


def _one(q: str) -> None: ...


def _number(x: int) -> None: ...


@pytest.mark.parametrize("raw", ["", " \n", "\t\r\n ", "{}", " { } "])
def test_blank_is_an_empty_object(raw: str) -> None:
    """Blank arguments mean ``{}`` and have its digest."""
    arguments = bound(make(_nothing), raw)
    assert arguments.kwargs == {}
    assert arguments.digest(DIGESTER) == DIGESTER.json({})


@pytest.mark.parametrize("raw", ["", " \n"])
def test_blank_is_refused_where_a_parameter_is_required(raw: str) -> None:
    """Blank arguments are checked like any others."""
    assert detail(make(_one), raw) == "q: missing"


@pytest.mark.parametrize(
    ("raw", "label"),
    [
        ('{"q": oops"}', "MALFORMED"),
        ('{"q":"a"', "MALFORMED"),
        ('{"q":"a"} {"q":"b"}', "MALFORMED"),
        ("\ufeff{}", "MALFORMED"),
        ("\u00a0", "MALFORMED"),
        ('{"q":"a","q":"b"}', "DUPLICATE_KEY"),
        ('{"q":NaN}', "NOT_FINITE"),
        ('{"q":-Infinity}', "NOT_FINITE"),
        ('{"q":1e400}', "NOT_FINITE"),
        ('{"q":"\\ud83d"}', "LONE_SURROGATE"),
        ('{"q":"\ud83d"}', "LONE_SURROGATE"),
        ("[" * 65 + "]" * 65, "TOO_DEEP"),
        ('{"q":' + "9" * 500 + "}", "TOO_MANY_DIGITS"),
        ("null", "not null (NOT_AN_OBJECT)"),
        ("[1]", "not an array (NOT_AN_OBJECT)"),
        ('"{\\"q\\":\\"a\\"}"', "not a string (NOT_AN_OBJECT)"),
        ("1", "not a number (NOT_AN_OBJECT)"),
        ("1.5", "not a number (NOT_AN_OBJECT)"),
        ("true", "not a boolean (NOT_AN_OBJECT)"),
    ],
)
def test_bad_text_is_refused_with_its_label(raw: str, label: str) -> None:
    """Text that is not one strict JSON object is refused and never repaired or decoded twice."""
    assert label in detail(make(_one), raw)


@pytest.mark.parametrize("value", ['"5"', "true", "5.5", "null", "[5]", '{"x":5}', '""'])
def test_other_types_are_not_integers(value: str) -> None:
    """An integer is an integer: no text, no boolean, no fraction."""
    assert detail(make(_number), f'{{"x":{value}}}') == "x: int_type"


@pytest.mark.parametrize("value", ["5", "5.0", "50e-1"])
def test_whole_numbers_are_integers(value: str) -> None:
    """JSON Schema has one kind of number: 5.0 is the integer 5, with the same digest."""
    arguments = bound(make(_number), f'{{"x":{value}}}')
    assert arguments.kwargs == {"x": 5}
    assert type(arguments.kwargs["x"]) is int
    assert arguments.digest(DIGESTER) == DIGESTER.json({"x": 5})


@given(st.integers(-(10**307), 10**307))
def test_integers_are_exact(number: int) -> None:
    """Integers of any allowed length arrive digit for digit."""
    assert bound(make(_number), f'{{"x":{number}}}').kwargs == {"x": number}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_exact(number: float) -> None:
    """Every finite double arrives as itself."""
    assert bound(FLOAT, f'{{"value":{number!r}}}').kwargs == {"value": number}


FLOAT = of(float)


@pytest.mark.parametrize("digits", [309, 400])
def test_integer_never_becomes_infinity(digits: int) -> None:
    """An integer too large for a double is refused, since a float parameter would get infinity."""
    assert "TOO_MANY_DIGITS" in detail(FLOAT, f'{{"value":{"9" * digits}}}')
    assert bound(FLOAT, f'{{"value":{"9" * 308}}}').kwargs == {"value": float("9" * 308)}


@pytest.mark.parametrize(
    ("hint", "raw", "value"),
    [
        (datetime, '"2026-01-02T03:04:05+00:00"', datetime.fromisoformat("2026-01-02T03:04:05+00:00")),
        (date, '"2026-01-02"', date(2026, 1, 2)),
        (UUID, '"12345678-1234-5678-1234-567812345678"', UUID("12345678-1234-5678-1234-567812345678")),
        (Decimal, '"1.10"', Decimal("1.10")),
        (set[int], "[1,2,2]", {1, 2}),
        (tuple[int, str], '[1,"a"]', (1, "a")),
        (float, "5", 5.0),
        (str, '"a\\u0000b"', "a\0b"),
        (Any, '{"a":[1,null]}', {"a": [1, None]}),
        (Annotated[int, BeforeValidator(int)], '"5"', 5),
    ],
)
def test_types_written_as_json_text(hint: object, raw: str, value: object) -> None:
    """Types without a JSON form of their own are read from their usual one."""
    assert bound(of(hint), f'{{"value":{raw}}}').kwargs == {"value": value}


class Line(BaseModel):
    sku: str
    count: int


def _order(lines: list[Line], labels: dict[str, int], pick: int | Line) -> None: ...


def test_refusal_names_places_and_kinds() -> None:
    """A refusal says where and what kind, in the words of the schema."""
    raw = '{"lines":[{"sku":"a","count":1},{"sku":"a","count":"x"},{"sku":"a"}],"labels":{},"pick":1}'
    assert detail(make(_order), raw) == "lines[1].count: int_type; lines[2].count: missing"


def test_refusal_repeats_nothing_the_model_wrote() -> None:
    """Neither values nor keys of the model's own are in a refusal; declared names are."""
    raw = json.dumps(
        {
            "lines": [{"sku": 1, "count": SECRET, SECRET: 1}],
            "labels": {SECRET: SECRET},
            "pick": SECRET,
            SECRET: SECRET,
        }
    )
    text = detail(make(_order), raw)
    assert SECRET not in text
    assert text.split("; ") == [
        "lines[0].sku: string_type",
        "lines[0].count: int_type",
        "lines[0].(unknown key): extra_forbidden",
        "labels.*: int_type",
        "pick.*: int_type",
        "pick.*: model_type",
        "(unknown key): extra_forbidden",
    ]


@pytest.mark.parametrize("raw", [f'{{"{SECRET}', f'{{"{SECRET}":1,"{SECRET}":2}}', f'"{SECRET}"'])
def test_refused_text_is_not_repeated(raw: str) -> None:
    """Text that cannot be parsed is not in the refusal either."""
    assert SECRET not in detail(make(_one), raw)


def test_refusal_is_bounded() -> None:
    """At most eight problems are listed, the rest is counted."""
    items = ",".join(['"x"'] * 1_000)
    text = detail(of(list[int]), f'{{"value":[{items}]}}')
    assert text.split("; ")[7:] == ["value[7]: int_type", "and 992 more"]


def test_long_paths_are_cut() -> None:
    """A place is cut at 80 characters."""
    long = "x" * 300

    class Named(BaseModel):
        a: int = Field(alias=long)

    def f(named: Named) -> None: ...

    text = detail(make(f, parameters=Named), "{}")
    assert text == "x" * 79 + "…: missing"


def _odd(value: str) -> str:
    if value == "custom":
        raise PydanticCustomError("No such " + SECRET, "no")
    if value == "value":
        raise ValueError(SECRET)
    if value == "key":
        raise KeyError(SECRET)
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("custom", "value: invalid"),
        ("value", "value: value_error"),
        ("key", "The arguments could not be checked: a validator raised KeyError."),
    ],
)
def test_own_validators_refuse_without_leaking(value: str, text: str) -> None:
    """Whatever a validator raises, the call is refused and the validator's text is not shown."""
    made = of(Annotated[str, AfterValidator(_odd)])
    assert detail(made, f'{{"value":"{value}"}}') == text
    assert bound(made, '{"value":"fine"}').kwargs == {"value": "fine"}


def test_whole_model_problems_have_a_place() -> None:
    """A problem of the arguments as a whole is placed at the arguments."""

    class Never(BaseModel):
        a: int

        @classmethod
        def refuse(cls, value: Any) -> Any:
            raise ValueError

    def f(never: Any) -> None: ...

    checked = Annotated[Never, BeforeValidator(Never.refuse)]
    assert detail(of(checked), '{"value":{"a":1}}') == "value: value_error"
    assert detail(make(f, parameters=_Refusing), "{}") == "(arguments): value_error"


class _Refusing(BaseModel):
    def model_post_init(self, _: Any) -> None:
        raise ValueError(SECRET)


def test_size_is_bounded_in_bytes() -> None:
    """Arguments over the limit are refused before they are parsed; bytes count, not characters."""
    made = make(_one)
    assert "TOO_LARGE" in detail(made, '{"q":"' + "x" * MAX_ARGUMENTS_BYTES + '"}')
    assert isinstance(made.bind('{"q":"éé"}', max_bytes=12), BoundArguments)
    assert isinstance(made.bind('{"q":"ééé"}', max_bytes=12), Refusal)


def test_tool_gets_what_was_digested() -> None:
    """The digest covers the canonical form of the text, and the values come from that form."""
    arguments = bound(of(Any), '{ "value" : {"b":1.0, "a":"\\u00e9"} }')
    assert arguments.digest_source == canonical({"value": {"a": "é", "b": 1}})
    assert arguments.kwargs == {"value": {"a": "é", "b": 1}}
    assert arguments.digest(DIGESTER) == DIGESTER.json({"value": {"a": "é", "b": 1}})


def test_bound_arguments_do_not_print_themselves() -> None:
    """The values of a call are not in the representation of its arguments."""
    assert SECRET not in repr(bound(make(_one), f'{{"q":"{SECRET}"}}'))


def _patch(text: str) -> str:
    return text


@pytest.mark.parametrize("raw", ["*** begin\n{not json", "", " ", '{"a":1,"a":2}', "\0"])
def test_custom_tools_get_the_raw_text(raw: str) -> None:
    """A freeform call is never parsed: text in, digest over its bytes."""
    arguments = bound(make(_patch, custom=True), raw)
    assert arguments.args == (raw,)
    assert arguments.kwargs == {}
    assert arguments.digest(DIGESTER) == DIGESTER.bytes(raw.encode())


def test_custom_input_is_bounded_and_storable() -> None:
    """Freeform text has the same size limit and must be valid Unicode."""
    made = make(_patch, custom=True)
    assert "LONE_SURROGATE" in detail(made, "\ud800")
    refusal = made.bind("ééé", max_bytes=5)
    assert isinstance(refusal, Refusal)
    assert refusal.detail == "The input has 6 bytes, 5 at most (TOO_LARGE)."


class _Node(BaseModel):
    count: int
    tags: list[str]
    next: _Node | None


_RAN: list[tuple[Any, ...]] = []


@tool(version="v1", effect="at_most_once")
def _strictly(name: str, amount: int, node: _Node, free: dict[str, float]) -> None:
    _RAN.append((name, amount, node, free))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text() | JSON_VALUES,
        "amount": st.integers() | JSON_VALUES,
        "node": st.just({"count": 1, "tags": ["a"], "next": None}) | JSON_VALUES,
        "free": st.dictionaries(st.text(), st.floats(allow_nan=False)) | JSON_VALUES,
        "other": JSON_VALUES,
    },
)


@given(
    st.text()
    | st.text(alphabet='{}[]",:\\0123456789.eE+-truefalsn \n\ud800')
    | JSON_VALUES.map(json.dumps)
    | NEARLY.map(json.dumps)
)
def test_any_text_is_bound_or_refused_and_runs_nothing(raw: str) -> None:
    """Binding never raises and never runs the function; what it lets through has the declared types."""
    _RAN.clear()
    outcome = _strictly.bind(raw)
    assert not _RAN
    if isinstance(outcome, Refusal):
        outcome.text.encode()
        assert len(outcome.detail) <= 1_000
        return
    name, amount, node, free = (outcome.kwargs[key] for key in ("name", "amount", "node", "free"))
    assert type(name) is str
    assert type(amount) is int
    assert type(node) is _Node
    assert all(type(value) is float for value in free.values())
    assert json.loads(outcome.digest_source).keys() == {"name", "amount", "node", "free"}


@given(st.text(), st.integers(-(10**30), 10**30), st.dictionaries(st.text(), st.floats(-1e300, 1e300)))
def test_valid_arguments_always_arrive(name: str, amount: int, free: dict[str, float]) -> None:
    """Well-typed arguments are never refused and arrive unchanged."""
    node = {"count": 0, "tags": [name], "next": {"count": 1, "tags": [], "next": None}}
    raw = json.dumps({"name": name, "amount": amount, "node": node, "free": free})
    arguments = bound(_strictly, raw)
    assert arguments.kwargs["name"] == name
    assert arguments.kwargs["amount"] == amount
    assert arguments.kwargs["free"] == free
    assert arguments.kwargs["node"].model_dump() == node
