"""What an audit finds, and its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from memoflow.canonical import JSON
from memoflow.causal._frozen import EMPTY, freeze, thaw
from memoflow.errors import ConfigurationError

__all__ = ["AuditResult", "Finding", "Severity", "review_required", "severity_of"]

Severity = Literal["OK", "WARN", "FAIL"]

_SEVERITIES: Final[dict[str, Severity]] = {"FAIL": "FAIL", "OK": "OK", "WARN": "WARN"}


def severity_of(name: object) -> Severity:
    """The severity that a name means, in any case.

    Raises:
        ConfigurationError: there is none.
    """
    severity = _SEVERITIES.get(str(name).upper())
    if severity is None:
        raise ConfigurationError(f"Unknown severity: {name!r}. Allowed values: {sorted(_SEVERITIES)}")
    return severity


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that a record breaks.

    Attributes:
        code: which rule.
        severity: only ``FAIL`` makes an audit fail and a gate refuse.
        record_id: the record that breaks it.
        message: a sentence; it names ids and permissions, never payloads.
        chain_ids: further records that it is about.
        context: figures, as plain JSON.
    """

    code: str
    severity: Severity
    record_id: str
    message: str
    chain_ids: tuple[str, ...] = ()
    context: Mapping[str, JSON] = EMPTY

    def __post_init__(self) -> None:
        object.__setattr__(self, "context", freeze(self.context))

    def to_dict(self) -> dict[str, JSON]:
        """Plain JSON; ``chain_ids`` and ``context`` only where they hold something."""
        result: dict[str, JSON] = {
            "code": self.code,
            "severity": self.severity,
            "record_id": self.record_id,
            "message": self.message,
        }
        if self.chain_ids:
            result["chain_ids"] = list(self.chain_ids)
        if self.context:
            result["context"] = thaw(self.context)
        return result


@dataclass(frozen=True, slots=True)
class AuditResult:
    """What an audit of a log found.

    Attributes:
        total: records in the log.
        ok: records without a finding; the compat profile counts ``total - warnings - failures``.
        findings: in a fixed order.
    """

    total: int
    ok: int
    findings: tuple[Finding, ...]

    @property
    def warnings(self) -> int:
        """How many findings warn."""
        return _count(self.findings, "WARN")

    @property
    def failures(self) -> int:
        """How many findings fail."""
        return _count(self.findings, "FAIL")

    @property
    def passed(self) -> bool:
        """Whether no finding fails. Warnings do not fail, and an empty log passes."""
        return self.failures == 0

    def to_dict(self) -> dict[str, JSON]:
        """Plain JSON: ``summary`` and ``findings``."""
        return {
            "summary": {
                "total": self.total,
                "ok": self.ok,
                "warnings": self.warnings,
                "failures": self.failures,
                "passed": self.passed,
            },
            "findings": [finding.to_dict() for finding in self.findings],
        }


def _count(findings: Iterable[Finding], severity: Severity) -> int:
    return sum(finding.severity == severity for finding in findings)


def review_required(findings: Iterable[Finding]) -> dict[str, JSON]:
    """What a model is told in the place of a result when its call was refused, as plain JSON.

    For Claude it goes with ``is_error``. Contexts are left out: they are for those who review.
    """
    return {
        "status": "causal_review_required",
        "findings": [
            {"code": finding.code, "severity": finding.severity, "message": finding.message}
            for finding in findings
            if finding.severity != "OK"
        ],
    }
