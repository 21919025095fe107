"""Virtual keys: what they open, and what they do not."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from memoflow import Budget, InvalidRequest
from memoflow.canonical import Digester
from memoflow.gateway import new_virtual_key
from memoflow.ledger import schema as s
from memoflow.testing import ManualClock, SimulatedProvider, text
from tests.gateway._site import MODEL, Site
from tests.gateway.conftest import MakeSite

BODY: dict[str, Any] = {"model": MODEL, "input": "Hello?", "max_output_tokens": 50}
CLAUDE: dict[str, Any] = {
    "model": "claude-sonnet-5",
    "max_tokens": 50,
    "messages": [{"role": "user", "content": "Hello?"}],
}


def code(site: Site, key: str, path: str = "/responses", body: dict[str, Any] | None = None) -> int:
    """The status of a request with a key."""
    with site.http(key) as client:
        return client.post(path, json=body or BODY).status_code


def test_a_key_is_256_random_bits_and_only_its_digest_is_kept(make_site: MakeSite) -> None:
    """No column of any table has the key; its last characters tell it from others."""
    site = make_site(SimulatedProvider())
    key, made = site.made()
    assert re.fullmatch(r"mfk_[A-Za-z0-9_-]{43}", key)
    assert made.hint == key[-4:]
    assert key not in repr(made)

    def rows(connection: Any) -> str:
        return repr([connection.execute(select(table)).all() for table in s.metadata.sorted_tables])

    kept = site.runtime.ledger.database.read(rows)
    assert key not in kept
    assert site.runtime.digester.bytes(key.encode()) in kept
    assert site.key() != site.key()


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
def test_a_key_is_taken_from_either_header(make_site: MakeSite, header: str) -> None:
    """Each SDK sends its key in the header of its own."""
    site = make_site(SimulatedProvider([text("A.")]))
    value = f"Bearer {site.key()}" if header == "authorization" else site.key()
    with httpx2.Client(verify=False, base_url=site.base_url) as client:
        assert client.post("/responses", json=BODY, headers={header: value}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer sk-somebody"},
        {"authorization": "Basic bWZrXw=="},
        {"x-api-key": "mfk_" + "A" * 43},
        {"x-api-key": "mfk_" + "A" * 42},
    ],
    ids=["none", "empty", "another", "basic", "unknown", "short"],
)
def test_without_a_known_key_nothing_is_served(make_site: MakeSite, headers: dict[str, str]) -> None:
    """401 in the shape of the API, whatever path is asked; nothing is sent on."""
    site = make_site(SimulatedProvider())
    with httpx2.Client(verify=False, base_url=site.base_url) as client:
        for path, body in (("/responses", BODY), ("/messages", CLAUDE)):
            refused = client.post(path, json=body, headers=headers)
            assert refused.status_code == 401
            assert ("type" in refused.json()) == (path == "/messages")
        assert client.get("/models", headers=headers).status_code == 401
    assert site.provider.requests == []


def test_a_revoked_key_opens_nothing_from_then_on(make_site: MakeSite) -> None:
    """The next request is refused, in every process, because the reserving transaction asks."""
    site = make_site(SimulatedProvider(default=text("A.")))
    key, made = site.made()
    assert code(site, key) == 200
    site.revoke(made)
    assert code(site, key) == 401
    with site.http(key) as client:
        assert client.get("/models").status_code == 401
    site.revoke(made)
    assert len(site.provider.requests) == 1


def test_a_key_expires_by_the_ledgers_clock(make_site: MakeSite) -> None:
    """An expired key is refused; time is the database's."""
    site = make_site(SimulatedProvider(default=text("A.")))
    clock = ManualClock()
    key, made = site.made(expires_in=timedelta(seconds=30))
    assert made.expires_at is not None
    assert code(site, key) == 200
    clock.advance(31)
    site.stop()
    site.open_runtime.keywords["clock"] = clock
    site.start()
    assert code(site, key) == 401


def test_a_key_is_for_its_models(make_site: MakeSite) -> None:
    """A name, or a beginning with a star; other models are 403 before anything is sent, and none is 400."""
    site = make_site(SimulatedProvider(default=text("A.")))
    key = site.key(models=("gpt-5-mini", "claude-*"))
    assert code(site, key) == 200
    assert code(site, key, "/messages", CLAUDE) == 200
    assert code(site, key, body={**BODY, "model": "gpt-5"}) == 403
    assert code(site, key, body={**BODY, "model": "gpt-5-mini-2"}) == 403
    assert code(site, key, body={**BODY, "model": 5}) == 400
    assert len(site.provider.requests) == 2


def test_a_key_is_for_its_endpoints(make_site: MakeSite) -> None:
    """Another endpoint is 403."""
    site = make_site(SimulatedProvider(default=text("A.")))
    key = site.key(endpoints=("messages", "models"))
    assert code(site, key, "/messages", CLAUDE) == 200
    assert code(site, key) == 403
    assert code(site, key, "/messages/count_tokens", CLAUDE) == 403
    with site.http(key) as client:
        assert client.get("/responses/resp_1").status_code == 403


def test_each_key_is_charged_to_its_own_account(make_site: MakeSite) -> None:
    """Two keys, two accounts: neither uses what is the other's."""
    site = make_site(SimulatedProvider(default=text("A.")))
    site.runtime.budgets.put("other", Budget(model_calls=1))
    one, two = site.key(), site.key("other")
    assert [code(site, one), code(site, two), code(site, two), code(site, one)] == [200, 200, 402, 200]
    assert site.account().settled.model_calls == 2
    assert site.account("other").settled.model_calls == 1


def test_a_key_has_an_output_of_its_own(make_site: MakeSite) -> None:
    """The cap for requests that name none is the key's, else the gateway's."""
    site = make_site(SimulatedProvider(default=text("A.")), output_tokens=300)
    body = {"model": MODEL, "input": "Hello?"}
    assert code(site, site.key(output_tokens=77), body=body) == 200
    assert code(site, site.key(output_tokens=None), body=body) == 200
    assert [r.json["max_output_tokens"] for r in site.provider.requests] == [77, 300]


@pytest.mark.parametrize(
    "wrong",
    [
        {"models": ()},
        {"models": ("a*b",)},
        {"endpoints": ("audio",)},
        {"output_tokens": 0},
        {"expires_in": timedelta(0)},
        {"name": ""},
    ],
    ids=["no models", "star", "endpoint", "output", "expired", "name"],
)
def test_a_key_for_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    """What a key is for is checked when it is made."""
    given: dict[str, Any] = {
        "name": "k",
        "account": "a",
        "models": ("*",),
        "endpoints": ("*",),
        "output_tokens": None,
        "expires_in": None,
        "actor": "tests",
    }
    with pytest.raises(InvalidRequest):
        new_virtual_key("tests", Digester(), **{**given, **wrong})


def test_a_provider_without_a_key_is_not_served(make_site: MakeSite) -> None:
    """404 in its shape; the other provider is served."""
    site = make_site(SimulatedProvider(default=text("A.")), anthropic_key=None)
    key = site.key()
    assert code(site, key) == 200
    assert code(site, key, "/messages", CLAUDE) == 404
