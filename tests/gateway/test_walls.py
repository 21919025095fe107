"""What does not get through: other paths, other hosts, bodies and heads that are no requests."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from memoflow.testing import SimulatedProvider, hold, text
from tests.gateway._raw import exchange, replies
from tests.gateway._site import MODEL, Site
from tests.gateway.conftest import MakeSite

BODY: dict[str, Any] = {"model": MODEL, "input": "Hello?", "max_output_tokens": 50}


def head(site: Site, method: str, target: str, *lines: str) -> bytes:
    """The head of a request with a good key."""
    all_lines = (f"{method} {target} HTTP/1.1", "Host: x", f"Authorization: Bearer {site.key()}", *lines)
    return "\r\n".join((*all_lines, "", "")).encode("latin-1")


def status(got: bytes) -> int:
    """The status of a raw reply; 0 if there is none."""
    return int(got.split()[1]) if got.startswith(b"HTTP/1.1 ") else 0


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/",
        "/responses",
        "/v1/responses/",
        "/v1//responses",
        "//v1/responses",
        "/v1/./responses",
        "/v1/x/../responses",
        "/v1/%72esponses",
        "/v1/responses%2F..%2Ffiles",
        "/v1/responses/../files",
        "/v1/responses/resp_1/../../files",
        "/v1/responses/resp_1%2Fcancel",
        "/v1/files",
        "/v1/organization/usage",
        "/v1/responses/resp_1/other",
        "/v1/messages/batches",
        "/v1/models/..",
        "/v1/responses;x=1",
        "/V1/responses",
    ],
)
def test_other_paths_are_not_forwarded(make_site: MakeSite, path: str) -> None:
    """Only the gateway's own paths, in one plain form, lead anywhere: all others are 404 or 405 in shape."""
    site = make_site(SimulatedProvider())
    for method in ("POST", "GET"):
        got = exchange(
            site.base_url, head(site, method, path, "Content-Length: 2", "Connection: close") + b"{}"
        )
        assert status(got) in (404, 405), got[:200]
        assert "message" in json.loads(got.partition(b"\r\n\r\n")[2])["error"]
    assert site.provider.requests == []


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE"])
def test_other_methods_are_not_forwarded(make_site: MakeSite, method: str) -> None:
    """405 for a path that is asked in another way."""
    site = make_site(SimulatedProvider())
    got = exchange(site.base_url, head(site, method, "/v1/responses", "Connection: close"))
    assert status(got) in (400, 405)
    assert site.provider.requests == []


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "http://example.invalid/v1/models"),
        ("POST", "http://example.invalid/v1/responses"),
        ("CONNECT", "example.invalid:443"),
        ("GET", "//example.invalid/v1/models"),
        ("GET", "https://user:pass@example.invalid/"),
        ("GET", "@example.invalid/v1/models"),
        ("GET", "/v1/models@example.invalid"),
    ],
)
def test_nobody_chooses_where_requests_go(make_site: MakeSite, method: str, target: str) -> None:
    """An absolute address in a request is never followed; what is sent goes to the provider that is set."""
    site = make_site(SimulatedProvider())
    sent = head(site, method, target, "Content-Length: 2", "Connection: close") + b"{}"
    assert status(exchange(site.base_url, sent)) >= 400
    # Not one request has left; the network guard of the tests would have failed one to another host.
    assert [request.path for request in site.provider.requests if request.path != "/v1/models"] == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"model":"m","model":"n","input":"x"}',
        b'{"model":"m","input":NaN}',
        b'{"model":"m","input":1e999}',
        b'{"model":"m","input":"\xff"}',
        b'\xef\xbb\xbf{"model":"m","input":"x"}',
        b'{"model":"m","input":"\\ud800"}',
        b'{"model":"m","input":' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"model":"m","input":"x","stream":"yes"}',
        b'{"input":"x"}',
        b'{"model":"m","input":5}',
        b'{"model":"m","input":"x","max_output_tokens":-1}',
        b'{"model":"m","input":"x","background":true}',
    ],
    ids=range(16),
)
def test_what_is_no_request_is_400(make_site: MakeSite, body: bytes) -> None:
    """JSON that two parsers could read differently, and what cannot be right, is refused unsent."""
    site = make_site(SimulatedProvider())
    with site.http() as client:
        refused = client.post("/responses", content=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "invalid_request"
    assert site.provider.requests == []
    assert site.invocations == []


def test_a_body_that_is_too_large_is_413(make_site: MakeSite) -> None:
    """By its length where it says one, and by what comes where it does not."""
    site = make_site(SimulatedProvider(), max_body_bytes=10_000)
    big = json.dumps({**BODY, "input": "x" * 20_000}).encode()

    def pieces() -> Any:
        yield big[:15_000]
        yield big[15_000:]

    with site.http() as client:
        assert client.post("/responses", content=big).status_code == 413
    with site.http() as client:
        assert client.post("/responses", content=pieces()).status_code == 413
    assert site.provider.requests == []


def test_an_encoded_body_is_415(make_site: MakeSite) -> None:
    """What would have to be unpacked is not read."""
    site = make_site(SimulatedProvider())
    with site.http() as client:
        refused = client.post("/responses", content=b"\x1f\x8b", headers={"content-encoding": "gzip"})
    assert refused.status_code == 415


def test_a_slow_head_ends_its_connection(make_site: MakeSite) -> None:
    """Who does not finish the head of a request is not waited for."""
    site = make_site(SimulatedProvider(), read_timeout=0.3)
    address = urlsplit(site.base_url)
    with socket.create_connection((str(address.hostname), address.port or 80), timeout=10) as connection:
        connection.sendall(b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nX-A: ")
        with suppress(ConnectionResetError):
            assert connection.recv(100) == b""


def test_a_slow_body_is_408(make_site: MakeSite) -> None:
    """Who does not finish the body of a request is told so."""
    site = make_site(SimulatedProvider(), read_timeout=0.3)
    address = urlsplit(site.base_url)
    with socket.create_connection((str(address.hostname), address.port or 80), timeout=10) as connection:
        connection.sendall(head(site, "POST", "/v1/responses", "Content-Length: 100") + b"{")
        assert status(connection.recv(10_000)) == 408


def test_a_head_that_is_too_large_is_refused(make_site: MakeSite) -> None:
    """The head of a request has a limit, in one header or in many."""
    site = make_site(SimulatedProvider(), max_head_bytes=4_096)
    for lines in (["X-A: " + "y" * 8_000], [f"X-{n}: y" for n in range(1_000)]):
        got = exchange(site.base_url, head(site, "GET", "/v1/models", *lines))
        assert status(got) in (0, 400)
    assert site.provider.requests == []


def test_requests_that_are_sent_at_once_are_answered_in_turn(make_site: MakeSite) -> None:
    """HTTP/1.1 pipelining: each reply belongs to its request, and none is mixed with another."""
    site = make_site(SimulatedProvider())
    one = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    found = replies(exchange(site.base_url, one + one + last), 3)
    assert [code for code, _ in found] == [200, 200, 404]


def test_two_lengths_are_no_request(make_site: MakeSite) -> None:
    """A body whose length could be read in two ways is refused: nothing can be smuggled in behind it."""
    site = make_site(SimulatedProvider())
    smuggled = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    for lines in (
        ("Content-Length: 0", "Transfer-Encoding: chunked"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Transfer-Encoding: chunked, identity",),
    ):
        got = exchange(site.base_url, head(site, "POST", "/v1/responses", *lines) + b"0\r\n\r\n" + smuggled)
        assert status(got) == 400
    assert site.provider.requests == []


def test_client_headers_do_not_choose_the_account(make_site: MakeSite) -> None:
    """What names keys, accounts, hosts or hops stays here; what changes what a request means goes on."""
    site = make_site(SimulatedProvider([text("A.")]))
    sent = {
        "openai-organization": "org-evil",
        "openai-project": "proj-evil",
        "cookie": "a=b",
        "x-forwarded-for": "10.0.0.1",
        "connection": "x-secret, keep-alive",
        "x-secret": "hop",
        "idempotency-key": "once",
        "memoflow-input-tokens": "5",
        "openai-beta": "assistants=v2",
        "x-custom": "kept",
    }
    with site.http() as client:
        assert client.post("/responses", json=BODY, headers=sent).status_code == 200
    got = site.provider.requests[0].headers
    assert got["openai-beta"] == "assistants=v2"
    assert got["x-custom"] == "kept"
    assert got["accept-encoding"] == "identity"
    gone = {"openai-organization", "openai-project", "cookie", "x-forwarded-for", "x-secret"}
    assert not gone & got.keys()
    assert not {"idempotency-key", "memoflow-input-tokens"} & got.keys()


def test_no_more_requests_than_are_allowed_at_a_time(make_site: MakeSite) -> None:
    """Above the limit of the process a request is 503 at once, and an SDK may try it again."""
    held = hold(text("A."))
    site = make_site(SimulatedProvider([held]), max_requests=1)
    with site.http() as one, site.http() as two:
        thread = threading.Thread(target=lambda: one.post("/responses", json=BODY))
        thread.start()
        assert held.wait_entered()
        busy = two.post("/responses", json=BODY)
        held.release()
        thread.join()
    assert busy.status_code == 503
    assert busy.headers["x-should-retry"] == "true"


def test_health_and_readiness(make_site: MakeSite) -> None:
    """Both are open to anybody and tell nothing secret; readiness looks at the ledger."""
    site = make_site(SimulatedProvider())
    with httpx2.Client(verify=False, base_url=site.base_url.removesuffix("/v1")) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        ready = client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json() == {"status": "ready", "providers": ["anthropic", "openai"], "troubles": []}
