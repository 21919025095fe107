"""Streams of each API, as its provider sends them, over a transport that waits for nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import httpx2
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from certification.bench.provider import MODEL, RAW_REPLY
from memoflow.anthropic import AnthropicMessages, AsyncAnthropicMessages
from memoflow.openai import AsyncOpenAIChat, AsyncOpenAIResponses, OpenAIChat, OpenAIResponses

__all__ = ["CHAT", "MESSAGES", "RESPONSES", "STREAMED", "Streamed"]

_MESSAGES: Final = [{"role": "user", "content": "Go on."}]


def _event(data: dict[str, Any], *, named: bool = True) -> bytes:
    name = f"event: {data['type']}\n" if named else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def _responses(count: int, size: int) -> Iterator[bytes]:
    started = {**json.loads(RAW_REPLY), "status": "in_progress", "output": [], "usage": None}
    yield _event({"type": "response.created", "response": started, "sequence_number": 0})
    for number in range(1, count + 1):
        delta = {
            "type": "response.output_text.delta",
            "item_id": "msg_bench",
            "output_index": 0,
            "content_index": 0,
            "delta": "x",
            "logprobs": [],
            "obfuscation": "p" * size,
            "sequence_number": number,
        }
        yield _event(delta)
    done = {"type": "response.completed", "response": json.loads(RAW_REPLY), "sequence_number": count + 1}
    yield _event(done)


def _chat(count: int, size: int) -> Iterator[bytes]:
    frame = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": MODEL,
        "service_tier": "default",
        "system_fingerprint": "fp_bench",
    }

    def chunk(delta: dict[str, Any], end: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": end}
        more = {"choices": [choice], "usage": None, "obfuscation": "p" * size}
        return _event({**frame, **more}, named=False)

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for _ in range(count):
        yield chunk({"content": " word"})
    yield chunk({}, "stop")
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    yield _event({**frame, "choices": [], "usage": usage, "obfuscation": "p" * size}, named=False)
    yield b"data: [DONE]\n\n"


def _messages(count: int, size: int) -> Iterator[bytes]:
    message: dict[str, Any] = {
        "id": "msg_bench",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "claude-bench",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }
    yield _event({"type": "message_start", "message": message})
    block = {"type": "text", "text": ""}
    yield _event({"type": "content_block_start", "index": 0, "content_block": block})
    for _ in range(count):
        delta = {"type": "text_delta", "text": " word" + "p" * size}
        yield _event({"type": "content_block_delta", "index": 0, "delta": delta})
    yield _event({"type": "content_block_stop", "index": 0})
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}})
    yield _event({"type": "message_stop"})


@dataclass(frozen=True)
class Streamed:
    """An API with a stream of so many deltas, each padded by so many characters, which ends as it should.

    Attributes:
        create: the SDK's own way to ask.
    """

    name: str
    events: Callable[[int, int], Iterator[bytes]]
    request: dict[str, Any]
    clients: tuple[Any, Any]
    adapters: tuple[Any, Any]
    create: Callable[[Any], Any]

    def client(self, count: int, size: int = 0) -> Any:
        """The official client, whose every reply is such a stream."""
        http = httpx2.Client(transport=_Transport(self, count, size))
        return self.clients[0](api_key="none", http_client=http)

    def async_client(self, count: int) -> Any:
        """Its twin."""
        http = httpx2.AsyncClient(transport=_Transport(self, count, 0))
        return self.clients[1](api_key="none", http_client=http)

    def alone(self, client: Any) -> Any:
        """The stream as the SDK alone gives it; of an async client to be awaited."""
        return self.create(client)(**self.request, stream=True)


class _Body(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, make: Callable[[], Iterator[bytes]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[bytes]:
        return self._make()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for event in self._make():
            yield event


class _Transport(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    def __init__(self, api: Streamed, count: int, size: int) -> None:
        self._body = _Body(lambda: api.events(count, size))

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, stream=self._body, request=request)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.handle_request(request)


RESPONSES: Final = Streamed(
    "Responses",
    _responses,
    {"model": MODEL, "input": "Go on."},
    (OpenAI, AsyncOpenAI),
    (OpenAIResponses, AsyncOpenAIResponses),
    lambda client: client.responses.create,
)
CHAT: Final = Streamed(
    "Chat Completions",
    _chat,
    {"model": MODEL, "messages": _MESSAGES, "max_completion_tokens": 1_000},
    (OpenAI, AsyncOpenAI),
    (OpenAIChat, AsyncOpenAIChat),
    lambda client: client.chat.completions.create,
)
MESSAGES: Final = Streamed(
    "Messages",
    _messages,
    {"model": "claude-bench", "messages": _MESSAGES, "max_tokens": 1_000},
    (Anthropic, AsyncAnthropic),
    (AnthropicMessages, AsyncAnthropicMessages),
    lambda client: client.messages.create,
)
STREAMED: Final = {"responses": RESPONSES, "chat": CHAT, "messages": MESSAGES}
