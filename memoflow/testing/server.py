"""The simulated provider as a process: ``python -m memoflow.testing.server --port 0``.

It prints one line of JSON with its ``base_url``, as a client of OpenAI takes it (one of Anthropic: without
the ``/v1`` at its end), and serves every API there until it is interrupted. Control endpoints:

- ``POST /_control/script`` ``{"script": [entry, …], "to": "create"}`` adds entries, ``to`` as for
  `SimulatedProvider.push`
- ``POST /_control/reset`` ``{"script": [entry, …], "default": entry}`` forgets everything first
- ``GET /_control/requests`` counts, billed tokens and every request
- ``POST /_control/release`` ``{"hold": name}`` lets a held reply go on
- ``POST /_control/wait`` ``{"hold": name, "state": "entered" | "abandoned", "timeout": seconds}``
- ``POST /_control/advance`` ``{"response_id": id}`` takes background responses one step further
- ``GET /_control/health``

An entry is what the constructors of `memoflow.testing` make, as JSON; a string is a message, and an
object without ``entry`` is an output item.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from memoflow.testing._provider import SimulatedProvider
from memoflow.testing._server import ProviderServer
from memoflow.testing._wireform import entry_from_json

__all__ = ["main"]

_LOOK_SECONDS = 0.5


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted, or until the parent process is gone."""
    given = _parser().parse_args(arguments)
    script = _read_script(given.script)
    provider = SimulatedProvider([entry_from_json(entry) for entry in script], **json.loads(given.options))
    with suppress(KeyboardInterrupt), ProviderServer(provider, given.host, given.port) as server:
        print(json.dumps({"base_url": server.base_url, "pid": os.getpid()}), flush=True)
        if given.die_with_parent:
            _outlive_nobody()
        else:
            threading.Event().wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m memoflow.testing.server", description="A simulated provider on loopback."
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--script", help="file with a script as a JSON array; - reads it from the input")
    parser.add_argument("--options", default="{}", help="options of the provider as a JSON object")
    parser.add_argument(
        "--die-with-parent", action="store_true", help="end when the input closes or the parent is gone"
    )
    return parser


def _read_script(path: str | None) -> list[Any]:
    if path is None:
        return []
    if path == "-":
        return list(json.load(sys.stdin))
    with open(path, encoding="utf-8") as file:
        return list(json.load(file))


def _outlive_nobody() -> None:
    """Return when the input has been closed or the parent is gone."""
    # A forked sibling may hold the input open after the parent has died, so its id is looked at too.
    parent, closed = os.getppid(), threading.Event()
    threading.Thread(target=_watch_input, args=(closed,), daemon=True).start()
    while not closed.wait(_LOOK_SECONDS) and os.getppid() == parent:
        pass


def _watch_input(closed: threading.Event) -> None:
    # Read past the buffered reader, whose lock must be free when the interpreter ends.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    closed.set()


if __name__ == "__main__":
    main()
