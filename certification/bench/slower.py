"""A slower disk: this program once more, with a wait after every flush in it and in all it starts.

What group commit is worth depends on what a flush costs, and disks differ by a factor of fifty: one that
keeps a cache answers within 0.1 ms, others take 1 to 5. Both sides of a comparison get the same wait.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["VARIABLE", "flush_ms", "restart"]

VARIABLE: Final = "MEMOFLOW_BENCH_FLUSH_US"
_SOURCE: Final = Path(__file__).with_name("flush.c")


def flush_ms() -> float:
    """Milliseconds that are added to every flush in this process."""
    return int(os.environ.get(VARIABLE, "0")) / 1_000


def restart(milliseconds: float, arguments: list[str]) -> int:
    """Run ``python -m certification bench`` with these arguments on a slower disk; returns its exit code.

    Raises:
        SystemExit: there is no C compiler, or it fails.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("--flush-ms needs a C compiler (cc), which was not found.")
    with tempfile.TemporaryDirectory(prefix="mfb-") as directory:
        # A database server may run as another user.
        os.chmod(directory, 0o755)
        library = Path(directory, "flush.so")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"], check=True)
        environment = {
            **os.environ,
            VARIABLE: str(round(milliseconds * 1_000)),
            "LD_PRELOAD": " ".join(filter(None, (str(library), os.environ.get("LD_PRELOAD")))),
        }
        command = [sys.executable, "-m", "certification", "bench", *arguments]
        return subprocess.run(command, env=environment, check=False).returncode
