"""Configurations: read from files, and refused where a rule would not be there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from memoflow.causal.config import MAX_CONFIG_BYTES, load_compat, load_strict, parse_document
from memoflow.causal.ctag import ActionClass
from memoflow.causal.strict import Code, StrictRules, strict_rules
from memoflow.errors import ConfigurationError
from tests.causal._records import nested
from tests.causal.test_vectors import VECTORS

FULL = """
root_event_prefix: "begin:"
secret: {classifications: [PII], path_prefixes: [/pii/], extensions: []}
net_out: {actions: [post]}
rules:
  - {id: R1, enabled: false}
  - {id: MARKED_GAP, severity: fail}
  - {id: MEMOFLOW-CAUSAL-CTAG_HINT, enabled: false}
  - {id: OLD, enabled: false}
custom_rules:
  - {id: OLD, trigger_class: EXEC}
  - {id: NEW, trigger_class: exec, require_ancestor_class: override}
strict:
  roots: ["begin:*"]
  root_actors: ["cron:*"]
  permissions: ["task:*"]
  approvers: {"human_approval:": ["human:*"]}
  approval_classes: [PRIV]
  approval_risks: [medium, high]
  outgoing: [IPC]
  classes:
    - {class: data_egress, tool: "send_*", risk: [high], arguments: {to: "*@example.com"}}
"""


def test_everything_can_be_said() -> None:
    """Each key reaches the rules."""
    rules = strict_rules(parse_document(FULL.encode(), yaml=True))
    assert rules.root_prefix == "begin:"
    assert rules.roots == ("begin:*",)
    assert rules.root_actors == ("cron:*",)
    assert rules.permissions == ("task:*",)
    assert rules.approvers == {"human_approval:": ("human:*",)}
    assert rules.approval_classes == {ActionClass.PRIV}
    assert rules.approval_risks == ("medium", "high")
    assert rules.outgoing == {ActionClass.IPC}
    assert (rules.secrets.classifications, rules.secrets.path_prefixes, rules.secrets.extensions) == (
        ("PII",),
        ("/pii/",),
        (),
    )
    assert rules.net_out_actions == ("post",)
    assert [rule.id for rule in rules.custom_rules] == ["NEW"]
    assert rules.severity(Code.MARKED_GAP) == "FAIL"
    assert rules.severity(Code.CTAG_HINT) == "OFF"
    assert rules.severity(Code.CYCLE) == "FAIL"
    (rule,) = rules.classes
    assert (rule.action_class, rule.tool, rule.action) == (ActionClass.DATA_EGRESS, "send_*", None)
    assert (rule.risk, rule.arguments) == (("high",), (("to", "*@example.com"),))


def test_nothing_is_the_default() -> None:
    """An empty document, and no file at all."""
    assert strict_rules(None) == strict_rules({}) == StrictRules()


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ([], "must be a mapping"),
        ({"custom_rule": []}, "unknown keys: custom_rule"),
        ({"strict": {"root": []}}, "'strict' has unknown keys: root"),
        ({"strict": None}, "'strict' must be a mapping"),
        ({"strict": {"roots": "x"}}, "'roots' must be a list"),
        ({"strict": {"roots": [5]}}, "must be text"),
        ({"strict": {"approval_classes": ["BOGUS"]}}, "Unknown class in 'approval_classes': BOGUS"),
        ({"strict": {"approvers": {"": ["*"]}}}, "must not be empty"),
        ({"strict": {"approvers": {"x:": "*"}}}, "'x:' must be a list"),
        ({"strict": {"classes": [{"class": "EXEC"}]}}, "at least one thing to know it by"),
        ({"strict": {"classes": [{"tool": "x"}]}}, "needs its 'class'"),
        ({"strict": {"classes": [{"class": "EXEC", "tol": "x"}]}}, "unknown keys: tol"),
        ({"rules": [{"id": "CYCLES", "enabled": False}]}, "There is no rule 'CYCLES'"),
        ({"rules": [{"id": "CYCLE", "enabled": "no"}]}, "must be true or false"),
        ({"rules": [{"id": "CYCLE", "severity": "bad"}]}, "Unknown severity: 'bad'"),
        ({"rules": [{"enabled": False}]}, "must be text"),
        (
            {"custom_rules": [{"id": "x", "trigger_class": "EXEC", "require_class": "READ"}]},
            "unknown keys: require_class",
        ),
        ({"secret": {"paths": []}}, "unknown keys: paths"),
        ({"net_out": {"action": []}}, "unknown keys: action"),
    ],
)
def test_what_is_not_known_is_refused(raw: Any, words: str) -> None:
    """A misspelt rule would be one that is not there."""
    with pytest.raises(ConfigurationError, match=words):
        strict_rules(raw)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "in line 1"),
        ("a: 1\na: 2", "in line 1: a key is given twice"),
        ("rules:\n  - {id: R1, id: R2}", "a key is given twice"),
        ("!!python/object/apply:os.system [x]", "no YAML document"),
        ("a: " + nested(1_500), "no YAML document"),
        ("a: " + nested(100_000), "brackets"),
        ("- " * 50_000, "no YAML document"),
        ("? ? " * 5_000, "no YAML document"),
        ("!!int", "no YAML document"),
        ("!!bool x", "no YAML document"),
        ("a: &a [*a]", None),
        ("a: !!timestamp x", "no YAML document"),
        ("\x00", "no YAML document"),
        ("- " * 100 + "x" * MAX_CONFIG_BYTES, "more than"),
        ("? [a]\n: 1", None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_yaml_that_is_not_read_is_refused(text: str, words: str | None) -> None:
    """Without running anything, and without an error of Python's; never with its text."""
    with pytest.raises(ConfigurationError, match=words):
        strict_rules(parse_document(text.encode(), yaml=True))


def test_json_is_read_strictly() -> None:
    """And needs no PyYAML."""
    assert parse_document(b'{"a": [1]}', yaml=False) == {"a": [1]}
    for text in (b"{", b'{"a": 1, "a": 2}', b"NaN"):
        with pytest.raises(ConfigurationError, match="is refused"):
            parse_document(text, yaml=False)


def test_without_pyyaml_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the way around it."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(
        ConfigurationError, match=r"memoflow-runtime\[causal\], or write the configuration as .json"
    ):
        parse_document(b"a: 1", yaml=True)


def test_files_are_read_by_their_kind(tmp_path: Path) -> None:
    """JSON by its name, all else as YAML; a fixture from beside the file; what is not there is named."""
    (tmp_path / "a.json").write_text('{"strict": {"permissions": ["x"]}}')
    (tmp_path / "a.yml").write_text("strict: {permissions: [x]}")
    assert load_strict(tmp_path / "a.json") == load_strict(tmp_path / "a.yml")
    fixture = (VECTORS / "benchmarks/experimental/07_range_drift_intent.json").read_text(encoding="utf-8")
    (tmp_path / "band.json").write_text(fixture)
    (tmp_path / "b.yaml").write_text("experimental: {enable_cause_band: true, cause_band_fixture: band.json}")
    assert load_compat(tmp_path / "b.yaml").cause_band is not None
    with pytest.raises(ConfigurationError, match=r"'gone.yaml' cannot be read: No such file"):
        load_strict(tmp_path / "gone.yaml")


def test_the_reference_example_is_read_by_both_profiles() -> None:
    """Its keys are known to the strict one too."""
    path = VECTORS / "examples/audit_config_example.yaml"
    assert load_compat(path).enabled("R1")
    assert load_strict(path).custom_rules == ()
