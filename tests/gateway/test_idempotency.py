"""Idempotency keys: the same request is answered once more from the record, another one is refused."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from memoflow.ledger.outputs import purge_expired
from memoflow.testing import SimulatedProvider, hold, reset_before_reply, status, text, usage
from tests.gateway._site import MODEL, Site, wait_until
from tests.gateway.conftest import MakeSite

BODY: dict[str, Any] = {"model": MODEL, "input": "Hello?", "max_output_tokens": 50}
CHAT: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 50,
    "messages": [{"role": "user", "content": "Hello?"}],
}
CLAUDE: dict[str, Any] = {**CHAT, "model": "claude-sonnet-5"}
APIS = {
    "responses": ("/responses", BODY),
    "chat": ("/chat/completions", CHAT),
    "messages": ("/messages", CLAUDE),
}
ONCE = {"idempotency-key": "order-17"}


def spent(site: Site) -> Any:
    """What the account was charged."""
    account = site.account()
    return account.settled, account.held, account.unknown


@pytest.mark.parametrize("api", APIS)
def test_the_same_request_gets_the_same_bytes(make_site: MakeSite, api: str) -> None:
    """Under one key the provider is asked once; the second reply is the first, byte for byte, and says so."""
    site = make_site(SimulatedProvider([text("Hello there.", usage=usage(10, 5))]))
    path, body = APIS[api]
    with site.http() as client:
        first = client.post(path, json=body, headers=ONCE)
        before = spent(site)
        second = client.post(path, json=body, headers=ONCE)
    assert first.status_code == second.status_code == 200
    assert second.content == first.content
    assert "memoflow-restored" not in first.headers
    assert second.headers["memoflow-restored"] == "true"
    assert second.headers["memoflow-invocation-id"] == first.headers["memoflow-invocation-id"]
    assert spent(site) == before
    assert len(site.provider.requests) == 1


@pytest.mark.parametrize("api", APIS)
def test_a_streamed_reply_is_streamed_again(make_site: MakeSite, api: str) -> None:
    """The events of the restored stream make the same reply for the provider's own SDK."""
    site = make_site(SimulatedProvider([text("Hello there.", usage=usage(10, 5))]))
    key = site.key()

    def ask() -> str:
        if api == "messages":
            claude = site.anthropic(key).messages.stream(**CLAUDE, extra_headers=ONCE)
            with claude as events:
                return events.get_final_text()
        client = site.openai(key)
        if api == "chat":
            chunks = client.chat.completions.create(**CHAT, stream=True, extra_headers=ONCE)
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        with client.responses.stream(**BODY, extra_headers=ONCE) as stream:
            return stream.get_final_response().output_text

    assert [ask(), ask()] == ["Hello there."] * 2
    assert len(site.provider.requests) == 1
    assert site.settled().state == "SUCCEEDED"


def test_how_the_reply_comes_is_no_part_of_the_request(make_site: MakeSite) -> None:
    """What was answered whole is given as a stream to a client that now asks for one."""
    site = make_site(SimulatedProvider([text("Hello there.")]))
    with site.http() as client:
        client.post("/chat/completions", json=CHAT, headers=ONCE)
        streamed = client.post("/chat/completions", json={**CHAT, "stream": True}, headers=ONCE)
    assert streamed.headers["content-type"] == "text/event-stream"
    assert streamed.text.endswith("data: [DONE]\n\n")
    assert "Hello there." in streamed.text
    assert len(site.provider.requests) == 1


@pytest.mark.parametrize(
    "change",
    [{"input": "Other."}, {"model": "gpt-5"}, {"temperature": 0.5}],
    ids=["input", "model", "option"],
)
def test_another_request_under_the_key_is_refused(make_site: MakeSite, change: dict[str, Any]) -> None:
    """422 before anything is reserved, and without a try of the SDK's own."""
    site = make_site(SimulatedProvider([text("A.")]))
    with site.http() as client:
        client.post("/responses", json=BODY, headers=ONCE)
        refused = client.post("/responses", json={**BODY, **change}, headers=ONCE)
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "idempotency_key_reused"
    assert refused.headers["x-should-retry"] == "false"
    assert len(site.provider.requests) == 1


def test_the_same_key_at_another_endpoint_is_another_request(make_site: MakeSite) -> None:
    """An idempotency key names one request of a virtual key, wherever it is sent."""
    site = make_site(SimulatedProvider([text("A.")]))
    with site.http() as client:
        client.post("/responses", json=BODY, headers=ONCE)
        assert client.post("/chat/completions", json=CHAT, headers=ONCE).status_code == 422


def test_two_virtual_keys_share_no_idempotency_keys(make_site: MakeSite) -> None:
    """What one key was answered is never given to another, not even of the same account."""
    site = make_site(SimulatedProvider([text("For one."), text("For the other.")]))
    replies = []
    for _ in range(2):
        with site.http() as client:
            replies.append(client.post("/responses", json=BODY, headers=ONCE).text)
    assert "For one." in replies[0]
    assert "For the other." in replies[1]


