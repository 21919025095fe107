"""The slower disk of the benchmarks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from certification.bench import slower

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler (cc)")

_FLUSHES = """
import os, tempfile, time
with tempfile.TemporaryFile() as file:
    began = time.monotonic_ns()
    os.fsync(file.fileno())
    os.fdatasync(file.fileno())
    print(time.monotonic_ns() - began)
"""


def test_every_flush_of_every_process_takes_longer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The program is started once more with a library in front of the system's, and ends with its code."""
    run = subprocess.run
    seen: dict[str, Any] = {}

    def instead(command: Any, **options: Any) -> Any:
        if "env" not in options:
            return run(command, **options)
        seen["command"] = command
        # In place of the whole benchmark: what a flush takes in a process that is started this way.
        done = run([sys.executable, "-c", _FLUSHES], env=options["env"], check=True, capture_output=True)
        seen["ns"] = int(done.stdout)
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(subprocess, "run", instead)
    assert slower.restart(5, ["--quick"]) == 3
    assert seen["command"] == [sys.executable, "-m", "certification", "bench", "--quick"]
    # A sleep lasts at least as long as it was asked to, so this is no measurement.
    assert seen["ns"] >= 2 * 5_000_000
    assert slower.VARIABLE not in os.environ
    assert slower.flush_ms() == 0
