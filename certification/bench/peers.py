"""Processes that work on order: one JSON object a line each way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

__all__ = ["ROOT", "Peer", "load_peer"]

ROOT: Final = Path(__file__).resolve().parent.parent.parent


class Peer:
    """One such process. It ends when its standard input does."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, **order: Any) -> None:
        """Give it work."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, float]:
        """Wait for its answer.

        Raises:
            RuntimeError: it ended instead.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}.")
        answer: dict[str, float] = json.loads(line)
        return answer

    def ask(self, **order: Any) -> dict[str, float]:
        """Give it work and wait for the answer."""
        self.send(**order)
        return self.receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closes its input and waits.
        self._process.communicate()


def load_peer(url: str, *options: str) -> Peer:
    """A process of `certification.bench.load` on a ledger, warmed up."""
    peer = Peer([sys.executable, "-m", "certification.bench.load", "--url", url, *options])
    peer.ask(callers=64, total=64)
    return peer
