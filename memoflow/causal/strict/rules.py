"""What the strict audit is told: roots, permissions, approvals, classes, secrets."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StrictRules"]


@dataclass(frozen=True, slots=True)
class StrictRules:
    """Rules of the strict audit."""
