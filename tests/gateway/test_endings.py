"""How requests end when something breaks, or somebody leaves."""

from __future__ import annotations

import threading
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from memoflow.testing import (
    SimulatedProvider,
    closed_before_reply,
    error_event,
    failed,
    hold,
    html_200,
    huge,
    incomplete,
    missing_usage,
    refused_url,
    reset_before_reply,
    reset_mid_body,
    status,
    stream_ends_early,
    text,
    truncated_body,
    usage,
)
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


def state(site: Site) -> tuple[str, str, str | None]:
    """State and reason of the only invocation and of its reservation."""
    found = site.settled()
    return found.state, found.reservation_state, found.reason


WHOLE: dict[str, tuple[Any, int, tuple[str, str, str | None]]] = {
    "reset": (reset_before_reply(), 502, ("OUTCOME_UNKNOWN", "RECONCILE", "CONNECTION_RESET")),
    "closed": (closed_before_reply(), 502, ("OUTCOME_UNKNOWN", "RECONCILE", "CONNECTION_CLOSED")),
    "truncated": (truncated_body(), 502, ("OUTCOME_UNKNOWN", "RECONCILE", "CONNECTION_CLOSED")),
    "500": (status(500), 500, ("OUTCOME_UNKNOWN", "RECONCILE", "HTTP_500")),
    "400": (status(400), 400, ("FAILED", "SETTLED", "PROVIDER_REJECTED")),
    "html": (html_200(), 200, ("OUTCOME_UNKNOWN", "RECONCILE", "NOT_JSON")),
    "no usage": (missing_usage(text("A.")), 200, ("SUCCEEDED", "RECONCILE", "USAGE_MISSING")),
    "cut at its length": (incomplete(), 200, ("SUCCEEDED", "SETTLED", None)),
    "failed": (failed(), 200, ("FAILED", "SETTLED", None)),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_how_a_whole_reply_ends(make_site: MakeSite, kind: str) -> None:
    """The outcome table holds: what the client sees, what is recorded, and what stays held."""
    entry, code, ending = WHOLE[kind]
    site = make_site(SimulatedProvider([entry]))
    with site.http() as client:
        reply = client.post("/responses", json=BODY)
    assert reply.status_code == code
    assert state(site) == ending
    # What nobody knows the end of is not asked for again by an SDK of its own accord.
    if ending[0] == "OUTCOME_UNKNOWN":
        assert reply.headers["x-should-retry"] == "false"


def test_a_provider_that_cannot_be_reached_costs_nothing(make_site: MakeSite) -> None:
    """Nothing was sent: the hold is released, and an SDK may try again."""
    with refused_url() as nowhere:
        site = make_site(nowhere)
        with site.http() as client:
            reply = client.post("/responses", json=BODY)
    assert reply.status_code == 502
    assert reply.headers["x-should-retry"] == "true"
    assert state(site) == ("FAILED", "RELEASED", "PROVIDER_CALL_NOT_STARTED")


def ask_sdk(site: Site, api: str) -> None:
    """Read a stream to its end with the official SDK."""
    body = APIS[api][1]
    if api == "messages":
        list(site.anthropic().messages.create(**body, stream=True))
    elif api == "chat":
        list(site.openai().chat.completions.create(**body, stream=True))
    else:
        with site.openai().responses.stream(**body) as events:
            events.get_final_response()


@pytest.mark.parametrize("api", APIS)
def test_a_stream_that_breaks_is_no_reply_for_the_sdk(make_site: MakeSite, api: str) -> None:
    """The program gets an exception, and the whole hold stays."""
    site = make_site(SimulatedProvider([reset_mid_body(text("A long text."), after=3)]))
    with pytest.raises((openai.APIError, anthropic.APIError, httpx2.HTTPError, RuntimeError)):
        ask_sdk(site, api)
    assert state(site)[:2] == ("OUTCOME_UNKNOWN", "RECONCILE")
    assert site.account().settled.total_tokens == 0


@pytest.mark.parametrize("api", APIS)
def test_a_stream_that_ends_early_ends_in_an_error(make_site: MakeSite, api: str) -> None:
    """A stream without its end is not passed off as one: an error event of the API follows what had come."""
    site = make_site(SimulatedProvider([stream_ends_early(text("A long text."), after=2)]))
    path, body = APIS[api]
    with site.http() as client:
        reply = client.post(path, json={**body, "stream": True})
    assert state(site) == ("OUTCOME_UNKNOWN", "RECONCILE", "NO_TERMINAL_EVENT")
    assert site.invocation.id in reply.text
    assert "outcome_unknown" in reply.text


@pytest.mark.parametrize("api", APIS)
def test_the_providers_own_error_event_is_told_once(make_site: MakeSite, api: str) -> None:
    """An error event of the provider passes as it is, and nothing is added to it."""
    site = make_site(SimulatedProvider([error_event(text("A."), after=2)]))
    path, body = APIS[api]
    with site.http() as client:
        reply = client.post(path, json={**body, "stream": True})
    assert state(site)[:2] == ("OUTCOME_UNKNOWN", "RECONCILE")
    assert "memoflow" not in reply.text


def test_an_error_instead_of_a_stream_passes_as_it_is(make_site: MakeSite) -> None:
    """A JSON error where events were asked for keeps its status and body."""
    site = make_site(SimulatedProvider([status(400, code="invalid_prompt")]))
    with site.http() as client:
        reply = client.post("/responses", json={**BODY, "stream": True})
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "invalid_prompt"
    assert state(site) == ("FAILED", "SETTLED", "PROVIDER_REJECTED")


def leave(site: Site, held: Any, body: dict[str, Any]) -> None:
    """Ask, and go away while the reply is held."""
    with site.http() as client:
        try:
            with client.stream(
                "POST", "/responses", json=body, timeout=httpx2.Timeout(30, read=0.3)
            ) as reply:
                for _ in reply.iter_bytes():
                    pass
        except httpx2.ReadTimeout:
            pass


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
class TestClientLeaves:
    """A client that goes away while the provider is at work."""

    def test_the_reply_is_drained_so_that_its_usage_is_known(self, make_site: MakeSite, stream: bool) -> None:
        """With `drain` the provider is heard to the end, and exactly its usage is charged."""
        held = hold(text("A.", usage=usage(10, 5)), after=2 if stream else None)
        site = make_site(SimulatedProvider([held]))
        leave(site, held, {**BODY, "stream": stream})
        assert held.wait_entered()
        assert site.invocation.state == "STARTED"
        held.release()
        assert state(site) == ("SUCCEEDED", "SETTLED", None)
        assert site.account().settled.total_tokens == 15

    def test_the_request_is_cancelled(self, make_site: MakeSite, stream: bool) -> None:
        """With `cancel` the provider is left at once, and the outcome is unknown."""
        held = hold(text("A."), after=2 if stream else None)
        site = make_site(SimulatedProvider([held]), on_disconnect="cancel")
        leave(site, held, {**BODY, "stream": stream})
        assert held.wait_abandoned()
        assert state(site) == ("OUTCOME_UNKNOWN", "RECONCILE", "CANCELLED")

    def test_draining_has_an_end(self, make_site: MakeSite, stream: bool) -> None:
        """A provider that never ends is left after the time that was allowed for draining."""
        held = hold(text("A."), after=2 if stream else None)
        site = make_site(SimulatedProvider([held]), drain_seconds=0.2)
        leave(site, held, {**BODY, "stream": stream})
        assert held.wait_abandoned()
        assert state(site) == ("OUTCOME_UNKNOWN", "RECONCILE", "CANCELLED")

    def test_a_drained_reply_is_there_for_the_next_try(self, make_site: MakeSite, stream: bool) -> None:
        """Under an idempotency key, what was drained is given to the client when it comes back."""
        held = hold(text("Hello there."), after=2 if stream else None)
        site = make_site(SimulatedProvider([held]))
        key = site.key()
        headers = {"idempotency-key": "once"}
        with site.http(key) as client:
            try:
                with client.stream(
                    "POST",
                    "/responses",
                    json={**BODY, "stream": stream},
                    headers=headers,
                    timeout=httpx2.Timeout(30, read=0.3),
                ) as reply:
                    list(reply.iter_bytes())
            except httpx2.ReadTimeout:
                pass
        held.release()
        assert state(site)[0] == "SUCCEEDED"
        with site.http(key) as client:
            again = client.post("/responses", json={**BODY, "stream": stream}, headers=headers)
        assert again.headers["memoflow-restored"] == "true"
        assert "Hello there." in again.text


def test_a_provider_that_is_silent_for_too_long_is_left(make_site: MakeSite) -> None:
    """The wait between two pieces of a reply has a limit, and so has the whole request."""
    held = hold(text("A."), after=2)
    site = make_site(SimulatedProvider([held]), idle_timeout=0.2)
    with site.http() as client:
        reply = client.post("/responses", json={**BODY, "stream": True})
    assert state(site) == ("OUTCOME_UNKNOWN", "RECONCILE", "IDLE_TIMEOUT")
    assert "outcome_unknown" in reply.text


def test_stopping_waits_for_what_is_open(make_site: MakeSite) -> None:
    """A stopping gateway gives the replies that come in time, and takes nothing new."""
    held = hold(text("Hello there."))
    site = make_site(SimulatedProvider([held]))
    replies: list[httpx2.Response] = []
    with site.http() as client:
        thread = threading.Thread(target=lambda: replies.append(client.post("/responses", json=BODY)))
        thread.start()
        assert held.wait_entered()
        stopping = threading.Thread(target=site.stop)
        stopping.start()
        held.release()
        thread.join()
        stopping.join()
    assert "Hello there." in replies[0].text
    assert state(site) == ("SUCCEEDED", "SETTLED", None)


def test_stopping_ends_what_does_not_end_and_records_it(make_site: MakeSite) -> None:
    """What is still open when the time is over is unknown, and no row stays STARTED."""
    held = hold(text("A."))
    site = make_site(SimulatedProvider([held]), shutdown_seconds=0.2)
    with site.http() as client:
        thread = threading.Thread(target=lambda: _ignore(lambda: client.post("/responses", json=BODY)))
        thread.start()
        assert held.wait_entered()
        site.stop()
        thread.join()
    assert state(site)[:2] == ("OUTCOME_UNKNOWN", "RECONCILE")


def _ignore(ask: Any) -> None:
    try:
        ask()
    except httpx2.HTTPError:
        return


def test_a_client_that_does_not_read_is_left(make_site: MakeSite) -> None:
    """Nothing piles up for a client that takes nothing: it counts as gone, and the reply is drained."""
    long = huge(20_000_000, text("A.", usage=usage(10, 5)))
    site = make_site(SimulatedProvider([long]), send_timeout=0.3)
    with site.http() as client, client.stream("POST", "/responses", json={**BODY, "stream": True}):
        wait_until(lambda: site.invocation.state == "SUCCEEDED")
    assert state(site) == ("SUCCEEDED", "SETTLED", None)
