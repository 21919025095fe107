"""What goes over the wire is the caller's request, once, through a client that stays as it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import openai
import pytest

from memoflow import (
    Budget,
    ConfigurationError,
    MemoflowError,
    NoActivityContext,
    OutcomeUnknown,
    ProviderRejected,
)
from memoflow.openai import AsyncOpenAIResponses, OpenAIResponses
from memoflow.testing import (
    closed_before_reply,
    connect_refused,
    huge,
    raw,
    reset_before_reply,
    status,
    text,
    truncated_body,
)
from tests.turn._asks import run, stream
from tests.turn._worlds import MakeWorld

KINDS = {"whole": run, "streamed": stream}
REQUEST: dict[str, Any] = {
    "model": "gpt-test",
    "instructions": "Be brief. \u2713 \U0001f680",
    "input": [
        {"role": "user", "content": "a\u0000b"},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": 'tag <b> & \\ " end'}],
        },
    ],
    "temperature": 0.1,
    "top_p": 1.0,
    "top_logprobs": 0,
    "max_output_tokens": 64,
    "metadata": {"z": "1", "a": "2"},
    "parallel_tool_calls": False,
    "reasoning": {"effort": None, "summary": "auto"},
    "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object", "minimum": 1e-7}}},
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}],
    "tool_choice": "auto",
    "truncation": "disabled",
    "include": ["reasoning.encrypted_content"],
    "store": False,
    "user": None,
}


def through(handler: Callable[[httpx2.Request], httpx2.Response], **options: Any) -> Callable[[Any], Any]:
    """Makes clients whose requests a function answers."""

    def connect(kind: Any) -> Any:
        clients = {openai.OpenAI: httpx2.Client, openai.AsyncOpenAI: httpx2.AsyncClient}
        http = clients[kind](transport=httpx2.MockTransport(handler), follow_redirects=True)
        return kind(
            **{"api_key": "sk-test", "base_url": "http://api.invalid/v1", "http_client": http, **options}
        )

    return connect


# Requests


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_goes_out_as_it_was_given(world: MakeWorld, kind: str) -> None:
    """Values, types and order; a stream adds only that it is one."""
    w = world(text("{}"))
    assert w.ask(KINDS[kind](request=REQUEST)).error is None
    body = w.provider.requests[0].body
    expected = {**REQUEST, "stream": True} if kind == "streamed" else REQUEST
    assert json.loads(body) == expected
    assert set(json.loads(body)) == set(expected)
    assert b'"top_p":1.0' in body.replace(b" ", b"")
    assert REQUEST["user"] is None


@pytest.mark.parametrize("kind", KINDS)
def test_fields_nobody_here_knows_go_out_too(world: MakeWorld, kind: str) -> None:
    """A parameter that is newer than the SDK is the caller's to give."""
    seen: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(json.loads(request.content))
        return httpx2.Response(400, json={"error": {"code": "unknown_parameter"}})

    w = world(connect=through(answer))
    w.ask(KINDS[kind](request={"brand_new": {"a": [1, 2.5, None, True]}}))
    assert seen[0]["brand_new"] == {"a": [1, 2.5, None, True]}


@pytest.mark.parametrize("kind", KINDS)
def test_the_request_is_not_changed(world: MakeWorld, kind: str) -> None:
    """Neither the caller's mapping nor anything in it, also if it is changed while the call is made."""
    w = world(text("{}"))
    given = json.loads(json.dumps(REQUEST))
    del given["max_output_tokens"]
    before = json.dumps(given)
    w.ask(KINDS[kind](request=given))
    assert json.dumps(given) == before
    assert "max_output_tokens" in w.provider.requests[0].json


def test_no_idempotency_key_is_sent(world: MakeWorld) -> None:
    """No provider promises to honour one, so nothing may lean on it."""
    w = world(text("a"), text("b"))
    w.ask(run(), stream(replay_key="b"))
    for record in w.provider.requests:
        assert not [name for name in record.headers if "idempotency" in name]
        assert record.headers["x-stainless-retry-count"] == "0"


