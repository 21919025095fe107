"""What a detector found: where it points, how bad it is, and never the text itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

__all__ = ["Facet", "Finding", "Severity", "is_of", "reduced", "risk_score", "severe"]

Severity = Literal["info", "low", "medium", "high", "critical"]
Facet = Literal["tool_args", "tool_result", "subagent_instructions", "subagent_report", "tool_description"]

SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
FACETS: Final[tuple[Facet, ...]] = get_args(Facet)

# In percent, as confidences are, so that a score is a matter of whole numbers.
_WEIGHTS: Final[dict[Severity, int]] = {"info": 10, "low": 30, "medium": 60, "high": 85, "critical": 98}
_OWASP: Final = {"injection": "LLM01", "secret": "LLM02", "pii": "LLM02", "output": "LLM05"}
_ATLAS: Final = {"injection": "AML.T0051", "secret": "AML.T0057", "pii": "AML.T0057"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        detector: dotted id, such as ``secret.aws_key``.
        severity: how bad it is, if it is what it looks like.
        confidence: how sure that is, in percent.
        facet: the kind of text it was found in.
        length: of what was found, in bytes of UTF-8.
        span: first byte and the one after the last, where the text was read as it stood; else None.
        view: how the text had to be read: ``raw``, ``normalised``, ``base64`` and so on.
        label: a name that says more and holds no text of the session, such as that of a known credential.
    """

    detector: str
    severity: Severity
    confidence: int
    facet: Facet
    length: int = 0
    span: tuple[int, int] | None = None
    view: str = "raw"
    label: str = ""

    @property
    def owasp(self) -> str | None:
        """Entry of OWASP's list for language models of 2025."""
        return _OWASP.get(self.detector.partition(".")[0])

    @property
    def atlas(self) -> str | None:
        """Technique of MITRE ATLAS."""
        return _ATLAS.get(self.detector.partition(".")[0])


def severe(severity: Severity, least: Severity) -> bool:
    """Whether a severity is as high as another, or higher."""
    return SEVERITIES.index(severity) >= SEVERITIES.index(least)


def is_of(detector: str, family: str) -> bool:
    """Whether an id is another one, or stands below it."""
    return detector == family or detector.startswith(family + ".")


def reduced(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The surest finding of each detector and severity, sorted; thirty paths of one kind count once."""
    best: dict[tuple[str, Severity], Finding] = {}
    for finding in findings:
        key = finding.detector, finding.severity
        if key not in best or best[key].confidence < finding.confidence:
            best[key] = finding
    return tuple(best[key] for key in sorted(best))


def risk_score(findings: Iterable[Finding]) -> int:
    """0 to 100: one less the product, over reduced findings, of one less weight times confidence."""
    left, scale = 1, 1
    for finding in reduced(findings):
        confidence = min(max(finding.confidence, 0), 100)
        left *= 10_000 - _WEIGHTS[finding.severity] * confidence
        scale *= 10_000
    return (200 * (scale - left) + scale) // (2 * scale)
