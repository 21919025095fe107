"""The gateway as processes: killed, started again, stopped, and several on one ledger."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from memoflow import Budget
from memoflow.ledger.queries import Filter, InvocationInfo, list_invocations
from memoflow.ledger.unknowns import unknown_invocations
from memoflow.ledger.verify import verify
from memoflow.testing import ProviderProcess, forever, hold, text, usage
from tests.gateway._process import ACCOUNT, NAMESPACE, GatewayProcess
from tests.gateway._site import MODEL, wait_until

BODY: dict[str, Any] = {"model": MODEL, "input": "Hello?", "max_output_tokens": 50, "stream": True}
ONCE = {"idempotency-key": "once"}


@pytest.fixture(scope="module")
def provider() -> Iterator[ProviderProcess]:
    """A provider that outlives the gateway."""
    with ProviderProcess() as provider:
        yield provider


def invocations(gateway: GatewayProcess) -> list[InvocationInfo]:
    """Every invocation, oldest first."""
    page = gateway.read(lambda connection: list_invocations(connection, NAMESPACE, Filter(limit=1000)))
    return list(reversed(page.items))


def begin(gateway: GatewayProcess, **headers: str) -> Iterator[bytes]:
    """A streamed request as far as it comes."""
    sent = {"authorization": f"Bearer {gateway.key}", **headers}
    with (
        httpx2.Client(verify=False, base_url=gateway.base_url, timeout=30) as client,
        client.stream("POST", "/responses", json=BODY, headers=sent) as reply,
    ):
        yield from reply.iter_bytes()


def killed_mid_stream(gateway: GatewayProcess, provider: ProviderProcess, **headers: str) -> None:
    """Kill the gateway while a reply streams."""
    pieces = begin(gateway, **headers)
    assert b"response.created" in next(pieces)
    assert provider.wait_entered("held")
    gateway.kill()
    with pytest.raises(httpx2.HTTPError):
        list(pieces)


@pytest.mark.slow
def test_a_gateway_that_is_killed_leaves_nothing_untold(database_url: str, provider: ProviderProcess) -> None:
    """What was sent stays held; the next attempt under the key is paid for itself, and all adds up."""
    provider.reset([hold(text("A."), after=2, name="held"), text("Hello there.", usage=usage(10, 5))])
    with GatewayProcess(database_url, provider.base_url, lease_seconds=1) as gateway:
        killed_mid_stream(gateway, provider, **ONCE)
        (lost,) = invocations(gateway)
        assert (lost.state, lost.reservation_state) == ("STARTED", "HELD")
        gateway.start()
        # The lease of the dead attempt has to run out, by the database's clock.
        wait_until(lambda: b"Hello there." in b"".join(begin(gateway, **ONCE)))
        wait_until(lambda: invocations(gateway)[-1].state == "SUCCEEDED")
        first, second = invocations(gateway)
        assert (first.state, first.reason) == ("OUTCOME_UNKNOWN", "ATTEMPT_LOST")
        assert (second.attempt, second.reservation_state) == (2, "SETTLED")
        account = gateway.runtime.budgets.show(ACCOUNT)
        assert account.unknown == first.reserved
        assert account.settled.total_tokens == 15
        assert b"Hello there." in b"".join(begin(gateway, **ONCE))
        assert len(invocations(gateway)) == 2
        assert gateway.stop()
        assert gateway.read(verify) == []


@pytest.mark.slow
def test_what_nobody_comes_back_to_waits_for_a_decision(sqlite_url: str, provider: ProviderProcess) -> None:
    """Without an idempotency key nobody asks again: once its lease is over it is in the queue of unknowns."""
    provider.reset([hold(text("A."), after=2, name="held")])
    with GatewayProcess(sqlite_url, provider.base_url, lease_seconds=1) as gateway:
        killed_mid_stream(gateway, provider)

        def waiting(connection: Any) -> int:
            clock = gateway.runtime.ledger.database.clock
            return len(unknown_invocations(connection, NAMESPACE, clock(connection)))

        wait_until(lambda: gateway.read(waiting) == 1)
        assert gateway.read(verify) == []


@pytest.mark.slow
@pytest.mark.postgres
def test_several_processes_share_a_ledger(postgres_url: str, provider: ProviderProcess) -> None:
    """One budget holds for all of them, and they all end when they are asked to."""
    provider.reset([forever(text("A.", usage=usage(5, 5)))])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with GatewayProcess(postgres_url, provider.base_url, workers=2, port=port) as gateway:
        gateway.runtime.budgets.put(ACCOUNT, Budget(model_calls=20))
        headers = {"authorization": f"Bearer {gateway.key}"}
        with httpx2.Client(verify=False, timeout=5) as client:
            # Each process is an interpreter of its own, and imports everything.
            wait_until(lambda: _answers(client, gateway.base_url), 60)

        def ask(number: int) -> int:
            with httpx2.Client(
                verify=False, base_url=gateway.base_url, timeout=30, headers=headers
            ) as client:
                return client.post("/responses", json={**BODY, "stream": False}).status_code

        with ThreadPoolExecutor(8) as pool:
            codes = list(pool.map(ask, range(40)))
        assert codes.count(200) == 20
        assert set(codes) <= {200, 402, 429}
        assert gateway.stop()
        assert gateway.runtime.budgets.show(ACCOUNT).settled.model_calls == 20
        assert gateway.read(verify) == []


def _answers(client: httpx2.Client, base_url: str) -> bool:
    try:
        return client.get(f"{base_url.removesuffix('/v1')}/readyz").status_code == 200
    except httpx2.HTTPError:
        return False
