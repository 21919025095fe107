"""One API of one SDK, as the ports need to know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from memoflow.errors import ConfigurationError

__all__ = ["Api", "Sdk", "check_client"]

Response = TypeVar("Response", covariant=True)


class Sdk(Protocol):
    """The names of an SDK's module that the ports use."""

    @property
    def APIError(self) -> type[Exception]: ...
    @property
    def APIConnectionError(self) -> type[Exception]: ...
    @property
    def APIStatusError(self) -> type[Exception]: ...
    @property
    def Stream(self) -> Any: ...
    @property
    def AsyncStream(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Api(Generic[Response]):
    """An API of an SDK.

    Attributes:
        sdk: the SDK's module.
        path: where requests are posted.
        reply: the SDK's type of a whole reply.
        event: the SDK's type of a stream's events.
        count_path: where the input of a request is counted, or None if the provider does not do it.
        counted: the fields of a request that the counting endpoint takes.
    """

    sdk: Sdk
    path: str
    reply: type[Response]
    event: Any = None
    count_path: str | None = None
    counted: frozenset[str] = field(default=frozenset())

    def response(self, body: Mapping[str, Any]) -> Response:
        """A reply as the SDK's own type; built like the SDK does it, which checks nothing."""
        made: Response = self.reply.construct(**body)  # type: ignore[attr-defined]
        return made


def check_client(adapter: str, client: object, wanted: type[Any], other: type[Any], twin: str) -> None:
    """Refuse what is no client of the kind an adapter takes.

    Raises:
        ConfigurationError: says which adapter takes it, if one does.
    """
    if isinstance(client, wanted):
        return
    package = wanted.__module__.partition(".")[0]
    hint = f" For {other.__name__} use {twin}." if isinstance(client, other) else ""
    raise ConfigurationError(
        f"{adapter} takes a client of type {package}.{wanted.__name__}, not {type(client).__name__}.{hint}"
    )
