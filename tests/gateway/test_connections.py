"""Connections that are kept: one for a request, the last one first, none after an error, none for long.

Of two replies to one request the second is nobody's.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import pytest

from memoflow.gateway.connections import Connections
from memoflow.gateway.upstream import client_maker
from tests.gateway._site import MODEL
from tests.gateway.conftest import MakeSite


class Client:
    """Stands for a client of one connection."""

    def __init__(self) -> None:
        self.closed = False
        self._transport: Any = None
        self._mounts: dict[Any, Any] = {}

    async def aclose(self) -> None:
        """Close it."""
        self.closed = True


class Kept:
    """Connections of clients that are remembered."""

    def __init__(self, idle_s: float = 60.0) -> None:
        self.made: list[Client] = []
        make: Any = self._make
        self.connections = Connections(make, idle_s=idle_s)

    def _make(self) -> Client:
        self.made.append(Client())
        return self.made[-1]

    async def together(self, count: int) -> None:
        """So many requests at a time."""
        begun = asyncio.Barrier(count)

        async def ask() -> None:
            async with self.connections.one():
                await begun.wait()

        await asyncio.gather(*[ask() for _ in range(count)])


def test_requests_in_turn_share_a_connection_and_those_at_a_time_do_not() -> None:
    """As many as there were requests at a time are made, and used again."""

    async def run() -> Kept:
        kept = Kept()
        for count in (1, 1, 3, 2, 3):
            await kept.together(count)
        return kept

    kept = asyncio.run(run())
    assert [client.closed for client in kept.made] == [False] * 3


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
def test_after_an_error_a_connection_is_not_used_again(error: type[BaseException]) -> None:
    """Whatever the error was: half of a reply may still be on its way."""

    async def run() -> Kept:
        kept = Kept()
        with pytest.raises(error):
            async with kept.connections.one():
                raise error
        await kept.together(1)
        return kept

    kept = asyncio.run(run())
    assert [client.closed for client in kept.made] == [True, False]


def test_what_is_idle_for_long_is_closed() -> None:
    """Of what a busy hour has left, only what is used stays."""

    async def run() -> Kept:
        kept = Kept(idle_s=0.0)
        await kept.together(4)
        await kept.together(1)
        return kept

    kept = asyncio.run(run())
    assert all(client.closed for client in kept.made)


def test_closing_leaves_nothing_open() -> None:
    """All that is idle is closed."""

    async def run() -> Kept:
        kept = Kept()
        await kept.together(4)
        await kept.connections.close()
        return kept

    kept = asyncio.run(run())
    assert len(kept.made) == 4
    assert all(client.closed for client in kept.made)


def reply(text: str) -> bytes:
    """A whole reply that says something."""
    message = {"role": "assistant", "content": text}
    body = json.dumps(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
    ).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


@contextmanager
def answering(*replies: bytes) -> Iterator[str]:
    """A provider that answers each request with the next of these bytes; its address."""
    left = list(replies)

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            while line := self.rfile.readline():
                if found := re.match(rb"content-length: (\d+)", line, re.IGNORECASE):
                    size = int(found[1])
                if line == b"\r\n":
                    self.rfile.read(size)
                    self.wfile.write(left.pop(0))

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()
            serving.join()


def test_what_comes_after_a_reply_is_no_reply_to_the_next_request(make_site: MakeSite) -> None:
    """It is another client's, or nobody's; the connection that it came on is not used again."""
    with answering(reply("first") + reply("nobody's"), reply("second"), reply("third")) as address:
        site = make_site(address)
        told = []
        for client in (site.openai(), site.openai(), site.openai()):
            asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": "Hi."}]}
            told.append(client.chat.completions.create(**asked).choices[0].message.content)
    assert told == ["first", "second", "third"]


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_who_a_provider_is_is_verified(scheme: str) -> None:
    """However its address is written."""
    client: Any = client_maker(f"{scheme}://api.example.com/v1", 1.0)()
    assert client._transport._pool._ssl_context.verify_mode == ssl.CERT_REQUIRED
    asyncio.run(client.aclose())
