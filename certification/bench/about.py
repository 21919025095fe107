"""What a run was measured on and with: without it a figure means nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from certification.bench.bare import bare_commits
from certification.bench.peers import ROOT
from certification.bench.site import DATABASES, DatabaseKind, Site
from certification.bench.timing import seconds_of

__all__ = ["about", "commit_ms"]

PACKAGES = ("memoflow-runtime", "sqlalchemy", "psycopg", "openai", "pydantic", "cryptography")


def about(site: Site, *, postgresql: bool) -> dict[str, Any]:
    """Machine, versions, commit of the source, and what one commit costs on the disk in question."""
    kinds: list[DatabaseKind] = [kind for kind in DATABASES if kind == "sqlite" or postgresql]
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": site.quick,
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
            **({"postgresql": _server_version(site)} if postgresql else {}),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
        "commit_ms": {kind: commit_ms(site, kind) for kind in kinds},
    }


def commit_ms(site: Site, kind: DatabaseKind) -> float:
    """Milliseconds of one bare durable commit."""
    with bare_commits(site, kind) as bare:
        bare(20)
        return median([_once(bare) for _ in range(site.pick(50, 500))]) * 1e3


def _once(bare: Callable[[int], None]) -> float:
    return seconds_of(lambda: bare(1))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _server_version(site: Site) -> str:
    import psycopg

    with psycopg.connect(site.server.url) as connection:
        return str(connection.info.parameter_status("server_version"))
