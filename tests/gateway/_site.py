"""A gateway on loopback in front of a simulated provider, with a ledger that the test looks into."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Self

import anthropic
import httpx2
import openai

from memoflow import Budget, KeyRing, Runtime
from memoflow.gateway import GatewaySettings, make_app, make_server, new_virtual_key
from memoflow.ledger.accounts import AccountInfo
from memoflow.ledger.queries import Filter, InvocationInfo, list_invocations
from memoflow.ledger.virtual_keys import RevokeVirtualKey, VirtualKey
from memoflow.testing import SimulatedProvider

__all__ = ["ACCOUNT", "MODEL", "Site", "settings"]

ACCOUNT = "team/app"
MODEL = "gpt-5-mini"
NAMESPACE = "tests"
OPENAI_KEY = "sk-upstream-openai"
ANTHROPIC_KEY = "sk-upstream-anthropic"


def settings(base_url: str, **given: Any) -> GatewaySettings:
    """Settings of a gateway in front of a provider that is served at a base URL of OpenAI's kind."""
    return GatewaySettings(
        **{
            "openai_key": OPENAI_KEY,
            "anthropic_key": ANTHROPIC_KEY,
            "openai_base_url": base_url,
            "anthropic_base_url": base_url.removesuffix("/v1"),
            "port": 0,
            "shutdown_seconds": 5,
            **given,
        }
    )


class Site:
    """A running gateway.

    Args:
        url: its ledger.
        provider: what it forwards to; or the address of something else.
        limits: of the account.
        given: settings of the gateway.
    """

    def __init__(
        self, url: str, provider: SimulatedProvider | str, limits: Budget | None = None, **given: Any
    ) -> None:
        self.url = url
        self.provider: Any = provider
        self.ring = KeyRing.generate()
        self._given = given
        self._stack = ExitStack()
        self.open_runtime = partial(Runtime.open, url, namespace=NAMESPACE, keys=self.ring)
        self.runtime = self._stack.enter_context(self.open_runtime())
        self.runtime.budgets.put("team", Budget(model_calls=10_000))
        self.runtime.budgets.put(ACCOUNT, limits or Budget(total_tokens=1_000_000))
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self.base_url = ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._stack.close()

    def start(self) -> Self:
        """Serve from a thread of this process."""
        served = self.provider
        if not isinstance(served, str):
            served = self._stack.enter_context(self.provider.serve())
        chosen = settings(served, **self._given)
        self._server = make_server(make_app(self.open_runtime, chosen), chosen)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        wait_until(lambda: self._server.started or not self._thread.is_alive())  # type: ignore[union-attr]
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}/v1"
        return self

    def stop(self) -> None:
        """Stop serving, as a signal to end does."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(30)
            assert not self._thread.is_alive(), "the gateway did not stop"
            self._server = None

    # Keys

    def key(self, account: str = ACCOUNT, **given: Any) -> str:
        """A new virtual key."""
        return self.made(account, **given)[0]

    def made(self, account: str = ACCOUNT, **given: Any) -> tuple[str, VirtualKey]:
        """A new virtual key, and what is recorded of it."""
        options: dict[str, Any] = {
            "name": "test",
            "models": ("*",),
            "endpoints": ("*",),
            "output_tokens": 100,
            "expires_in": None,
            "actor": "tests",
            **given,
        }
        key, add = new_virtual_key(NAMESPACE, self.runtime.digester, account=account, **options)
        return key, self.runtime.commit(add)

    def revoke(self, key: VirtualKey) -> None:
        """Revoke a virtual key."""
        self.runtime.commit(RevokeVirtualKey(NAMESPACE, key.id, "tests", "a test"))

    # Clients

    def openai(self, key: str | None = None, **options: Any) -> openai.OpenAI:
        """OpenAI's own client."""
        http = self._stack.enter_context(httpx2.Client(verify=False))
        given = {
            "api_key": key or self.key(),
            "base_url": self.base_url,
            "max_retries": 0,
            "http_client": http,
        }
        return openai.OpenAI(**{**given, **options})

    def anthropic(self, key: str | None = None, **options: Any) -> anthropic.Anthropic:
        """Anthropic's own client."""
        http = self._stack.enter_context(httpx2.Client(verify=False))
        base_url = self.base_url.removesuffix("/v1")
        given = {"api_key": key or self.key(), "base_url": base_url, "max_retries": 0, "http_client": http}
        return anthropic.Anthropic(**{**given, **options})

    def http(self, key: str | None = None) -> httpx2.Client:
        """A plain client."""
        headers = {"authorization": f"Bearer {key or self.key()}", "anthropic-version": "2023-06-01"}
        return httpx2.Client(verify=False, base_url=self.base_url, headers=headers, timeout=30)

    # The ledger

    @property
    def invocations(self) -> list[InvocationInfo]:
        """Every invocation, oldest first."""
        page = self.runtime.ledger.database.read(
            lambda connection: list_invocations(connection, NAMESPACE, Filter(limit=1000))
        )
        return list(reversed(page.items))

    @property
    def invocation(self) -> InvocationInfo:
        """The only invocation."""
        (only,) = self.invocations
        return only

    def ended(self) -> list[InvocationInfo]:
        """Every invocation, once none is STARTED any more: a client may hear the end before the ledger."""
        wait_until(lambda: all(one.state != "STARTED" for one in self.invocations))
        return self.invocations

    def settled(self) -> InvocationInfo:
        """The only invocation, once it has ended."""
        wait_until(lambda: bool(self.invocations))
        (only,) = self.ended()
        return only

    def account(self, path: str = ACCOUNT) -> AccountInfo:
        """An account with its balance."""
        return self.runtime.budgets.show(path)


def wait_until(done: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for something that is about to happen."""
    ends = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.01)
