"""What all requests of one process of the gateway share, and how that process begins and ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from memoflow.gateway.apis import GENERATING
from memoflow.gateway.keys import Keys
from memoflow.gateway.refusals import HttpRefusal
from memoflow.gateway.settings import GatewaySettings
from memoflow.gateway.upstream import PROVIDERS, Upstream, check_keys, make_upstreams
from memoflow.ledger.migrate import check
from memoflow.ledger.reply_owners import owns_reply
from memoflow.ledger.virtual_keys import VirtualKey
from memoflow.runtime import Runtime

if TYPE_CHECKING:
    from memoflow.gateway.watching import Watcher
    from memoflow.inspection import Policy

__all__ = ["Service", "check_settings"]

log = logging.getLogger("memoflow.gateway")


class Service:
    """The gateway without its wires.

    Args:
        runtime: the ledger; closed with the service.
        settings: how to serve.

    Raises:
        ConfigurationError: no upstream has a key, or one cannot be read.
    """

    def __init__(self, runtime: Runtime, settings: GatewaySettings) -> None:
        self.runtime = runtime
        self.settings = settings
        self.upstreams: dict[str, Upstream] = make_upstreams(settings)
        self.codecs = {api.name: api.codec(settings.max_reply_bytes) for api in GENERATING}
        self.prices = {provider: settings.price_book(provider) for provider in PROVIDERS}
        self.keys = Keys(runtime.ledger.database, runtime.namespace, runtime.digester)
        self.watcher = _watcher(settings, runtime)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False
        log.info("serving %s; inspection: %s", ", ".join(sorted(self.upstreams)), settings.inspection)

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """A place among the requests that are served at a time.

        Raises:
            HttpRefusal: there is none.
        """
        if self._stopping or len(self._tasks) >= self.settings.max_requests:
            raise HttpRefusal(
                503, "overloaded", "The gateway serves as many requests as it can. Try again.", retry=True
            )
        task = asyncio.current_task()
        assert task is not None, "a request is served by a task"
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    def upstream(self, provider: str) -> Upstream:
        """Where requests for a provider go.

        Raises:
            HttpRefusal: nowhere.
        """
        if provider not in self.upstreams:
            raise HttpRefusal(
                404,
                "provider_not_served",
                f"This gateway has no key for {provider}, so it does not serve its API.",
            )
        return self.upstreams[provider]

    async def owns_reply(self, key: VirtualKey, response_id: str) -> bool:
        """Whether a stored reply was made for the account of a key."""
        digest = self.runtime.digester.bytes(response_id.encode())
        query = partial(owns_reply, namespace=key.namespace, account=key.account, response_digest=digest)
        return await asyncio.to_thread(self.runtime.ledger.database.read, query)

    async def troubles(self) -> list[str]:
        """Why requests could not be served now; empty where they can."""
        try:
            state = await asyncio.to_thread(
                check, self.runtime.ledger.database.url.render_as_string(hide_password=False)
            )
        except Exception as error:
            return [f"the ledger cannot be reached ({type(error).__name__})"]
        if not state.current:
            return ["the ledger has another schema than this version needs"]
        return ["the process is stopping"] if self._stopping else []

    async def close(self) -> None:
        """Record how what is open ends, for which the server has waited; then close the ledger."""
        self._stopping = True
        open_requests = set(self._tasks)
        if open_requests:
            log.warning("%d requests are ended before their replies are there", len(open_requests))
            for task in open_requests:
                task.cancel()
            await asyncio.wait(open_requests)
        for upstream in self.upstreams.values():
            await upstream.close()
        await asyncio.to_thread(self.runtime.close)


def check_settings(settings: GatewaySettings) -> None:
    """Refuse what could not be used when it is needed.

    Raises:
        ConfigurationError: no upstream has a key, or a file or package that is named cannot be used.
    """
    check_keys(settings)
    if settings.inspection != "off":
        _policy(settings)
    for provider in PROVIDERS:
        settings.price_book(provider)


def _policy(settings: GatewaySettings) -> Policy:
    from memoflow.inspection.policy_file import SHIPPED, named_policy

    return named_policy(settings.inspection_policy or SHIPPED)


def _watcher(settings: GatewaySettings, runtime: Runtime) -> Watcher | None:
    """What looks at what passes; None where inspection is off, and then nothing of it is loaded."""
    if settings.inspection == "off":
        return None
    from memoflow.gateway.watching import Watcher
    from memoflow.inspection import Inspector, KnownValues
    from memoflow.inspection.detectors.known import MIN_BYTES

    keys = {f"{name} key": key for name in PROVIDERS if (key := settings.upstream_key(name)) is not None}
    inspector = Inspector(
        _policy(settings),
        mode=settings.inspection,
        on_ask=settings.on_ask,
        known=KnownValues({name: key for name, key in keys.items() if len(key) >= MIN_BYTES}),
        digester=runtime.digester,
    )
    return Watcher(inspector, runtime.digester)
