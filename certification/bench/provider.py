"""A provider that costs nothing: its reply is there when it is asked for, read as one from the wire is."""

from __future__ import annotations

import json
from typing import Any, Final

import openai

from memoflow.openai import AsyncOpenAIResponses, OpenAIResponses
from memoflow.sdk.answers import read_reply
from memoflow.sdk.ports import AsyncSdkPort, SdkPort
from memoflow.turn.ports import Answer
from memoflow.turn.steps import Wire

__all__ = ["MODEL", "RAW_REPLY", "async_ready", "raw_reply", "ready", "request"]

MODEL: Final = "gpt-5-mini"


def raw_reply(*items: dict[str, Any]) -> bytes:
    """A completed response of the Responses API with these output items."""
    body = {
        "id": "resp_bench",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": MODEL,
        "output": list(items),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 15,
        },
    }
    return json.dumps(body).encode()


RAW_REPLY: Final = raw_reply(
    {
        "type": "message",
        "id": "msg_bench",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "hello", "annotations": []}],
    }
)


def request(number: int) -> dict[str, Any]:
    """A short request, different for every number."""
    return {"model": MODEL, "input": f"hello {number}"}


class _Ready(SdkPort):
    def send(self, wire: Wire) -> Answer:
        return read_reply(self.codec, RAW_REPLY)


class _AsyncReady(AsyncSdkPort):
    async def send(self, wire: Wire) -> Answer:
        return read_reply(self.codec, RAW_REPLY)


def ready() -> OpenAIResponses:
    """The adapter in front of this provider."""
    client = openai.OpenAI(api_key="none")
    llm = OpenAIResponses(client)
    llm._port = _Ready(llm._api, client, llm.codec, len(RAW_REPLY))
    return llm


def async_ready() -> AsyncOpenAIResponses:
    """The async adapter in front of this provider."""
    client = openai.AsyncOpenAI(api_key="none")
    llm = AsyncOpenAIResponses(client)
    llm._port = _AsyncReady(llm._api, client, llm.codec, len(RAW_REPLY))
    return llm
