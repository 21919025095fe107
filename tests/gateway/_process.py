"""The gateway as a process of its own, as an operator starts it."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

from memoflow import Budget, KeyRing, Runtime
from memoflow.gateway import new_virtual_key

__all__ = ["ACCOUNT", "GatewayProcess"]

ACCOUNT = "app"
NAMESPACE = "tests"
_RUNNING = re.compile(r"Uvicorn running on (http://127\.0\.0\.1:\d+)")
_ROOT = str(Path(__file__).resolve().parents[2])


class GatewayProcess:
    """``memoflow gateway`` in front of a provider.

    Args:
        url: the ledger.
        base_url: the provider, as a client of OpenAI takes it.
        lease_seconds: how long a killed process blocks what it was at.
        workers: processes.
        port: where to listen; needed with several workers, which do not say where they do.
    """

    def __init__(
        self, url: str, base_url: str, *, lease_seconds: int = 60, workers: int = 1, port: int = 0
    ) -> None:
        secret = f"k1:{base64.b64encode(os.urandom(32)).decode()}"
        self._arguments = ["--database", url, "--port", str(port), "--workers", str(workers)]
        self._environment = {
            **os.environ,
            "PYTHONPATH": _ROOT,
            "MEMOFLOW_NAMESPACE": NAMESPACE,
            "MEMOFLOW_OUTPUT_KEYS": secret,
            "MEMOFLOW_LEASE_SECONDS": str(lease_seconds),
            "MEMOFLOW_GATEWAY_OPENAI_KEY": "sk-upstream",
            "MEMOFLOW_GATEWAY_OPENAI_BASE_URL": base_url,
        }
        self.runtime = Runtime.open(
            url, namespace=NAMESPACE, keys=KeyRing.parse(secret), lease_seconds=lease_seconds
        )
        self.runtime.budgets.put(ACCOUNT, Budget(total_tokens=1_000_000))
        self.key, add = new_virtual_key(
            NAMESPACE,
            self.runtime.digester,
            name="k",
            account=ACCOUNT,
            models=("*",),
            endpoints=("*",),
            output_tokens=100,
            expires_in=None,
            actor="tests",
        )
        self.runtime.commit(add)
        self._process: subprocess.Popen[str] | None = None
        self.base_url = f"http://127.0.0.1:{port}/v1"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self.kill()
        self.runtime.close()

    def start(self) -> Self:
        """Start it, and wait until it serves."""
        command = [sys.executable, "-m", "memoflow.cli", "gateway", *self._arguments]
        self._process = subprocess.Popen(
            command, env=self._environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stderr is not None
        told = []
        for line in self._process.stderr:
            told.append(line)
            if found := _RUNNING.search(line):
                self.base_url = f"{found[1]}/v1"
                # What it says from now on must not fill the pipe.
                self._listening = threading.Thread(target=self._process.stderr.read, daemon=True)
                self._listening.start()
                return self
        raise AssertionError("".join(told))

    def kill(self) -> None:
        """End it as the system would, with no chance to clean up."""
        self._end(signal.SIGKILL)

    def stop(self) -> bool:
        """Ask it to end; whether it did so in good order."""
        # A server that was asked by a signal tells by the same one that it has ended.
        return self._end(signal.SIGTERM) in (0, -signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None
        assert process.stderr is not None
        if how is signal.SIGKILL:
            # With the processes that it has started, which nobody would end otherwise.
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        code = process.wait(60)
        self._listening.join()
        process.stderr.close()
        return code

    def read(self, query: Any) -> Any:
        """Look into the ledger."""
        return self.runtime.ledger.database.read(query)
