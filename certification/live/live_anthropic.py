"""``python -m certification live-anthropic``: see `certification.live.program`."""

from __future__ import annotations

from certification.live.program import run
from certification.live.providers import ANTHROPIC

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Certify Anthropic and write the evidence; returns an exit code."""
    return run(ANTHROPIC, arguments)
