"""Requests and streams nobody thought of: they are answered, refused, or read all the same."""

from __future__ import annotations

from typing import Any

import httpx2
from hypothesis import given, settings
from hypothesis import strategies as st

from memoflow.testing import (
    SimulatedProvider,
    call,
    calls,
    thinking,
    web_search,
)
from tests.testing._callers import REQUESTS

STREAMING = ("chat", "messages")
PATHS = {
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "embeddings": "/v1/embeddings",
    "messages": "/v1/messages",
}


def _post(provider: SimulatedProvider, api: str, body: Any) -> httpx2.Response:
    """A request past both SDKs; either key is fine for every API."""
    headers = {"authorization": "Bearer k", "anthropic-version": "2023-06-01"}
    with provider.client() as client:
        return client._client.post(f"http://simulated.invalid{PATHS[api]}", json=body, headers=headers)


EVERYTHING = calls(web_search("wörds"), thinking("Hm, é."), call("f", {"ü": [1, 2]}), say="Grüße 👋 an alle.")


@settings(max_examples=25)
@given(
    st.sampled_from(STREAMING),
    st.one_of(st.integers(1, 5_000), st.lists(st.integers(1, 300), min_size=1, max_size=5)),
)
def test_how_a_stream_is_split_changes_nothing(api: str, split: Any) -> None:
    """Pieces of any size, across characters and events, are the same bytes in the end."""
    body = {**REQUESTS[api], "stream": True}
    whole = _post(SimulatedProvider([EVERYTHING]), api, body).content
    assert _post(SimulatedProvider([EVERYTHING], split=split), api, body).content == whole


_KEYS = st.sampled_from(
    [
        *("role", "content", "type", "text", "id", "call_id", "tool_call_id", "tool_calls", "function"),
        *("custom", "name", "arguments", "input", "output", "tool_use_id", "signature", "thinking"),
        *("parameters", "properties", "required", "strict", "input_schema", "tools", "refusal"),
    ]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
_TYPED = st.sampled_from(
    [
        *("message", "function_call", "function_call_output", "reasoning", "item_reference"),
        *("text", "tool_use", "tool_result", "thinking", "function", "custom", "image"),
    ]
)
_ROLE = st.sampled_from(["user", "assistant", "tool", "system"])
_BLOCK = st.builds(
    lambda kind, rest: {**rest, "type": kind}, _TYPED, st.dictionaries(_KEYS, JSON, max_size=4)
)
_MESSAGE = st.builds(
    lambda role, content, rest: {**rest, "role": role, "content": content},
    _ROLE,
    JSON | st.lists(_BLOCK, max_size=3),
    st.dictionaries(_KEYS, JSON | st.lists(_BLOCK, max_size=2), max_size=2),
)
_ANYTHING = JSON | st.lists(_MESSAGE | _BLOCK | JSON, max_size=4)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(REQUESTS)),
    st.dictionaries(
        st.sampled_from(
            [
                *("messages", "input", "tools", "tool_choice", "system", "thinking", "stream", "n"),
                *("max_tokens", "max_completion_tokens", "max_output_tokens", "stream_options", "model"),
                *("dimensions", "encoding_format", "previous_response_id", "conversation"),
                *("stop_sequences", "service_tier", "instructions", "response_format", "include", "text"),
            ]
        ),
        _ANYTHING,
        max_size=3,
    ),
)
def test_no_request_breaks_the_provider(api: str, changed: dict[str, Any]) -> None:
    """Whatever a request holds, it is answered or refused, and never breaks the provider itself."""
    provider = SimulatedProvider()
    answer = _post(provider, api, {**REQUESTS[api], **changed})
    assert provider.errors == []
    assert answer.status_code in (200, 400, 404)