def test_a_request_in_progress_is_409_until_it_has_ended(make_site: MakeSite) -> None:
    """The second is told to wait until the first one's lease ends, and restored when it has ended."""
    held = hold(text("A."))
    site = make_site(SimulatedProvider([held]))
    key = site.key()
    with site.http(key) as client, site.http(key) as other:
        thread = threading.Thread(target=lambda: client.post("/responses", json=BODY, headers=ONCE))
        thread.start()
        assert held.wait_entered()
        busy = other.post("/responses", json=BODY, headers=ONCE)
        held.release()
        thread.join()
        assert busy.status_code == 409
        assert busy.json()["error"]["code"] == "request_in_progress"
        assert "retry-after" in busy.headers
        again = other.post("/responses", json=BODY, headers=ONCE)
    assert again.headers["memoflow-restored"] == "true"
    assert len(site.provider.requests) == 1


def test_a_refused_request_may_be_sent_again(make_site: MakeSite) -> None:
    """After a definite refusal the key is free: the same request is a new attempt, and that is recorded."""
    site = make_site(SimulatedProvider([status(429), text("A.")]))
    with site.http() as client:
        assert client.post("/responses", json=BODY, headers=ONCE).status_code == 429
        assert client.post("/responses", json=BODY, headers=ONCE).status_code == 200
        again = client.post("/responses", json=BODY, headers=ONCE)
    assert again.headers["memoflow-restored"] == "true"
    assert [one.attempt for one in site.ended()] == [1, 2]
    assert [one.state for one in site.ended()] == ["FAILED", "SUCCEEDED"]


def test_an_unknown_outcome_stays_held_beside_the_next_attempt(make_site: MakeSite) -> None:
    """A retry under the key is a new request with a reservation of its own; the first stays unknown."""
    site = make_site(SimulatedProvider([reset_before_reply(), text("A.", usage=usage(10, 5))]))
    with site.http() as client:
        first = client.post("/responses", json=BODY, headers=ONCE)
        assert first.status_code == 502
        assert first.headers["x-should-retry"] == "false"
        assert client.post("/responses", json=BODY, headers=ONCE).status_code == 200
    assert [one.state for one in site.ended()] == ["OUTCOME_UNKNOWN", "SUCCEEDED"]
    account = site.account()
    assert account.unknown.model_calls == 1
    assert account.settled.total_tokens == 15


def test_an_unknown_outcome_may_block(make_site: MakeSite) -> None:
    """With on_unknown=block nothing is sent under the key until somebody has decided."""
    site = make_site(SimulatedProvider([reset_before_reply(), text("A.")]), on_unknown="block")
    with site.http() as client:
        client.post("/responses", json=BODY, headers=ONCE)
        blocked = client.post("/responses", json=BODY, headers=ONCE)
        assert blocked.status_code == 502
        assert blocked.json()["error"]["code"] == "outcome_unknown"
        assert len(site.provider.requests) == 1
        unknown = site.invocation.id
        site.runtime.reconcile.settle(unknown, actor="tests", reason="a test")
        assert client.post("/responses", json=BODY, headers=ONCE).status_code == 200


def test_a_purged_reply_is_gone_and_not_asked_for_again(make_site: MakeSite) -> None:
    """410, and the provider is not asked a second time."""
    site = make_site(SimulatedProvider([text("A.")]))
    with site.http() as client:
        client.post("/responses", json=BODY, headers=ONCE)
        with site.runtime.ledger.database.write() as connection:
            purge_expired(connection, "tests", 2**62)
        gone = client.post("/responses", json=BODY, headers=ONCE)
    assert gone.status_code == 410
    assert gone.json()["error"]["code"] == "result_not_retained"
    assert len(site.provider.requests) == 1


def test_a_revoked_key_is_given_nothing_recorded(make_site: MakeSite) -> None:
    """What a key was answered before is not shown to it after it was revoked."""
    site = make_site(SimulatedProvider([text("A.")]))
    key, made = site.made()
    with site.http(key) as client:
        client.post("/responses", json=BODY, headers=ONCE)
        site.revoke(made)
        assert client.post("/responses", json=BODY, headers=ONCE).status_code == 401


@pytest.mark.parametrize("value", ["", "x" * 256, "a\tb"], ids=["empty", "long", "control"])
def test_an_idempotency_key_must_be_a_name(make_site: MakeSite, value: str) -> None:
    """One that could not be found again is refused."""
    site = make_site(SimulatedProvider())
    with site.http() as client:
        refused = client.post("/responses", json=BODY, headers={"idempotency-key": value})
    assert refused.status_code == 400
    assert site.provider.requests == []


def test_a_key_is_taken_by_one_of_many_at_once(make_site: MakeSite) -> None:
    """Many clients with one key and one request: the provider is asked once."""
    site = make_site(SimulatedProvider(default=text("A.")))
    key = site.key()

    def ask(_: int) -> int:
        with site.http(key) as client:
            return client.post("/responses", json=BODY, headers=ONCE).status_code

    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(ask, range(8)))
    assert set(codes) <= {200, 409}
    assert 200 in codes
    wait_until(lambda: site.invocation.state == "SUCCEEDED")
    assert len(site.provider.requests) == 1
