"""Audit claims: asked for, taken out, and never trusted."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from memoflow.canonical import Digester
from memoflow.causal.claims import RESERVED, Claim, ask_for_claims, disagreements, take_claim, with_claim
from memoflow.errors import InvalidRequest, InvalidTool
from tests.causal._records import rec

CLAIM: dict[str, Any] = {
    "intent": "Refund what was asked for.",
    "parent_record": "root",
    "risk_level": "low",
    "approval_needed": False,
    "evidence": ["root"],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"cents": {"type": "integer"}},
    "required": ["cents"],
    "additionalProperties": False,
}


def strict_problems(schema: Any) -> list[str]:
    """What OpenAI's strict mode would refuse: optional properties, and objects that are open."""
    problems = []
    if isinstance(schema, dict):
        if "properties" in schema:
            if schema.get("additionalProperties") is not False:
                problems.append("open")
            if sorted(schema.get("required", [])) != sorted(schema["properties"]):
                problems.append("optional")
        problems += [problem for value in schema.values() for problem in strict_problems(value)]
    elif isinstance(schema, list):
        problems = [problem for value in schema for problem in strict_problems(value)]
    return problems


def test_a_claim_may_be_left_out() -> None:
    """The reserved member is optional, and what stands in it has its shape."""
    schema = with_claim(SCHEMA)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate({"cents": 1}, schema)
    jsonschema.validate({"cents": 1, RESERVED: CLAIM}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"cents": 1, RESERVED: {**CLAIM, "more": 1}}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"cents": 1, RESERVED: None}, schema)


def test_a_strict_schema_stays_strict() -> None:
    """All properties required, nothing open; the claim may be null."""
    schema = with_claim(SCHEMA, strict=True)
    assert strict_problems(schema) == []
    assert strict_problems(with_claim(SCHEMA)) == ["optional"]
    jsonschema.validate({"cents": 1, RESERVED: None}, schema)
    jsonschema.validate({"cents": 1, RESERVED: CLAIM}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"cents": 1}, schema)


def test_the_schema_that_was_given_is_not_changed() -> None:
    """Nor can what is returned be changed through another one."""
    before = json.dumps(SCHEMA)
    one, two = with_claim(SCHEMA), with_claim(SCHEMA)
    one["properties"][RESERVED]["properties"].clear()
    assert two["properties"][RESERVED]["properties"]
    assert with_claim(SCHEMA) == two
    assert json.dumps(SCHEMA) == before


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array"},
        {"$ref": "#/x"},
        {"type": "object", "properties": []},
        {**SCHEMA, "properties": {RESERVED: {}}},
    ],
)
def test_schemas_that_cannot_ask_are_refused(schema: dict[str, Any]) -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidTool):
        with_claim(schema)


def test_tools_of_every_api_can_ask() -> None:
    """Each in its own shape; hosted and custom tools are passed on."""
    responses = {"type": "function", "name": "refund", "parameters": SCHEMA, "strict": True}
    loose = {**responses, "strict": False}
    chat = {"type": "function", "function": {"name": "refund", "parameters": SCHEMA, "strict": True}}
    claude = {"name": "refund", "input_schema": SCHEMA}
    hosted = {"type": "web_search"}
    asked = ask_for_claims([responses, loose, chat, claude, hosted])
    assert asked == [
        {**responses, "parameters": with_claim(SCHEMA, strict=True)},
        {**loose, "parameters": with_claim(SCHEMA)},
        {"type": "function", "function": {**chat["function"], "parameters": with_claim(SCHEMA, strict=True)}},  # type: ignore[dict-item]
        {**claude, "input_schema": with_claim(SCHEMA)},
        hosted,
    ]


def test_a_claim_is_taken_out_of_the_arguments() -> None:
    """The tool never sees it; its digest is all that a record keeps."""
    rest, taken = take_claim({"cents": 82, RESERVED: CLAIM})
    assert rest == {"cents": 82}
    assert taken.claim == Claim("Refund what was asked for.", "root", "low", False, ("root",))
    assert taken.digest == Digester().json(CLAIM)
    assert taken.noted(["risk", "parent"]) == {
        "digest": taken.digest,
        "malformed": False,
        "disagrees": ["parent", "risk"],
    }
    assert "Refund" not in repr(taken)


@pytest.mark.parametrize("arguments", [{"cents": 82}, {"cents": 82, RESERVED: None}])
def test_no_claim_is_no_problem(arguments: dict[str, Any]) -> None:
    """Models are asked, not forced."""
    rest, taken = take_claim(arguments)
    assert rest == {"cents": 82}
    assert (taken.claim, taken.digest, taken.malformed) == (None, None, False)


@pytest.mark.parametrize(
    "wrong",
    [
        "x",
        [],
        {},
        {**CLAIM, "more": 1},
        {key: value for key, value in CLAIM.items() if key != "intent"},
        {**CLAIM, "intent": ""},
        {**CLAIM, "intent": "x" * 2_001},
        {**CLAIM, "intent": None},
        {**CLAIM, "parent_record": 5},
        {**CLAIM, "risk_level": "none"},
        {**CLAIM, "risk_level": ["low"]},
        {**CLAIM, "approval_needed": "no"},
        {**CLAIM, "approval_needed": 1},
        {**CLAIM, "evidence": "root"},
        {**CLAIM, "evidence": [5]},
        {**CLAIM, "evidence": ["x"] * 65},
    ],
)
def test_a_malformed_claim_is_noted_and_changes_nothing(wrong: Any) -> None:
    """The arguments are what they are without it."""
    rest, taken = take_claim({"cents": 82, RESERVED: wrong})
    assert rest == {"cents": 82}
    assert (taken.claim, taken.malformed) == (None, True)
    assert taken.digest == Digester().json(wrong)


def test_what_has_no_json_form_is_no_claim() -> None:
    """Nothing can be digested of it."""
    with pytest.raises(InvalidRequest):
        take_claim({RESERVED: float("nan")})


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, ()),
        ({"parent_record": "other"}, ("parent",)),
        ({"parent_record": None}, ("parent",)),
        ({"risk_level": "high"}, ("risk",)),
        ({"approval_needed": True}, ("approval",)),
        ({"evidence": ["root", "invented"]}, ("evidence",)),
        ({"evidence": []}, ()),
        (
            {"risk_level": "medium", "approval_needed": True, "parent_record": "x"},
            ("approval", "parent", "risk"),
        ),
    ],
)
def test_claims_are_compared_with_what_the_host_derived(
    change: dict[str, Any], wrong: tuple[str, ...]
) -> None:
    """Part by part; a claim permits nothing, also where it agrees."""
    _, taken = take_claim({RESERVED: {**CLAIM, **change}})
    assert taken.claim is not None
    record = rec("a", object={"risk_level": "low", "human_approval": {"required": False}})
    assert disagreements(taken.claim, record, {"root"}) == wrong
    assert "risk" in disagreements(taken.claim, rec("a", object="/x"), {"root"})
