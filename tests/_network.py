"""The network guard: no test reaches anything beyond this machine.

It is an audit hook, because a replaced ``socket.socket`` misses whoever took hold of the class earlier.
An audit hook cannot be removed, so it is installed once a process.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from typing import Any

__all__ = ["NetworkForbidden", "attempts", "install"]

attempts: list[str] = []
"""What was refused since the last test; a test that leaves something here fails, even if the code under
test swallowed the refusal."""

_ADDRESSED = {"socket.connect", "socket.sendto", "socket.sendmsg"}
_LOOKUPS = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}
_installed = False


class NetworkForbidden(RuntimeError):
    """A test tried to leave the machine."""


def install() -> None:
    """Refuse every connection and name lookup beyond loopback and Unix sockets, for good."""
    global _installed
    if not _installed:
        _installed = True
        _forget_proxies_and_keys()
        sys.addaudithook(_audit)


def _forget_proxies_and_keys() -> None:
    # A proxy on loopback would carry requests past the guard; a real key must never be used by a test.
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("OPENAI_", "ANTHROPIC_")):
            del os.environ[name]


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event in _ADDRESSED:
        sock, address = args[0], args[1]
        if sock.family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple):
            _check(address[0])
    elif event in _LOOKUPS:
        _check(args[0])


def _check(host: object) -> None:
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if name is None or name == "" or _is_loopback(str(name)):
        return
    if str(name).endswith(".invalid"):
        # Reserved for names that never resolve: answered here, as a resolver would.
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    attempts.append(str(name))
    raise NetworkForbidden(
        f"A test tried to reach {name}. Tests may use loopback and Unix sockets only; give the code "
        "under test a simulated provider."
    )


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
