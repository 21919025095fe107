"""Serving the gateway: limits on connections, a graceful end, and one or several processes."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from memoflow.errors import ConfigurationError
from memoflow.gateway.app import make_app
from memoflow.gateway.service import check_settings
from memoflow.gateway.settings import GatewaySettings
from memoflow.ledger.dialect import normalise_url
from memoflow.ledger.migrate import check
from memoflow.runtime import Runtime
from memoflow.settings import MemoflowSettings

__all__ = ["make_server", "serve"]

log = logging.getLogger("memoflow.gateway")
_KEEP_ALIVE_S: Final = 30
_GARBAGE: Final = 20_000
"""Objects more than there were, after which the collector looks at the young ones; 700 by default."""


class _Config(uvicorn.Config):
    """uvicorn's configuration, with the limits of `_LimitedProtocol`."""

    head_seconds: float
    head_bytes: int


class _LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with a limit on how long and how large the head of a request may be."""

    config: _Config

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head_size = 0
        self._waiting: asyncio.TimerHandle | None = None
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(self.config.head_seconds, self._give_up)

    def _head_is_there(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if self.transport is not None and not self.transport.is_closing():
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._head_size = 0
        self._expect_head()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._grow(len(name) + len(value) + 4)
        super().on_header(name, value)

    def _grow(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self.config.head_bytes:
            raise ValueError("the head of the request is too large")

    def on_headers_complete(self) -> None:
        self._head_is_there()
        super().on_headers_complete()


def make_server(app: Any, settings: GatewaySettings) -> uvicorn.Server:
    """A server of one process, not yet running."""
    return uvicorn.Server(_config(app, settings))


def _config(app: Any, settings: GatewaySettings, **options: Any) -> _Config:
    config = _Config(
        app,
        host=settings.host,
        port=settings.port,
        http=_LimitedProtocol,
        ws="none",
        lifespan="on",
        interface="asgi3",
        # Who is in front of it is nobody's to say, and where it comes from is nobody's to know.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_seconds),
        **options,
    )
    config.head_seconds, config.head_bytes = settings.read_timeout, settings.max_head_bytes
    return config


def serve(database_url: str, namespace: str | None, settings: GatewaySettings) -> None:
    """Serve until interrupted.

    Args:
        database_url: the ledger.
        namespace: the tenant; ``MEMOFLOW_NAMESPACE`` if None.
        settings: how to serve.

    Raises:
        ConfigurationError: a setting, the address or the ledger cannot be used, or several processes on
            SQLite.
    """
    # Said here, as a sentence: from within the server it would come as a traceback.
    check(database_url).require()
    check_settings(settings)
    _check_address(settings)
    if settings.inspection == "off" and MemoflowSettings().inspection is not None:
        log.warning(
            "MEMOFLOW_INSPECTION is for runtimes; what passes here is inspected by --inspection alone"
        )
    open_runtime = partial(Runtime.open, database_url, namespace=namespace)
    if settings.workers == 1:
        make_server(_make_served(open_runtime, settings), settings).run()
        return
    if normalise_url(database_url).get_backend_name() == "sqlite":
        raise ConfigurationError(
            f"{settings.workers} processes need a PostgreSQL ledger; SQLite lets one write at a time. Use "
            "one process, or another ledger."
        )
    factory: Callable[[], Any] = partial(_make_served, open_runtime, settings)
    config = _config(factory, settings, factory=True, workers=settings.workers)
    Multiprocess(config, sockets=[config.bind_socket()]).run()


def _check_address(settings: GatewaySettings) -> None:
    try:
        with socket.create_server((settings.host, settings.port), family=_family(settings.host)):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"The gateway cannot listen on {settings.host}, port {settings.port} ({error.strerror}). Name "
            "another one with --host and --port, or end what is there."
        ) from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _make_served(open_runtime: Callable[[], Runtime], settings: GatewaySettings) -> Any:
    """The application of a process that does nothing but serve it, which is set up for that."""
    app = make_app(open_runtime, settings)
    # It would write a line for each request, with an address in it.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    # What is there now stays, so the collector need not look at it again and again; and what a request leaves
    # behind goes without it, but for little.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE, 20, 20)
    return app
