"""`memoflow demo`: a worker is killed in the middle of a turn, and nothing is paid or done twice."""

from __future__ import annotations

from memoflow.demo.show import main

__all__ = ["main"]
