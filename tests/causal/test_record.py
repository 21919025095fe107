"""The causal record: what it takes, that it cannot be changed, and that nothing of it is lost."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.causal._frozen import FrozenObject, freeze, thaw
from memoflow.causal.record import Actor, CausalRecord, Form, RecordRefused, actor_from_dict, record_from_dict
from memoflow.errors import InvalidRequest, MemoflowError

PLAIN: dict[str, Any] = {
    "id": "a",
    "timestamp": 7,
    "actor": {"kind": "agent", "name": "support"},
    "action": "send",
    "object": {"to": ["b", {"c": 1}]},
    "permitted_by": "task:x",
    "parent_cause": None,
}
PROCESS = {"pid": 1, "uid": 0}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=12)
times = st.integers(0, 2**63 - 1)
known = {
    "id",
    "timestamp",
    "actor",
    "action",
    "object",
    "permitted_by",
    "parent_cause",
    "joins",
    "ctag",
    "integrity",
}
members = {"pid", "uid", "ppid", "gid", "comm", "kind", "name"}


def extras(taken: set[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Members that are not known."""
    return st.dictionaries(st.text(max_size=8).filter(lambda key: key not in taken), json_values, max_size=2)


@st.composite
def plain_records(draw: st.DrawFn) -> dict[str, Any]:
    """Records of the strict form as plain JSON."""
    processes = st.fixed_dictionaries({"pid": times, "uid": times}, optional={"comm": names, "gid": times})
    logical = st.fixed_dictionaries({"kind": st.sampled_from(["human", "agent"]), "name": names})
    record = {
        "id": draw(names),
        "timestamp": draw(times),
        "actor": draw(processes | logical) | draw(extras(members)),
        "action": draw(names),
        "object": draw(json_values),
        "permitted_by": draw(names),
        "parent_cause": draw(st.none() | names),
    }
    optional = {"joins": st.lists(names, min_size=1, max_size=3), "ctag": st.integers(0, 2**16 - 1)}
    return record | draw(st.fixed_dictionaries({}, optional=optional)) | draw(extras(known))


@given(plain_records())
def test_nothing_is_lost_on_the_way(plain: dict[str, Any]) -> None:
    """What was read is written as it was, members that are not known included, and read again as the same."""
    record = record_from_dict(plain)
    assert record.to_dict() == plain
    assert record_from_dict(record.to_dict()) == record
    assert hash(record_from_dict(record.to_dict())) == hash(record)


def test_optional_members_without_a_value_are_left_out() -> None:
    """As the Causal Memory Layer writes them; only the parent is always there."""
    plain = {**PLAIN, "ctag": None, "integrity": None, "actor": {**PROCESS, "ppid": None}}
    assert record_from_dict(plain).to_dict() == {**PLAIN, "actor": PROCESS}
    assert list(record_from_dict(plain).to_dict()) == list(PLAIN)


def test_a_record_cannot_be_changed() -> None:
    """Neither its fields nor anything in them; and what it was made from may change without it."""
    given_ = copy.deepcopy(PLAIN)
    record = record_from_dict(given_)
    given_["object"]["to"].append("more")
    assert record.object == {"to": ("b", {"c": 1})}
    with pytest.raises(FrozenInstanceError):
        record.id = "b"  # type: ignore[misc]
    for change in (
        lambda value: value.update(x=1),
        lambda value: value.__setitem__("x", 1),
        lambda value: value.__ior__({"x": 1}),
        lambda value: value.pop("to"),
        lambda value: value.clear(),
        lambda value: value.setdefault("x", 1),
        lambda value: value.popitem(),
        lambda value: value.__delitem__("to"),
    ):
        with pytest.raises(TypeError, match="cannot be changed"):
            change(record.object)


def test_records_survive_pickling_and_copying() -> None:
    """Also frozen objects, which are not rebuilt item by item."""
    record = record_from_dict({**PLAIN, "more": {"a": {"b": []}}})
    assert pickle.loads(pickle.dumps(record)) == record == copy.deepcopy(record)
    assert type(pickle.loads(pickle.dumps(record)).object) is FrozenObject


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": 1}, "'id' must be text, not a number"),
        ({"id": ""}, "'id' must have 1 to 256"),
        ({"id": "a\nb"}, "control characters"),
        ({"timestamp": "7"}, "'timestamp' must be an integer, not text"),
        ({"timestamp": True}, "'timestamp' must be an integer, not a boolean"),
        ({"timestamp": 1.0}, "'timestamp' must be an integer, not a number"),
        ({"timestamp": -1}, "'timestamp' must be from 0"),
        ({"timestamp": 2**63}, "'timestamp' must be from 0"),
        ({"actor": "x"}, "'actor' must be a JSON object, not text"),
        ({"actor": {"pid": 1}}, "missing a required field: uid"),
        ({"actor": {"kind": "agent"}}, "missing a required field: pid, and it has no kind and name"),
        ({"actor": {"kind": "Agent", "name": "x"}}, "kind of an actor"),
        ({"actor": {"kind": "pid", "name": "1/uid:0"}}, "'pid' stands for processes"),
        ({"actor": {"kind": "agent", "name": ""}}, "'name' must have 1 to 256"),
        ({"actor": {"pid": "1", "uid": 0}}, "'pid' must be an integer"),
        ({"action": None}, "'action' must be text, not null"),
        ({"permitted_by": None}, "'permitted_by' must be text, not null"),
        ({"parent_cause": ""}, "'parent_cause' must have 1 to 256"),
        ({"parent_cause": ["a"]}, "'parent_cause' must be text, not an array"),
        ({"joins": "a"}, "'joins' must be an array"),
        ({"joins": [1]}, "'joins' must be text, not a number"),
        ({"joins": ["a"] * 257}, "at most 256"),
        ({"ctag": 65536}, "'ctag' must be from 0 to 65535"),
        ({"ctag": "x"}, "'ctag' must be an integer"),
    ],
)
def test_the_strict_form_takes_only_what_it_means(change: dict[str, Any], words: str) -> None:
    """Every field has its type; the refusal says which one, and what it was, never its value."""
    with pytest.raises(RecordRefused, match=words):
        record_from_dict({**PLAIN, **change})


