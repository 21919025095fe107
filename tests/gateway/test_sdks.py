"""The official SDKs through a gateway, unchanged but for their base URL and key."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from memoflow.budget import Amounts
from memoflow.testing import SimulatedProvider, call, calls, status, text, usage
from tests.gateway._site import ANTHROPIC_KEY, MODEL, OPENAI_KEY, Site
from tests.gateway.conftest import MakeSite

ASK = [{"role": "user", "content": "Hello?"}]


def responses(site: Site, stream: bool) -> str:
    """The text that the Responses API gives."""
    client = site.openai()
    if not stream:
        return client.responses.create(model=MODEL, input="Hello?").output_text
    with client.responses.stream(model=MODEL, input="Hello?") as events:
        return events.get_final_response().output_text


def chat(site: Site, stream: bool) -> str:
    """The text that Chat Completions give."""
    client = site.openai()
    ask: Any = {"model": MODEL, "messages": ASK}
    if not stream:
        return client.chat.completions.create(**ask).choices[0].message.content or ""
    # Programs rely on each chunk having a choice where they did not ask for the usage.
    chunks = client.chat.completions.create(**ask, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def messages(site: Site, stream: bool) -> str:
    """The text that the Messages API gives."""
    client = site.anthropic()
    ask: Any = {"model": "claude-sonnet-5", "max_tokens": 50, "messages": ASK}
    if not stream:
        block: Any = client.messages.create(**ask).content[0]
        return block.text
    with client.messages.stream(**ask) as events:
        return events.get_final_text()


APIS = {"responses": responses, "chat.completions": chat, "messages": messages}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("api", APIS)
def test_an_sdk_gets_its_reply_and_the_ledger_its_usage(make_site: MakeSite, api: str, stream: bool) -> None:
    """Every API, streamed or not: the SDK reads the reply, and exactly its usage is charged."""
    site = make_site(SimulatedProvider([text("Hello there.", usage=usage(10, 5))]))
    assert APIS[api](site, stream) == "Hello there."
    found = site.settled()
    assert (found.api, found.state, found.reservation_state) == (api, "SUCCEEDED", "SETTLED")
    account = site.account()
    assert account.settled == Amounts(15, 10, 5, 1, 0, 0, account.settled.wall_clock_ms)
    assert account.held == account.unknown == Amounts()


def test_embeddings_come_as_the_client_asks_for_them(make_site: MakeSite) -> None:
    """The client's own encoding goes on, whatever the adapter would have asked for."""
    site = make_site(SimulatedProvider())
    client = site.openai()
    floats = client.embeddings.create(model="text-embedding-3-small", input=["a"], encoding_format="float")
    assert isinstance(floats.data[0].embedding[0], float)
    sent = site.provider.requests[0].json
    assert sent["encoding_format"] == "float"
    found = site.settled()
    assert (found.state, found.output_cap) == ("SUCCEEDED", None)


def test_tools_are_the_clients_own(make_site: MakeSite) -> None:
    """Tool calls pass through to the program, and its results come back in a request of their own."""
    site = make_site(SimulatedProvider([calls(call("look", {"q": 1})), text("Done.")]))
    client = site.openai()
    tools: Any = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}]
    first: Any = client.responses.create(model=MODEL, input="Look.", tools=tools)
    asked = first.output[0]
    answer = {"type": "function_call_output", "call_id": asked.call_id, "output": "{}"}
    given: Any = [{"role": "user", "content": "Look."}, asked.model_dump(), answer]
    assert client.responses.create(model=MODEL, input=given, tools=tools).output_text == "Done."
    assert [one.state for one in site.ended()] == ["SUCCEEDED", "SUCCEEDED"]


@pytest.mark.parametrize("api", APIS)
def test_a_refusal_of_the_provider_reaches_the_sdk(make_site: MakeSite, api: str) -> None:
    """Status and body pass as they are; one model call is charged, no tokens."""
    site = make_site(SimulatedProvider([status(429, code="rate_limit_exceeded")]))
    with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)):
        APIS[api](site, False)
    found = site.settled()
    assert (found.state, found.reason, found.http_status) == ("FAILED", "PROVIDER_REJECTED", 429)
    assert site.account().settled.total_tokens == 0
    assert site.account().settled.model_calls == 1


def test_the_providers_own_keys_are_used(make_site: MakeSite) -> None:
    """The client's key never leaves the gateway, and the provider gets the gateway's."""
    site = make_site(SimulatedProvider([text("A."), text("B.")]))
    responses(site, False)
    messages(site, False)
    first, second = (request.headers for request in site.provider.requests)
    assert first["authorization"] == f"Bearer {OPENAI_KEY}"
    assert second["x-api-key"] == ANTHROPIC_KEY
    assert "authorization" not in second
    assert not any("mfk_" in value for value in (*first.values(), *second.values()))


def test_a_request_without_a_cap_is_sent_one(make_site: MakeSite) -> None:
    """The cap that was reserved is what the provider is told; all else stays as the client wrote it."""
    site = make_site(SimulatedProvider([text("A.")]))
    with site.http(site.key(output_tokens=64)) as client:
        sent = '{"model" : "gpt-5-mini","input":"caf\\u00e9", "temperature":1.0}'
        assert client.post("/responses", content=sent).status_code == 200
    got = site.provider.requests[0].body.decode()
    assert got == '{"max_output_tokens":64,' + sent[1:]
    assert site.settled().output_cap == 64


def test_a_request_with_a_cap_goes_on_byte_for_byte(make_site: MakeSite) -> None:
    """Where nothing must be added, the provider gets exactly the client's bytes."""
    site = make_site(SimulatedProvider([text("A.")]))
    with site.http() as client:
        sent = b'{ "max_output_tokens":20 ,"model":"gpt-5-mini", "input":"x\xc3\xa9" }'
        assert client.post("/responses", content=sent).status_code == 200
    assert site.provider.requests[0].body == sent


def test_a_stream_is_asked_for_its_usage(make_site: MakeSite) -> None:
    """A client that did not ask for the usage does not get it, and one that did does."""
    site = make_site(SimulatedProvider([text("A."), text("B.")]))
    client = site.openai()
    ask: Any = {"model": MODEL, "messages": ASK, "stream": True, "max_tokens": 20}
    assert all(chunk.choices for chunk in client.chat.completions.create(**ask))
    options: Any = {"include_usage": True}
    chunks = list(client.chat.completions.create(**ask, stream_options=options))
    assert chunks[-1].usage is not None
    assert all(r.json["stream_options"] == {"include_usage": True} for r in site.provider.requests)
    assert [one.reservation_state for one in site.ended()] == ["SETTLED", "SETTLED"]
