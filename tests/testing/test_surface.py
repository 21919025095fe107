"""The public surface of the package, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import memoflow.testing


def test_all_is_sorted_and_true() -> None:
    """`__all__` is sorted, without repetition, and everything in it exists and is documented."""
    names = memoflow.testing.__all__
    assert names == sorted(set(names))
    documented = [name for name in names if getattr(memoflow.testing, name).__doc__]
    assert [name for name in names if name not in documented] == ["ScriptEntry"]


def test_importing_is_light() -> None:
    """Importing the package imports neither an SDK nor an HTTP client."""
    code = "import sys, memoflow.testing; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert set(ran.stdout.split()).isdisjoint({"anthropic", "openai", "httpx2", "httpx"})
