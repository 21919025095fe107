"""How a program ends that does not do what it was asked for, or did not get what it was to prove."""

from __future__ import annotations

__all__ = ["NotCertified", "Refused"]


class Refused(Exception):
    """A run or a verification that does not begin; says why, and what to do."""


class NotCertified(Exception):
    """A run that did not prove what it was to prove.

    Attributes:
        findings: what did not hold, in sentences without payload text.
    """

    def __init__(self, *findings: str) -> None:
        self.findings = findings
        super().__init__("\n".join(findings))
