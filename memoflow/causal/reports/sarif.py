"""An audit's result as SARIF 2.1.0, which code scanning services read.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0, errata 01.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from memoflow.canonical import JSON, sha256_hex
from memoflow.causal._frozen import thaw
from memoflow.causal.codes import MEANINGS, Code
from memoflow.causal.findings import AuditResult, Finding, Severity
from memoflow.causal.reports.subject import Subject

__all__ = ["to_sarif"]

_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: Final[dict[Severity, str]] = {"FAIL": "error", "WARN": "warning", "OK": "note"}


def to_sarif(result: AuditResult, subject: Subject, profile: str, version: str) -> dict[str, JSON]:
    """One run with all findings, as plain JSON.

    Args:
        profile: which rules it was audited by.
        version: of memoflow.
    """
    codes = list(dict.fromkeys(finding.code for finding in result.findings))
    positions = {code: position for position, code in enumerate(codes)}
    driver: dict[str, JSON] = {
        "name": "memoflow",
        "semanticVersion": version,
        "rules": [_rule(code) for code in codes],
    }
    run: dict[str, JSON] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, positions[finding.code], subject) for finding in result.findings],
        "properties": {"profile": profile, **result.to_dict()["summary"]},
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, JSON]:
    try:
        meaning = MEANINGS[Code(code)]
    except ValueError:
        # Rules of a configuration, and those of the Causal Memory Layer, say what they mean in the message.
        return {"id": code}
    return {
        "id": code,
        "shortDescription": {"text": meaning.text},
        "defaultConfiguration": {"level": _LEVELS[meaning.severity]},
    }


def _result(finding: Finding, rule: int, subject: Subject) -> dict[str, JSON]:
    result: dict[str, JSON] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.message or finding.code},
        "locations": [_location(finding, subject)],
        "partialFingerprints": {
            "causalFinding/v1": sha256_hex([finding.code, finding.record_id, finding.message])
        },
    }
    properties = {"chainIds": list(finding.chain_ids), "context": thaw(finding.context)}
    if kept := {name: value for name, value in properties.items() if value}:
        result["properties"] = kept
    return result


def _location(finding: Finding, subject: Subject) -> dict[str, JSON]:
    physical: dict[str, JSON] = {"artifactLocation": {"uri": quote(subject.name, safe="/")}}
    if (line := subject.lines.get(finding.record_id)) is not None:
        physical["region"] = {"startLine": line}
    return {
        "physicalLocation": physical,
        "logicalLocations": [{"fullyQualifiedName": finding.record_id, "kind": "record"}],
    }
