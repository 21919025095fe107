"""The same questions asked through every kind of client: synchronous or not, in process or over sockets."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx2
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from memoflow.testing import SimulatedProvider, _anthropic_clients
from memoflow.testing._clients import async_loopback_client, loopback_client

KINDS = ("sync", "async", "sync-socket", "async-socket")
HELLO = [{"role": "user", "content": "Hello"}]
# A small request of every API, and where the SDK has it.
REQUESTS: dict[str, dict[str, Any]] = {
    "responses": {"model": "gpt-test", "input": "Hello"},
    "chat": {"model": "gpt-test", "messages": HELLO},
    "embeddings": {"model": "embed-test", "input": "Hello"},
    "messages": {"model": "claude-test", "max_tokens": 1_000, "messages": HELLO},
}


def _resource(client: Any, api: str) -> Any:
    return client.chat.completions if api == "chat" else getattr(client, api)


class Caller:
    """A provider and the way to ask it. SDK retries are off unless options say otherwise."""

    def __init__(self, kind: str, provider: SimulatedProvider, stack: ExitStack) -> None:
        self.kind, self.provider, self._stack = kind, provider, stack
        self._url = stack.enter_context(provider.serve()) if kind.endswith("socket") else None

    @property
    def is_async(self) -> bool:
        return self.kind.startswith("async")

    def client(self, **given: Any) -> OpenAI:
        options = {"max_retries": 0, **given}
        url = self._url
        made = self.provider.client(**options) if url is None else loopback_client(url, **options)
        return self._stack.enter_context(made)

    def async_client(self, **given: Any) -> AsyncOpenAI:
        options = {"max_retries": 0, **given}
        url = self._url
        return self.provider.async_client(**options) if url is None else async_loopback_client(url, **options)

    def anthropic_client(self, **given: Any) -> Anthropic:
        options = {"max_retries": 0, **given}
        url = self._url
        if url is None:
            return self._stack.enter_context(self.provider.anthropic_client(**options))
        return self._stack.enter_context(_anthropic_clients.loopback_client(url, **options))

    def async_anthropic_client(self, **given: Any) -> AsyncAnthropic:
        options = {"max_retries": 0, **given}
        url = self._url
        if url is None:
            return self.provider.async_anthropic_client(**options)
        return _anthropic_clients.async_loopback_client(url, **options)

    def _client(self, api: str, given: dict[str, Any]) -> Any:
        return self.anthropic_client(**given) if api == "messages" else self.client(**given)

    def _async_client(self, api: str, given: dict[str, Any]) -> Any:
        return self.async_anthropic_client(**given) if api == "messages" else self.async_client(**given)

    @property
    def impatient(self) -> dict[str, Any]:
        """Options of a client that gives up soon; over sockets late enough for a busy machine."""
        return {"timeout": httpx2.Timeout(30, read=0.02 if self._url is None else 1.0)}

    def ask(self, question: Callable[[Any], Any], *, api: str = "responses", **given: Any) -> Any:
        """The answer to a question that is put to a resource of a client, awaited if need be."""
        if not self.is_async:
            return question(_resource(self._client(api, given), api))

        async def asked() -> Any:
            async with self._async_client(api, given) as client:
                return await question(_resource(client, api))

        return asyncio.run(asked())

    def read(self, question: Callable[[Any], Any], *, api: str = "responses", **given: Any) -> list[Any]:
        """All that an answer yields: the events of a stream, or the items of all pages."""
        if not self.is_async:
            return list(question(_resource(self._client(api, given), api)))

        async def read() -> list[Any]:
            async with self._async_client(api, given) as client:
                answer = question(_resource(client, api))
                if inspect.iscoroutine(answer):
                    answer = await answer
                return [each async for each in answer]

        return asyncio.run(read())

    def collect(
        self,
        seen: list[Any],
        *,
        api: str = "responses",
        client: dict[str, Any] | None = None,
        **request: Any,
    ) -> None:
        """Put the events of a streamed reply into ``seen`` as they come: they stay if it breaks."""
        body = {**REQUESTS[api], "stream": True, **request}

        async def read() -> None:
            async with self._async_client(api, client or {}) as made:
                async for event in await _resource(made, api).create(**body):
                    seen.append(event)

        if self.is_async:
            asyncio.run(read())
        else:
            for event in _resource(self._client(api, client or {}), api).create(**body):
                seen.append(event)

    def create(self, *, api: str = "responses", client: dict[str, Any] | None = None, **request: Any) -> Any:
        body = {**REQUESTS[api], **request}
        return self.ask(lambda resource: resource.create(**body), api=api, **(client or {}))

    def events(
        self, *, api: str = "responses", client: dict[str, Any] | None = None, **request: Any
    ) -> list[Any]:
        """All events of a streamed reply, read to its end."""
        body = {**REQUESTS[api], "stream": True, **request}
        return self.read(lambda resource: resource.create(**body), api=api, **(client or {}))

    def helped(self, *, api: str, **request: Any) -> tuple[list[Any], Any]:
        """The events of the SDK's own stream helper, and what it makes of them in the end."""
        body = {**REQUESTS[api], **request}
        final = "get_final_message" if api == "messages" else "get_final_completion"

        async def read() -> tuple[list[Any], Any]:
            async with (
                self._async_client(api, {}) as client,
                _resource(client, api).stream(**body) as stream,
            ):
                return [event async for event in stream], await getattr(stream, final)()

        if self.is_async:
            return asyncio.run(read())
        with _resource(self._client(api, {}), api).stream(**body) as stream:
            return list(stream), getattr(stream, final)()