# Retries


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "fault",
    [
        *[status(code) for code in (400, 408, 409, 429, 500, 503, 529)],
        status(500, headers={"x-should-retry": "true"}),
        status(429, retry_after_ms=1),
        connect_refused(),
        reset_before_reply(),
        closed_before_reply(),
        truncated_body(),
    ],
)
def test_the_sdk_never_retries(world: MakeWorld, fault: Any, kind: str) -> None:
    """One call is one request, whatever a client with its default retries would have done."""
    w = world(fault)
    assert isinstance(w.ask(KINDS[kind]()).error, MemoflowError)
    assert len(w.provider.requests) == len(w.invocations()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_callers_client_stays_as_it_was(world: MakeWorld, kind: str) -> None:
    """Its retries and time limits are its own; its headers and parameters are used."""
    made: list[Any] = []
    w = world(text("Hello."))
    plain = w.client if not w.is_async else w.async_client

    def connect(_: Any) -> Any:
        client = plain().with_options(
            max_retries=5, timeout=7.0, default_headers={"x-team": "a"}, default_query={"v": "1"}
        )
        made.append((client, dict(vars(client))))
        return client

    w._connect = None
    client = connect(None)
    w._connect = lambda kind: client
    assert w.ask(KINDS[kind](timeout=60.0)).error is None
    assert (client.max_retries, client.timeout) == (5, 7.0)
    changed = {name for name, value in made[0][1].items() if vars(client)[name] is not value}
    # What any request lets the SDK remember of the machine.
    assert changed <= {"_platform"}
    record = w.provider.requests[0]
    assert (record.headers["x-team"], record.query) == ("a", {"v": "1"})


# Redirects


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [302, 307])
def test_a_redirect_is_not_followed(world: MakeWorld, status: int, kind: str) -> None:
    """One invocation is one request, and a prompt goes to nobody but the provider that was named."""
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(status, headers={"location": "http://elsewhere.invalid/v1/responses"})

    w = world(connect=through(answer))
    error = w.ask(KINDS[kind]()).raised(OutcomeUnknown)
    assert (error.reason, len(seen)) == (f"HTTP_{status}", 1)
    assert (w.invocation.state, w.invocation.reservation_state) == ("OUTCOME_UNKNOWN", "RECONCILE")
    assert w.balance()[2] == w.invocation.reserved


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_of_the_client_itself_is_unknown(world: MakeWorld, kind: str) -> None:
    """Nobody can tell what was sent before a hook or transport of the caller's broke."""

    def broken(request: httpx2.Request) -> httpx2.Response:
        raise ZeroDivisionError("the secret text")

    w = world(connect=through(broken))
    error = w.ask(KINDS[kind]()).raised(OutcomeUnknown)
    assert error.reason == "CLIENT_ERROR"
    assert "secret" not in str(error)
    assert w.invocation.error_type == "ZeroDivisionError"


# Size


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_over_the_limit_is_not_read(world: MakeWorld, kind: str) -> None:
    """Nothing is taken from it; its outcome is unknown."""
    w = world(huge(50_000), text("Hello."), max_reply_bytes=20_000)
    error = w.ask(KINDS[kind]()).raised(OutcomeUnknown)
    assert error.reason == "TOO_LARGE"
    assert w.invocation.response_digest is None
    assert w.ask(KINDS[kind]()).result.response.output_text == "Hello."


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_under_the_limit_is_read(world: MakeWorld, kind: str) -> None:
    """A stream may be longer than its largest event."""
    w = world(huge(15_000), max_reply_bytes=20_000)
    assert w.ask(KINDS[kind]()).error is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_nested_too_deep_is_not_read(world: MakeWorld, kind: str) -> None:
    """A body that exhausts a parser is no reply."""
    deep = b'{"object": "response", "id": "r", "x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    w = world(raw(deep))
    w.ask(KINDS[kind]()).raised(OutcomeUnknown)


