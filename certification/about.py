"""What a run was made on and with: without it, evidence of it means nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "about"]

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("memoflow-runtime", "sqlalchemy", "psycopg", "openai", "pydantic", "cryptography")


def about() -> dict[str, Any]:
    """Time, commit of the source, machine and versions."""
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no", "--", "memoflow")),
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "load before": os.getloadavg()[0],
        },
        "versions": {
            "python": sys.version.split()[0],
            "sqlite": sqlite3.sqlite_version,
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
