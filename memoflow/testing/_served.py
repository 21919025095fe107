"""What the server and the control endpoints need of a provider."""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

from memoflow.providers.base import Usage
from memoflow.testing._signals import Gate
from memoflow.testing._wire import Exchange, RecordedRequest, WireRequest

__all__ = ["Served"]


class Served(Protocol):
    """A provider that can be served; `SimulatedProvider` is one."""

    requests: list[RecordedRequest]

    @property
    def wire_requests(self) -> Counter[str]: ...

    @property
    def billed(self) -> Usage: ...

    @property
    def performed(self) -> int: ...

    @property
    def remaining(self) -> int: ...

    def open(self, wire: WireRequest) -> Exchange: ...

    def push(self, *entries: Any, to: str = "create") -> None: ...

    def reset(self, script: Any = (), *, default: Any = None) -> None: ...

    def gate(self, name: str) -> Gate: ...

    def advance(self, response_id: str | None = None) -> None: ...