@pytest.mark.parametrize("form", ["strict", "compat"])
def test_all_missing_fields_are_named_at_once(form: Form) -> None:
    """In their order."""
    with pytest.raises(
        RecordRefused, match=r"missing required field\(s\): timestamp, action, permitted_by\."
    ):
        record_from_dict({"id": "a", "actor": PROCESS, "object": None}, form)


def test_the_compat_form_takes_what_the_reference_does() -> None:
    """Empty text, any integer as time, any JSON as permission; but only processes as actors."""
    loose = {
        **PLAIN,
        "actor": PROCESS,
        "timestamp": -(2**80),
        "permitted_by": None,
        "parent_cause": "",
        "id": "",
    }
    assert record_from_dict(loose, "compat").to_dict() == loose
    with pytest.raises(RecordRefused, match="missing a required field: pid"):
        record_from_dict(PLAIN, "compat")
    with pytest.raises(RecordRefused, match="'id' must be text"):
        record_from_dict({**loose, "id": 5}, "compat")


@pytest.mark.parametrize("raw", [None, [], "x", 5])
def test_what_is_no_object_is_no_record(raw: object) -> None:
    """Whatever else it is."""
    with pytest.raises(RecordRefused, match="is a JSON object"):
        record_from_dict(raw)


def test_actors_are_known_by_one_text() -> None:
    """A logical actor by kind and name, a process by its ids; neither can pass for the other."""
    assert Actor(kind="human", name="alice", pid=1, uid=2).key == "human:alice"
    assert Actor(pid=1, uid=2, comm="human:alice").key == "pid:1/uid:2"
    assert actor_from_dict({"kind": "agent", "name": "x", "more": [1]}).extra == {"more": (1,)}


def test_what_has_no_json_form_is_refused() -> None:
    """Too deep, not JSON, or without exact form: with a sentence, not with what Python would raise."""
    deep: Any = None
    for _ in range(500):
        deep = [deep]
    odd = (
        deep,
        object(),
        {1: 2},
        b"x",
        "\ud800",
        {"\ud800": 1},
        [10**5000],
        float("nan"),
        {"a": float("-inf")},
    )
    for value in odd:
        with pytest.raises(InvalidRequest, match=r"^A (value of a )?causal record"):
            CausalRecord("a", 1, Actor(), "x", value, "t")
    for change in (
        {"id": "\ud800"},
        {"parent_cause": "\ud800"},
        {"joins": ["\ud800"]},
        {"timestamp": 10**5000},
    ):
        with pytest.raises(InvalidRequest):
            replace(record_from_dict(PLAIN), **change)
    with pytest.raises(InvalidRequest):
        Actor(kind="agent", name="\ud800")
    with pytest.raises(RecordRefused, match="nested deeper"):
        record_from_dict({**PLAIN, "object": deep})


@given(json_values)
def test_freezing_keeps_the_value(value: Any) -> None:
    """A frozen value is written as the same JSON, and thaws to the same value."""
    frozen = freeze(value)
    assert json.dumps(frozen) == json.dumps(value)
    assert thaw(frozen) == value
    assert hash(frozen) == hash(freeze(value))
    assert freeze(frozen) == frozen


def test_refusals_are_errors_of_the_family() -> None:
    """With the line as an attribute, and after pickling too."""
    error = RecordRefused("It is wrong.", 3)
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(error, MemoflowError)
    assert isinstance(error, ValueError)
    assert (str(again), again.line, again.problem) == ("Line 3: It is wrong.", 3, "It is wrong.")


def test_replacing_a_field_makes_another_record() -> None:
    """What a gate proposes becomes what was observed."""
    record = record_from_dict(PLAIN)
    assert replace(record, object={"x": 1}).object == {"x": 1}
    assert record.object == {"to": ("b", {"c": 1})}
