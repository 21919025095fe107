"""The compatibility profile answers as the reference does, for everything that was measured of it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from memoflow.causal.compat import CompatConfig, audit_compat, compat_config, evaluate_cause_band
from memoflow.causal.config import parse_document
from memoflow.causal.ctag import ActionClass, Domain, decode, encode
from memoflow.causal.jsonl import read_jsonl
from memoflow.causal.record import CausalRecord, record_from_dict
from memoflow.errors import ConfigurationError, MemoflowError

VECTORS = Path(__file__).parent / "vectors"
EXPECTED = json.loads((VECTORS / "expected.json").read_text(encoding="utf-8"))


def name(case: dict[str, Any]) -> str:
    """A case as a test id."""
    return str(case.get("name") or case.get("path") or hex(case["ctag"]))


def cases(key: str) -> Any:
    """A parametrisation over a section of the vectors."""
    return pytest.mark.parametrize("case", EXPECTED[key], ids=name)


def long_line(ancestors: int) -> list[dict[str, Any]]:
    """What the vectors' generator describes: a root that approves, reads, and a sending at the end."""
    base = {"actor": {"pid": 1, "uid": 0}, "object": {}}
    ids = [f"c{number}" for number in range(ancestors)]
    first = {
        "id": ids[0],
        "action": "exec",
        "permitted_by": "root_event:a",
        "parent_cause": None,
        "ctag": 19968,
    }
    reads = [
        {"id": id, "action": "read", "permitted_by": "t", "parent_cause": parent}
        for parent, id in itertools.pairwise(ids)
    ]
    end = {"id": "end", "action": "send", "permitted_by": "x", "parent_cause": ids[-1], "ctag": 56320}
    return [{**base, "timestamp": at, **record} for at, record in enumerate([first, *reads, end], start=1)]


def compat(raw: list[dict[str, Any]]) -> list[CausalRecord]:
    """Records of the compat form."""
    return [record_from_dict(record, "compat") for record in raw]


@cases("edge_cases")
def test_edge_cases(case: dict[str, Any]) -> None:
    """Every trace gives the summary, findings, order, messages and contexts of the reference."""
    raw = case["records"] if case["records"] is not None else long_line(case["generator"]["n_ancestors"])
    assert audit_compat(compat(raw), compat_config(case["config"])).to_dict() == case["result"]


@cases("files")
def test_files(case: dict[str, Any]) -> None:
    """So does every file of the reference, with and without contexts."""
    path = VECTORS / case["path"]
    if path.suffix == ".jsonl":
        records, config = list(read_jsonl(path.read_bytes().splitlines(), "compat")), {}
    else:
        document = json.loads(path.read_text(encoding="utf-8"))
        records, config = compat(document["records"]), document.get("config", {})
    assert len(records) == case["n_records"]
    for context, key in ((False, "result"), (True, "result_with_context")):
        result = audit_compat(records, compat_config({**config, "include_context": context}))
        assert result.to_dict() == case[key]


@cases("config_cases")
def test_configurations(case: dict[str, Any]) -> None:
    """A configuration is read as the reference reads it, and refused where it refuses it."""
    wanted = case["result"]
    document = parse_document(case["yaml"].encode(), yaml=True)
    if "raises" in wanted:
        with pytest.raises(ConfigurationError) as caught:
            compat_config(document)
        assert wanted["message"] in str(caught.value)
        return
    config = compat_config(document)
    assert {
        "ok": True,
        "custom_rules": list(config.custom_rules),
        "include_context": config.include_context,
        "net_out_actions": list(config.net_out_actions),
        "root_event_prefix": config.root_event_prefix,
        "rules_enabled": {rule: config.enabled(rule) for rule in ("R1", "R2", "R3", "R4")},
    } == wanted


@cases("cause_band_cases")
def test_cause_bands(case: dict[str, Any]) -> None:
    """Every labelled trajectory gives the figures of the reference, or an error where it gives one."""
    if "raises" in case["result"]:
        with pytest.raises(MemoflowError):
            evaluate_cause_band(case["input"])
    else:
        assert evaluate_cause_band(case["input"]).to_dict() == case["result"]


@cases("cause_band_files")
def test_cause_band_files(case: dict[str, Any]) -> None:
    """Also in files, and in a sidecar."""
    document = json.loads((VECTORS / case["path"]).read_text(encoding="utf-8"))
    assert evaluate_cause_band(document).to_dict() == case["result"]


