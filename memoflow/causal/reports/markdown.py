"""An audit's result for people, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from memoflow.causal.findings import AuditResult, Finding, Severity
from memoflow.causal.reports.subject import Subject

__all__ = ["code", "escaped", "to_markdown"]


def to_markdown(result: AuditResult, subject: Subject, profile: str) -> str:
    """A summary, then what fails and what warns, each with the chain that led to it."""
    return "\n".join(_lines(result, subject, profile)) + "\n"


def _lines(result: AuditResult, subject: Subject, profile: str) -> Iterator[str]:
    yield f"# Causal audit: {'passed' if result.passed else 'failed'}"
    yield ""
    yield f"{code(subject.name)}, profile {profile}."
    yield ""
    yield "| records | without findings | warnings | failures |"
    yield "|---:|---:|---:|---:|"
    yield f"| {result.total} | {result.ok} | {result.warnings} | {result.failures} |"
    yield from _section("Failures", "FAIL", result, subject)
    yield from _section("Warnings", "WARN", result, subject)


def _section(title: str, severity: Severity, result: AuditResult, subject: Subject) -> Iterator[str]:
    findings = [finding for finding in result.findings if finding.severity == severity]
    if not findings:
        return
    yield ""
    yield f"## {title}"
    yield ""
    for finding in findings:
        yield from _finding(finding, subject)


def _finding(finding: Finding, subject: Subject) -> Iterator[str]:
    line = subject.lines.get(finding.record_id)
    where = "" if line is None else f" (line {line})"
    yield f"- **{escaped(finding.code)}** at {code(finding.record_id)}{where}: {escaped(finding.message)}"
    chain = subject.chain(finding.record_id)
    if len(chain) > 1:
        yield f"  - chain: {' → '.join(map(code, chain))}"


def code(text: str) -> str:
    """Text as a code span, whatever is in it."""
    shown = _printable(text)
    fence = "`" * (1 + max((len(run) for run in _runs(shown)), default=0))
    # A span that begins or ends with a backtick needs a space, which is not shown.
    return f"{fence} {shown} {fence}" if "`" in shown else f"{fence}{shown}{fence}"


def _runs(text: str) -> list[str]:
    return [run for run in "".join(c if c == "`" else " " for c in text).split() if run]


def escaped(text: str) -> str:
    """Text in which nothing is markup."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|!" else c for c in _printable(text))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
