"""The published schema: closed at every level, and the one that evidence is made from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from certification.live import evidence as module
from certification.live.evidence import Evidence, schema
from certification.live.verify import main

PUBLISHED = Path(module.__file__).with_name("evidence.schema.json")


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a schema."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(inner)


def test_the_published_schema_is_that_of_the_classes(capsys: pytest.CaptureFixture[str]) -> None:
    """``verify --schema`` prints the file, byte by byte."""
    assert main(["--schema"]) == 0
    assert capsys.readouterr().out == PUBLISHED.read_text(encoding="utf-8")


def test_it_is_a_schema_of_the_draft_it_names() -> None:
    """And valid as one."""
    made = schema()
    assert made["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(made)


def test_every_object_is_closed_and_whole() -> None:
    """No object takes a field that is not named, or goes without one that is."""
    objects = [node for node in nodes(schema()) if node.get("type") == "object"]
    assert len(objects) >= 14
    for node in objects:
        assert node["additionalProperties"] is False
        assert set(node["required"]) == set(node["properties"])


def test_no_text_is_free() -> None:
    """Every text is a word of a closed list or has a form, and every number a range."""
    for node in nodes(schema()):
        if node.get("type") == "string":
            closed = {"const", "enum"} & node.keys()
            assert closed or {"pattern", "maxLength"} <= node.keys(), node
            assert closed or (node["pattern"][0], node["pattern"][-1]) == ("^", "$"), node
        if node.get("type") == "integer":
            assert {"minimum", "maximum"} <= node.keys(), node
        if node.get("type") == "array":
            assert "maxItems" in node, node


def test_evidence_is_of_the_schema(evidence: Evidence) -> None:
    """Anybody's validator takes it."""
    Draft202012Validator(schema()).validate(json.loads(module.render(evidence)))
