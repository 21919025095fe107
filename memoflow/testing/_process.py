"""A simulated provider in a process of its own, as a test drives it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack
from urllib.parse import urlsplit

from memoflow.errors import ConfigurationError
from memoflow.providers.base import Usage
from memoflow.testing._control import CONTROL
from memoflow.testing._options import OptionArguments
from memoflow.testing._script import ScriptEntry
from memoflow.testing._wire import RecordedRequest
from memoflow.testing._wireform import entry_to_json, script_to_json

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic
    from openai import AsyncOpenAI, OpenAI

__all__ = ["ProviderProcess", "refused_url"]

_STOP_SECONDS = 10.0
_CONTROL_SECONDS = 60.0


class ProviderProcess:
    """A `SimulatedProvider` that outlives what a test kills, and dies with the test's own process.

    Use it as a context manager::

        with ProviderProcess([text("Hello.")]) as provider:
            client = OpenAI(base_url=provider.base_url, api_key="any")

    Args:
        script: entries as for `SimulatedProvider`, but no functions; see `agent`.
        default: what happens when the script is used up.
        options: see `ProviderOptions`.
    """

    def __init__(
        self,
        script: Iterable[ScriptEntry] | ScriptEntry = (),
        *,
        default: ScriptEntry | None = None,
        **options: Unpack[OptionArguments],
    ) -> None:
        self._first = {"script": script_to_json(script), "default": entry_to_json(default)}
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._base_url: str | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the process and wait until it serves."""
        command = [sys.executable, "-m", "memoflow.testing.server", "--die-with-parent"]
        command += ["--options", json.dumps(self._options)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment()
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.stop()
            raise ConfigurationError("The provider process ended before it served; its error is above.")
        self._base_url = json.loads(line)["base_url"]
        self._control("POST", "reset", self._first)
        return self

    def stop(self) -> None:
        """End the process. Harmless when it has ended."""
        process, self._process, self._base_url = self._process, None, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    @property
    def base_url(self) -> str:
        """What a client of OpenAI takes as its ``base_url``; one of Anthropic takes `root_url`."""
        if self._base_url is None:
            raise ConfigurationError(
                "The provider process does not run. Start it, or use it in a with block."
            )
        return self._base_url

    @property
    def root_url(self) -> str:
        """What a client of Anthropic takes as its ``base_url``."""
        return self.base_url.removesuffix("/v1")

    @property
    def pid(self) -> int:
        """Process id."""
        if self._process is None:
            raise ConfigurationError(
                "The provider process does not run. Start it, or use it in a with block."
            )
        return self._process.pid

    def push(self, *entries: ScriptEntry, to: str = "create") -> None:
        """Add entries to the end of the script; see `SimulatedProvider.push`."""
        self._control("POST", "script", {"script": script_to_json(entries), "to": to})

    def reset(
        self, script: Iterable[ScriptEntry] | ScriptEntry = (), *, default: ScriptEntry | None = None
    ) -> None:
        """Forget every request, all state and the script, and start again with this one."""
        self._control("POST", "reset", {"script": script_to_json(script), "default": entry_to_json(default)})

    @property
    def requests(self) -> list[RecordedRequest]:
        """Every request so far, as `SimulatedProvider.requests` has them."""
        return [_record(data) for data in self._seen()["requests"]]

    @property
    def wire_requests(self) -> Counter[str]:
        """How many requests arrived, by method and path without ids."""
        return Counter(self._seen()["wire_requests"])

    @property
    def billed(self) -> Usage:
        """All tokens billed so far."""
        return Usage(**self._seen()["billed"])

    @property
    def performed(self) -> int:
        """How many generations were completed and billed."""
        return int(self._seen()["performed"])

    @property
    def remaining(self) -> int:
        """How many entries of the script no request has reached yet."""
        return int(self._seen()["remaining"])

    def release(self, hold: str) -> None:
        """Let the reply held under this name go on."""
        self._control("POST", "release", {"hold": hold})

    def wait_entered(self, hold: str, timeout: float = 10.0) -> bool:
        """Block until a request is held under this name; False after ``timeout`` seconds."""
        return self._wait(hold, "entered", timeout)

    def wait_abandoned(self, hold: str, timeout: float = 10.0) -> bool:
        """Block until the client of the held request is gone; False after ``timeout`` seconds."""
        return self._wait(hold, "abandoned", timeout)

    def _wait(self, hold: str, state: str, timeout: float) -> bool:
        return bool(self._control("POST", "wait", {"hold": hold, "state": state, "timeout": timeout})["ok"])

    def advance(self, response_id: str | None = None) -> None:
        """Take a background response, or all of them, one step further."""
        self._control("POST", "advance", {"response_id": response_id})

    def client(self, **options: Any) -> OpenAI:
        """An official client of this process. ``options`` go to ``OpenAI``."""
        from memoflow.testing._clients import loopback_client

        return loopback_client(self.base_url, **options)

    def async_client(self, **options: Any) -> AsyncOpenAI:
        """An official asynchronous client of this process."""
        from memoflow.testing._clients import async_loopback_client

        return async_loopback_client(self.base_url, **options)

    def anthropic_client(self, **options: Any) -> Anthropic:
        """An official client of Anthropic of this process. ``options`` go to ``Anthropic``."""
        from memoflow.testing._anthropic_clients import loopback_client

        return loopback_client(self.root_url, **options)

    def async_anthropic_client(self, **options: Any) -> AsyncAnthropic:
        """An official asynchronous client of Anthropic of this process."""
        from memoflow.testing._anthropic_clients import async_loopback_client

        return async_loopback_client(self.root_url, **options)

    def _seen(self) -> dict[str, Any]:
        return self._control("GET", "requests", None)

    def _control(self, method: str, action: str, given: dict[str, Any] | None) -> dict[str, Any]:
        address = urlsplit(self.base_url)
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=_CONTROL_SECONDS)
        try:
            connection.request(
                method, f"{CONTROL}{action}", body=None if given is None else json.dumps(given)
            )
            reply = connection.getresponse()
            answer: dict[str, Any] = json.loads(reply.read())
        finally:
            connection.close()
        if reply.status != 200:
            raise ConfigurationError(f"The provider process refused {action!r}: {answer['error']}")
        return answer


def _record(data: dict[str, Any]) -> RecordedRequest:
    ended, billed = data.pop("ended"), data["billed"]
    data |= {"body": data["body"].encode(), "billed": None if billed is None else Usage(**billed)}
    record = RecordedRequest(**data)
    if ended:
        record.ended.set()
    return record


def _environment() -> dict[str, str]:
    # The process must find this very package, wherever it was imported from.
    import memoflow.testing

    root = str(Path(memoflow.testing.__file__).parents[2])
    given = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root if not given else f"{root}{os.pathsep}{given}"}


@contextmanager
def refused_url() -> Iterator[str]:
    """A base URL on loopback where connections are refused for as long as the context lasts."""
    with socket.socket() as bound:
        # Bound and not listening: the port is taken, and connecting to it is refused.
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