@cases("ctag_cases")
def test_tags(case: dict[str, Any]) -> None:
    """Tags are put together and taken apart as the reference does."""
    tag = encode(
        Domain(case["dom"]),
        ActionClass(case["class"]),
        parent=case["parent"],
        generation=case["gen"],
        seal=bool(case["seal"]),
    )
    assert tag == case["ctag"]
    assert decode(tag).to_dict() == case["decoded"]
    assert decode(tag).value == tag


def test_no_vector_is_left_out() -> None:
    """What is in the vectors is what the tests above go through."""
    assert EXPECTED.keys() == {
        "cause_band_cases",
        "cause_band_files",
        "config_cases",
        "ctag_cases",
        "edge_cases",
        "files",
        "reference",
    }


def test_the_notice_goes_with_the_files() -> None:
    """They are of another project, under its licence."""
    assert "MIT License" in (VECTORS / "LICENSE-upstream").read_text(encoding="utf-8")


def test_a_cause_band_fixture_adds_its_codes() -> None:
    """Only if it is enabled and named; they are about the case, fail, and say that they are experimental."""

    def read(name: str) -> object:
        return json.loads((VECTORS / "benchmarks/experimental" / name).read_text(encoding="utf-8"))

    named = {"enable_cause_band": True, "cause_band_fixture": "09_range_oscillation_intent.json"}
    config = compat_config({"include_context": True, "experimental": named}, read)
    (finding,) = audit_compat([], config).findings
    assert (finding.code, finding.severity) == ("CML-AUDIT-RANGE-DRIFT", "FAIL")
    assert finding.record_id == "range-oscillation-intent-experimental"
    assert finding.chain_ids == config.cause_band.bands  # type: ignore[union-attr]
    assert finding.context == {"experimental": True, "case_id": finding.record_id}
    assert "non-normative and opt-in only" in finding.message
    assert compat_config({"experimental": {**named, "enable_cause_band": False}}, read).cause_band is None
    for fixture in ("benchmarks/experimental/07.json", "../x.json", "x.yaml", 5):
        with pytest.raises(ConfigurationError, match="bare name"):
            compat_config({"experimental": {**named, "cause_band_fixture": fixture}}, read)
    with pytest.raises(ConfigurationError, match="that is a file"):
        compat_config({"experimental": named})


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ([], "must be a mapping/object"),
        ({"custom_rules": None}, "'custom_rules' must be a list"),
        ({"secret": None}, "'secret' must be a mapping"),
        ({"rules": [{}]}, "has no 'id'"),
        ({"rules": ["R1"]}, "must be a mapping"),
        ({"custom_rules": [{"trigger_class": "EXEC"}]}, "no 'id'"),
        ({"root_event_prefix": 5}, "must be text"),
        ({"net_out": {"actions": ["send", 5]}}, "must be text"),
        ({"secret": {"extensions": ".key"}}, "must be a list"),
    ],
)
def test_configurations_of_another_shape_are_refused(raw: object, words: str) -> None:
    """With a sentence about the key, not with what Python would raise."""
    with pytest.raises(ConfigurationError, match=words):
        compat_config(raw)


def test_an_empty_configuration_is_the_default() -> None:
    """As the reference has it."""
    assert compat_config(None) == CompatConfig() == compat_config({})


def test_a_path_that_is_no_text_is_no_secret() -> None:
    """The reference raises an error of Python's there; an audit must not end for a record."""
    raw = [
        {
            "id": "a",
            "timestamp": 1,
            "actor": {"pid": 1, "uid": 1},
            "action": "send",
            "permitted_by": "root_event:x",
        }
    ]
    result = audit_compat(compat([{**raw[0], "object": {"path": None}}]))
    assert result.passed


@pytest.mark.parametrize("threshold", [0, -1, None, "x", "0_steps", [], 1.5])
def test_a_threshold_that_is_none_is_three(threshold: object) -> None:
    """Whatever it is instead of a positive number."""
    case = {"trajectory": [{"band": "warning_range"}], "cause_band_policy": {"duration_threshold": threshold}}
    assert evaluate_cause_band(case).duration_threshold == 3


@pytest.mark.parametrize(
    "raw",
    [None, {}, {"trajectory": "x"}, {"trajectory": [5]}, {"trajectory": [{"band": 5}]}, {"trajectory": [{}]}],
)
def test_what_is_no_trajectory_is_refused(raw: object) -> None:
    """With an error of the family; the reference ends the process."""
    with pytest.raises(MemoflowError):
        evaluate_cause_band(raw)
