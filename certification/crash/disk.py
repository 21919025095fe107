"""A disk of its own for a SQLite ledger, which can be full for a while."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from certification.crash.weather import Weather

__all__ = ["Disk"]

PLENTY = "4g"


class Disk:
    """A directory that is full when told so.

    Where file systems may be mounted it is a tmpfs whose size is brought down to what is used, so that
    writing the log or the database meets ENOSPC, which SQLite reports as SQLITE_FULL. Elsewhere the workers'
    connections are forbidden to let the database grow (``PRAGMA max_page_count``), which it reports alike.

    Attributes:
        path: the directory.
        kind: ``tmpfs`` or ``max_page_count``.
    """

    def __init__(self, path: Path, weather: Weather) -> None:
        self.path = path
        self._weather = weather

    def __enter__(self) -> Self:
        self.path.mkdir()
        mounted = _mount("-t", "tmpfs", "-o", f"size={PLENTY},mode=700", "tmpfs", str(self.path))
        self.kind = "tmpfs" if mounted else "max_page_count"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.kind == "tmpfs":
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    def fill(self, room: float) -> None:
        """Leave no room but up to 16 pages."""
        if self.kind == "max_page_count":
            self._weather.fill(True)
            return
        used = os.statvfs(self.path)
        pages = used.f_blocks - used.f_bfree + round(16 * room)
        # Refused where more was written meanwhile; then it is not full this time.
        _mount("-o", f"remount,size={pages * used.f_frsize}", str(self.path))

    def free(self) -> None:
        """Let there be plenty of room again."""
        if self.kind == "max_page_count":
            self._weather.fill(False)
            return
        _mount("-o", f"remount,size={PLENTY}", str(self.path))


def _mount(*arguments: str) -> bool:
    try:
        done = subprocess.run(["mount", *arguments], check=False, capture_output=True)
    except FileNotFoundError:
        return False
    return done.returncode == 0
