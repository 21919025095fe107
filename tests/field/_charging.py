"""A tool that charges a card, and deaths around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memoflow import Tool, faults, tool
from memoflow.testing import call, calls
from tests.field.conftest import Field

__all__ = ["CHARGE", "RAN", "charging", "die_at", "killed"]

RAN: list[Any] = []
"""What was charged; whoever counts clears it first."""


def charging(effect: Any, version: str = "v1") -> Tool[..., Any]:
    """A tool that charges a card."""

    @tool(version=version, effect=effect, name="charge")
    def charge(order: str, cents: int) -> str:
        """Charge."""
        RAN.append((order, cents))
        return "charged"

    return charge


CHARGE = call("charge", {"order": "o1", "cents": 500})


def die_at(point: str, number: int = 1) -> None:
    """Stop as a killed process would, at the n-th time this point is reached."""
    seen = 0

    def hook(name: str) -> None:
        nonlocal seen
        seen += name == point
        if seen == number:
            raise faults.Stop

    faults.install(hook)


def killed(case: Field, kill: Callable[[], None], tools: list[Tool[..., Any]]) -> None:
    kill()
    try:
        with pytest.raises(faults.Stop):
            case.play([calls(CHARGE)], tools, run="r")
    finally:
        faults.install(None)
    case.clock.advance(3600)
