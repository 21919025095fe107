"""What a request costs in durable commits."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text as sql

from memoflow.testing import SimulatedProvider, text
from tests.gateway._site import MODEL, Site, wait_until
from tests.gateway.conftest import MakeSite

BODY: dict[str, Any] = {"model": MODEL, "input": "Hello?", "max_output_tokens": 50}
CHAT: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 50,
    "messages": [{"role": "user", "content": "Hello?"}],
}


def batches(site: Site) -> int:
    """Commits of all writers."""

    def count(connection: Any) -> int:
        return int(connection.scalar(sql("SELECT coalesce(sum(batches), 0) FROM writers")))

    return site.runtime.ledger.database.read(count)


@pytest.mark.parametrize("headers", [{}, {"idempotency-key": "once"}], ids=["plain", "named"])
def test_a_request_costs_two_commits(make_site: MakeSite, headers: dict[str, str]) -> None:
    """One before it is sent, with the claim; one after it, with the completion. Also under a key."""
    site = make_site(SimulatedProvider(default=text("A.")))
    key = site.key()
    with site.http(key) as client:
        before = batches(site)
        assert client.post("/responses", json=BODY, headers=headers).status_code == 200
        assert batches(site) == before + 2


def test_a_refused_request_costs_one_that_changes_nothing(make_site: MakeSite) -> None:
    """A refusal leaves no activity behind that would have to be ended."""
    site = make_site(SimulatedProvider())
    key = site.key()
    with site.http(key) as client:
        before = batches(site)
        assert client.post("/responses", json={**BODY, "max_output_tokens": 2_000_000}).status_code == 402
        assert batches(site) == before + 1


def test_the_providers_id_of_a_stream_is_kept_while_it_streams(make_site: MakeSite) -> None:
    """A stream costs one commit more, for the id of the reply; nobody waits for it."""
    site = make_site(SimulatedProvider(default=text("A.")))
    key = site.key()
    with site.http(key) as client:
        before = batches(site)
        client.post("/chat/completions", json={**CHAT, "stream": True})
        wait_until(lambda: site.invocation.state == "SUCCEEDED")
        assert before + 2 <= batches(site) <= before + 3
