"""The same questions asked through every kind of client: synchronous or not, in process or over sockets."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx2
from openai import AsyncOpenAI, OpenAI

from memoflow.testing import SimulatedProvider
from memoflow.testing._clients import async_loopback_client, loopback_client

KINDS = ("sync", "async", "sync-socket", "async-socket")


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

    @property
    def impatient(self) -> dict[str, Any]:
        """Options of a client that gives up soon; over sockets late enough for a busy machine."""
        return {"timeout": httpx2.Timeout(30, read=0.02 if self._url is None else 1.0)}

    def ask(self, question: Callable[[Any], Any], **given: Any) -> Any:
        """The answer to a question that is put to ``client.responses``, awaited if need be."""
        if not self.is_async:
            return question(self.client(**given).responses)

        async def asked() -> Any:
            async with self.async_client(**given) as client:
                return await question(client.responses)

        return asyncio.run(asked())

    def read(self, question: Callable[[Any], Any], **given: Any) -> list[Any]:
        """All that an answer yields: the events of a stream, or the items of all pages."""
        if not self.is_async:
            return list(question(self.client(**given).responses))

        async def read() -> list[Any]:
            async with self.async_client(**given) as client:
                answer = question(client.responses)
                if inspect.iscoroutine(answer):
                    answer = await answer
                return [each async for each in answer]

        return asyncio.run(read())

    def collect(self, seen: list[Any], *, client: dict[str, Any] | None = None, **request: Any) -> None:
        """Put the events of a streamed reply into ``seen`` as they come: they stay if it breaks."""
        body = {"model": "gpt-test", "input": "Hello", "stream": True, **request}

        async def read() -> None:
            async with self.async_client(**(client or {})) as made:
                async for event in await made.responses.create(**body):
                    seen.append(event)

        if self.is_async:
            asyncio.run(read())
        else:
            for event in self.client(**(client or {})).responses.create(**body):
                seen.append(event)

    def create(self, *, client: dict[str, Any] | None = None, **request: Any) -> Any:
        body = {"model": "gpt-test", "input": "Hello", **request}
        return self.ask(lambda responses: responses.create(**body), **(client or {}))

    def events(self, *, client: dict[str, Any] | None = None, **request: Any) -> list[Any]:
        """All events of a streamed reply, read to its end."""
        body = {"model": "gpt-test", "input": "Hello", "stream": True, **request}
        return self.read(lambda responses: responses.create(**body), **(client or {}))
