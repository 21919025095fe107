"""`memoflow demo audit`: traces of two providers, with an approval and without, and what is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from memoflow.causal.compat import CauseBand, audit_compat, compat_config, evaluate_cause_band
from memoflow.causal.findings import AuditResult
from memoflow.causal.jsonl import write_jsonl
from memoflow.causal.strict import audit_strict, strict_rules
from memoflow.demo.claims import Claims
from memoflow.demo.traces import INVALID, LINEAGE_INVALID, LINEAGE_VALID, PROVIDERS, VALID, Trace, record
from memoflow.errors import ConfigurationError

__all__ = ["LINEAGE_RULES", "RULES", "Case", "main", "play"]

R8: Final = "CML-AUDIT-HIGH_RISK_WITHOUT_APPROVAL"

RULES: Final[dict[str, Any]] = {
    "include_context": True,
    "custom_rules": [
        {
            "id": "R8_DATA_EGRESS_REQUIRES_HUMAN_APPROVAL",
            "description": "High-risk external data egress must have a human approval ancestor.",
            "trigger_class": "DATA_EGRESS",
            "severity": "FAIL",
            "code": R8,
            "require_ancestor_class": "OVERRIDE",
            "require_ancestor_permitted_by_prefix": "human_approval:",
        }
    ],
    "strict": {"permissions": ["task:*", "policy:*"]},
}
"""The rule of the demo, and the permissions that are known outside of its logs."""

LINEAGE_RULES: Final[dict[str, Any]] = {
    "custom_rules": [
        {
            "id": f"{name}_REQUIRES_APPROVAL",
            "trigger_class": trigger,
            "code": f"CML-AUDIT-{name}",
            "require_ancestor_class": "OVERRIDE",
            "require_ancestor_permitted_by_prefix": prefix,
        }
        for name, trigger, prefix in (
            ("R5_EXEC", "EXEC", "human_approval:"),
            ("R7_ML_ACTION", "ML_ACTION", "policy_approval:"),
        )
    ],
    "strict": {"permissions": ["task:*"]},
}
"""The two rules of the second demo, about lines of approvals."""

_INVALID_CODES: Final = ["CML-AUDIT-R1-MISSING_PARENT", R8]
_LINEAGE_CODES: Final = ["CML-AUDIT-R5_EXEC", "CML-AUDIT-R7_ML_ACTION"]
_STRICT_CODES: Final = {
    "MEMOFLOW-CAUSAL-APPROVAL_UNKNOWN",
    "MEMOFLOW-CAUSAL-CAUSE_NOT_BEFORE",
    R8,
}
_BANDS: Final = {
    "invalid": ["safe", "safe", "warning", "danger", "critical"],
    "valid": ["safe"] * 5,
    "lineage": [],
}


class Case:
    """One trace of one provider, audited by both profiles.

    Attributes:
        compat: what the Causal Memory Layer's rules find; ``strict``: what memoflow's own do.
        band: a Cause Band, which is experimental and says nothing about records; None without labels.
        accepted: the demo's decision: nothing failed, and no band was left.
    """

    def __init__(self, name: str, trace: Trace, rules: dict[str, Any], *, valid: bool) -> None:
        self.name, self.trace, self.rules, self.valid = name, trace, rules, valid
        self.compat: AuditResult = audit_compat(trace.records, compat_config(rules))
        self.strict: AuditResult = audit_strict(trace.records, strict_rules(rules))
        self.band: CauseBand | None = _band(name)

    @property
    def accepted(self) -> bool:
        """Whether nothing failed and no band was left."""
        return self.compat.passed and not self.drift

    @property
    def drift(self) -> tuple[str, ...]:
        """The experimental codes of its Cause Band."""
        return () if self.band is None else self.band.predicted_codes

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "case": self.name,
            "audit": self.compat.to_dict(),
            "strict": self.strict.to_dict(),
            "cause_band": None if self.band is None else self.band.to_dict(),
            "decision": "VALID CAUSAL CHAIN" if self.accepted else "REVIEW REQUIRED",
        }


def _band(name: str) -> CauseBand | None:
    provider, _, kind = name.partition("-")
    labels = _BANDS["lineage" if provider == "lineage" else kind]
    case = {
        "case_id": name,
        "cause_band_policy": {"duration_threshold": "2_steps"},
        "trajectory": [{"band": f"{label}_range"} for label in labels],
    }
    return evaluate_cause_band(case) if labels else None


def play() -> list[Case]:
    """Record and audit every trace of the demo; Claude's only where its SDK is installed."""
    cases = []
    for provider in PROVIDERS:
        if provider == "claude" and find_spec("anthropic") is None:
            continue
        for valid, steps in ((False, INVALID), (True, VALID)):
            name = f"{provider}-{'valid' if valid else 'invalid'}"
            cases.append(Case(name, record(steps, provider), RULES, valid=valid))
    for valid, steps in ((False, LINEAGE_INVALID), (True, LINEAGE_VALID)):
        name = f"lineage-{'valid' if valid else 'invalid'}"
        cases.append(Case(name, record(steps, "openai"), LINEAGE_RULES, valid=valid))
    return cases


