"""``python -m certification live-openai``: see `certification.live.program`."""

from __future__ import annotations

from certification.live.program import run
from certification.live.providers import OPENAI

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Certify OpenAI and write the evidence; returns an exit code."""
    return run(OPENAI, arguments)
