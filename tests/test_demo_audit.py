"""The audit demo: the results of its specification, exactly, from objects of two SDKs."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from memoflow import ConfigurationError
from memoflow.demo.audit import Case, main, play
from memoflow.demo.traces import PROVIDERS
from tests.cli._run import Cli

SENDING = "tool-external-api-1"
DESCRIPTION = "High-risk external data egress must have a human approval ancestor."
INVALID = {
    "summary": {"total": 5, "ok": 3, "warnings": 0, "failures": 2, "passed": False},
    "findings": [
        {
            "code": "CML-AUDIT-R1-MISSING_PARENT",
            "severity": "FAIL",
            "record_id": SENDING,
            "message": "parent_cause 'missing-human-approval' does not exist in the log.",
            "context": {
                "missing_parent": "missing-human-approval",
                "record_action": "send",
                "record_permitted_by": "human_approval:missing",
                "known_record_count": 5,
            },
        },
        {
            "code": "CML-AUDIT-HIGH_RISK_WITHOUT_APPROVAL",
            "severity": "FAIL",
            "record_id": SENDING,
            "message": f"Custom rule R8_DATA_EGRESS_REQUIRES_HUMAN_APPROVAL: {DESCRIPTION}",
            "context": {
                "rule_id": "R8_DATA_EGRESS_REQUIRES_HUMAN_APPROVAL",
                "trigger_class": "DATA_EGRESS",
                "ancestor_ids": [],
                "required_ancestor_class": "OVERRIDE",
                "required_ancestor_permitted_by_prefix": "human_approval:",
            },
        },
    ],
}
VALID = {
    "summary": {"total": 6, "ok": 6, "warnings": 0, "failures": 0, "passed": True},
    "findings": [],
}
TAGS = {
    "request-1": 0x4E00,
    "tool-web-search-1": 0xD10A,
    "tool-code-exec-1": 0xA30C,
    "tool-file-write-1": 0xD20E,
    "human-approval-external-send-1": 0x4E04,
}

providers = pytest.mark.parametrize("provider", PROVIDERS)


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    """All cases by name."""
    return {case.name: case for case in play()}


@providers
def test_the_invalid_trace_is_found(cases: dict[str, Case], provider: str) -> None:
    """The two failures of the specification with their contexts, and the drift of its labels."""
    case = cases[f"{provider}-invalid"]
    assert case.compat.to_dict() == INVALID
    band = case.to_dict()["cause_band"]
    assert band["predicted_codes"] == [
        "CML-AUDIT-RANGE-CRITICAL_EXIT",
        "CML-AUDIT-RANGE-DRIFT",
        "CML-AUDIT-RANGE-PERSISTENT_DEVIATION",
    ]
    assert (band["trajectory_direction"], band["duration_threshold"]) == ("degrading", 2)
    assert (band["recovered_to_safe"], band["oscillating"], band["max_consecutive_outside_safe"]) == (
        False,
        False,
        3,
    )
    assert case.to_dict()["decision"] == "REVIEW REQUIRED"


@providers
def test_the_valid_trace_passes(cases: dict[str, Case], provider: str) -> None:
    """Both profiles find nothing in it."""
    case = cases[f"{provider}-valid"]
    assert case.compat.to_dict() == VALID
    assert case.strict.to_dict() == VALID
    band = case.to_dict()["cause_band"]
    assert (band["predicted_codes"], band["trajectory_direction"]) == ([], "stable")
    assert band["max_consecutive_outside_safe"] == 0
    assert case.to_dict()["decision"] == "VALID CAUSAL CHAIN"


@providers
@pytest.mark.parametrize(("kind", "tag"), [("invalid", 0xCC02), ("valid", 0xCC0A)])
def test_tags_are_those_of_the_specification(
    cases: dict[str, Case], provider: str, kind: str, tag: int
) -> None:
    """So ids, parents, domains and classes are."""
    wanted = {**TAGS, SENDING: tag}
    records = cases[f"{provider}-{kind}"].trace.records
    assert {record.id: record.ctag for record in records} == {
        record.id: wanted[record.id] for record in records
    }


@providers
@pytest.mark.parametrize("kind", ["invalid", "valid"])
def test_four_calls_have_their_results(cases: dict[str, Case], provider: str, kind: str) -> None:
    """Each under its own id of the provider; only the call that was not executed is an error."""
    trace = cases[f"{provider}-{kind}"].trace
    assert trace.problems == ()
    payloads = [
        record.to_dict()["object"] for record in trace.records if record.object and "tool" in record.object
    ]
    envelopes = [payload["provider_envelope"] for payload in payloads]
    if provider == "openai":
        pairs = [(one["request_item"]["call_id"], one["result_item"]["call_id"]) for one in envelopes]
        assert pairs == [(f"call_cml_openai_{n}",) * 2 for n in range(1, 5)]
    else:
        pairs = [(one["request_block"]["id"], one["result_block"]["tool_use_id"]) for one in envelopes]
        assert pairs == [(f"toolu_cml_claude_{n}",) * 2 for n in range(1, 5)]
        errors = [one["result_block"]["is_error"] for one in envelopes]
        assert errors == [False, False, False, kind == "invalid"]
        assert {one["assistant_stop_reason"] for one in envelopes} == {"tool_use"}
    wanted = {"intent_description", "risk_level", "human_approval", "request", "result", "evidence_bundle"}
    assert [wanted - payload.keys() for payload in payloads] == [set()] * 4


def test_both_providers_give_the_same(cases: dict[str, Case]) -> None:
    """The envelope is the only difference, and no rule of permission reads it."""
    for kind in ("invalid", "valid"):
        one, other = (cases[f"{provider}-{kind}"] for provider in PROVIDERS)
        assert one.compat == other.compat
        assert one.strict == other.strict


def test_memoflows_own_rules_find_the_invalid_trace(cases: dict[str, Case]) -> None:
    """By what they are about: a cause that is not there, and an approval that is not."""
    assert [finding.code for finding in cases["openai-invalid"].strict.findings] == [
        "MEMOFLOW-CAUSAL-CAUSE_NOT_BEFORE",
        "MEMOFLOW-CAUSAL-APPROVAL_UNKNOWN",
        "CML-AUDIT-HIGH_RISK_WITHOUT_APPROVAL",
    ]


def test_lines_of_approvals(cases: dict[str, Case]) -> None:
    """The second demo: a rollout without, and with, the approvals that its two rules ask for."""
    invalid, valid = cases["lineage-invalid"].compat, cases["lineage-valid"].compat
    assert [(finding.code, finding.record_id) for finding in invalid.findings] == [
        ("CML-AUDIT-R5_EXEC", "deploy"),
        ("CML-AUDIT-R7_ML_ACTION", "select-model"),
    ]
    assert invalid.to_dict()["summary"] == {
        "total": 5,
        "ok": 3,
        "warnings": 0,
        "failures": 2,
        "passed": False,
    }
    assert valid.to_dict()["summary"] == {"total": 7, "ok": 7, "warnings": 0, "failures": 0, "passed": True}
    assert cases["lineage-valid"].strict.findings == ()


def test_every_claim_of_the_demo_holds(tmp_path: Path) -> None:
    """It says so with its exit code; what it keeps can be audited with the commands that it prints."""
    shown = io.StringIO()
    assert main(keep=tmp_path / "kept", console=Console(file=shown, width=200)) == 0
    assert "✗" not in shown.getvalue()
    check, chain = re.findall(r"^  memoflow (.+)$", shown.getvalue(), re.MULTILINE)
    assert Cli("")(*check.split(), database=False).code == 1
    assert Cli("")(*chain.split(), database=False).code == 0
    with pytest.raises(ConfigurationError, match="Name a new one"):
        main(keep=tmp_path / "kept", console=Console(quiet=True))


def test_the_demo_as_json() -> None:
    """And nothing else."""
    result = Cli("")("demo", "audit", "--json", database=False)
    assert result.code == 0
    assert [case["case"] for case in result.json] == [
        "openai-invalid",
        "openai-valid",
        "claude-invalid",
        "claude-valid",
        "lineage-invalid",
        "lineage-valid",
    ]
    assert result.json[0]["audit"] == json.loads(json.dumps(INVALID))


def test_without_the_other_sdk_the_rest_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the extra is named."""
    found: Any = __import__("importlib.util", fromlist=["find_spec"]).find_spec
    monkeypatch.setattr(
        "memoflow.demo.audit.find_spec", lambda name: None if name == "anthropic" else found(name)
    )
    monkeypatch.setitem(sys.modules, "anthropic", None)
    shown = io.StringIO()
    assert main(console=Console(file=shown, width=200)) == 0
    assert "memoflow-runtime[anthropic]" in shown.getvalue()
    assert "claude" not in shown.getvalue()


def test_a_claim_that_does_not_hold_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo cannot say that all is well where it is not."""
    monkeypatch.setattr("memoflow.demo.audit._INVALID_CODES", [])
    assert main(console=Console(quiet=True)) == 1