def main(*, as_json: bool = False, keep: Path | None = None, console: Console | None = None) -> int:
    """Play the demo; returns 0 only if everything was found that is there, and nothing else.

    Args:
        as_json: print the results as JSON and nothing else.
        keep: a new directory for the logs and rules.
        console: where to print.

    Raises:
        ConfigurationError: the directory cannot be made.
    """
    console = console or Console(highlight=False)
    cases = play()
    claims = Claims(Console(quiet=True) if as_json else console)
    for case in cases:
        _show(case, claims)
    if as_json:
        console.print_json(json.dumps([case.to_dict() for case in cases]))
    elif find_spec("anthropic") is None:
        hint = "\nInstall memoflow-runtime[anthropic] to see the traces of Claude too."
        console.print(hint, markup=False)
    if keep is not None:
        with _new(keep):
            _keep(keep, cases)
        claims.console.print(_KEPT.format(keep), soft_wrap=True)
    return 1 if claims.broken else 0


_KEPT: Final = """
Audit a log yourself; it ends with 1, since nobody approved the sending:
  memoflow audit check {0}/openai-invalid.jsonl --config {0}/openai-rules.json
  memoflow audit chain {0}/openai-valid.jsonl tool-external-api-1"""


def _show(case: Case, claims: Claims) -> None:
    say = claims.console.print
    say(f"\n[bold]{case.name}[/]: {len(case.trace.records)} records, {case.to_dict()['decision']}")
    for finding in case.compat.findings:
        say(
            f"  {finding.severity} {finding.code} @ {finding.record_id}: {finding.message}",
            markup=False,
            soft_wrap=True,
        )
    for code in case.drift:
        say(f"  WARNING {code} (experimental, from labels that the demo brings along)", soft_wrap=True)
    wanted = [] if case.valid else _LINEAGE_CODES if case.name.startswith("lineage") else _INVALID_CODES
    claims.check(
        f"the Causal Memory Layer's rules find {len(wanted)} failures",
        [finding.code for finding in case.compat.findings] == wanted,
    )
    claims.check("every result belongs to its call", not case.trace.problems)
    strict = {finding.code for finding in case.strict.findings}
    if case.valid:
        claims.check("memoflow's own rules find nothing", not strict)
    elif case.name.startswith("lineage"):
        claims.check(
            "memoflow's own rules find that two approvals are not there", strict >= set(_LINEAGE_CODES)
        )
    else:
        claims.check("memoflow's own rules find the missing cause and approval", strict == _STRICT_CODES)


@contextmanager
def _new(directory: Path) -> Iterator[None]:
    try:
        directory.mkdir(parents=True)
        yield
    except OSError as error:
        raise ConfigurationError(
            f"The directory {str(directory)!r} cannot be made ({error.strerror}). Name a new one."
        ) from None


def _keep(directory: Path, cases: list[Case]) -> None:
    for case in cases:
        with (directory / f"{case.name}.jsonl").open("wb") as file:
            write_jsonl(case.trace.records, file)
        rules = directory / f"{case.name.split('-')[0]}-rules.json"
        rules.write_text(json.dumps(case.rules, indent=2), encoding="utf-8")