# Adapters


def test_an_adapter_takes_the_client_of_its_kind() -> None:
    """The other kind is refused with the name of the adapter that takes it."""
    blocking, other = openai.OpenAI(api_key="x"), openai.AsyncOpenAI(api_key="x")
    with pytest.raises(ConfigurationError, match="AsyncOpenAIResponses"):
        OpenAIResponses(other)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="use OpenAIResponses"):
        AsyncOpenAIResponses(blocking)  # type: ignore[arg-type]
    blocking.close()
    asyncio.run(other.close())


@pytest.mark.parametrize("method", ["run", "run_with_tools", "stream"])
def test_outside_an_activity_nothing_is_called(world: MakeWorld, method: str) -> None:
    """The error names the method and says what to do."""
    w = world(text("never"))

    def use(llm: Any) -> Any:
        arguments = ({"model": "m", "input": "x"}, []) if method == "run_with_tools" else ({"model": "m"},)
        return getattr(llm, method)(*arguments, budget=Budget(total_tokens=2_000), replay_key="k")

    async def use_async() -> None:
        async with w.async_client() as client:
            made = use(AsyncOpenAIResponses(client))
            if asyncio.iscoroutine(made):
                await made

    def attempt() -> None:
        if w.is_async:
            asyncio.run(use_async())
        else:
            use(OpenAIResponses(w.client()))

    with pytest.raises(NoActivityContext, match=f"Responses.{method}"):
        attempt()
    assert w.provider.requests == []


def test_the_result_of_a_stream_is_there_when_it_has_ended(world: MakeWorld) -> None:
    """Before that there is an error that says so."""
    w = world(text("Hello."))
    seen: list[Any] = []

    def blocking(llm: Any) -> None:
        with llm.stream({"model": "m", "input": "x"}, budget=Budget(total_tokens=2_000)) as streamed:
            for _ in streamed:
                if not seen:
                    with pytest.raises(ConfigurationError, match="no result"):
                        _ = streamed.result
                seen.append(1)
        assert streamed.result.response.output_text == "Hello."

    async def together(llm: Any) -> None:
        async with llm.stream({"model": "m", "input": "x"}, budget=Budget(total_tokens=2_000)) as streamed:
            async for _ in streamed:
                if not seen:
                    with pytest.raises(ConfigurationError, match="no result"):
                        _ = streamed.result
                seen.append(1)
        assert streamed.result.response.output_text == "Hello."

    w.within(together if w.is_async else blocking)
    assert len(seen) > 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_rejection_keeps_what_the_provider_says_in_structured_form(world: MakeWorld, kind: str) -> None:
    """Code, type and parameter, as far as they look like that; never the message, which may hold payload."""
    refused = status(400, code="bad_value", type="invalid", param="input[0]", message="not Hello")
    error = world(refused).ask(KINDS[kind]()).raised(ProviderRejected)
    assert (error.code, error.type, error.param) == ("bad_value", "invalid", "input[0]")
    assert "(bad_value, parameter input[0])" in str(error)
    assert "Hello" not in str(error)


def test_a_stored_response_can_be_retrieved(world: MakeWorld) -> None:
    """As JSON, for reconciliation; None if the provider does not have it."""
    w = world(text("Hello."))
    id = w.ask(run()).result.response.id

    async def ask() -> tuple[Any, Any]:
        async with w.async_client() as client:
            llm = AsyncOpenAIResponses(client)
            return await llm.retrieve(id), await llm.retrieve("resp_none")

    blocking = OpenAIResponses(w.client())
    found, missing = (
        asyncio.run(ask()) if w.is_async else (blocking.retrieve(id), blocking.retrieve("resp_none"))
    )
    assert json.loads(found)["id"] == id
    assert missing is None
