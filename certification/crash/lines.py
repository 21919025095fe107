"""Append-only files of one JSON object a line, which survive the process that writes them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["Lines"]


class Lines:
    """A file that any number of threads and processes append to."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def append(self, **line: Any) -> None:
        """Write a line, and return when it is on the disk."""
        # One write: whole or not there, whenever the process dies.
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")
        os.fdatasync(self._descriptor)
