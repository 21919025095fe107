"""An audit's result for machines and for people: JSON, Markdown and SARIF."""

from __future__ import annotations

from memoflow.causal.reports.markdown import to_markdown
from memoflow.causal.reports.sarif import to_sarif
from memoflow.causal.reports.subject import Subject

__all__ = ["Subject", "to_markdown", "to_sarif"]
