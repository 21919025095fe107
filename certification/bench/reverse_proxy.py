"""A bare reverse proxy: what a gateway costs that forwards the same requests and does nothing else.

It is served like the gateway and asks upstream with the same client, as that comes or with the gateway's way
of keeping connections: ``python -m certification.bench.reverse_proxy BASE_URL [--kept]``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memoflow.gateway.connections import Connections
from memoflow.gateway.upstream import client_maker

__all__ = ["main"]

_NOT_FORWARDED = {"authorization", "content-length", "host", "connection", "accept-encoding"}


class _AsItComes:
    """One client for all requests, with a pool of connections."""

    def __init__(self) -> None:
        limits = httpx2.Limits(max_connections=256, max_keepalive_connections=256)
        self._client = httpx2.AsyncClient(verify=False, timeout=None, limits=limits)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[httpx2.AsyncClient]:
        yield self._client


def main(base_url: str, *options: str) -> None:
    """Serve until interrupted."""
    connections = Connections(client_maker(base_url, 10)) if options == ("--kept",) else _AsItComes()

    async def forward(request: Request) -> Response:
        headers = {name: value for name, value in request.headers.items() if name not in _NOT_FORWARDED}
        headers |= {"authorization": "Bearer sk-upstream", "accept-encoding": "identity"}
        content = await request.body()
        async with connections.one() as client:
            sent = client.build_request("POST", f"{base_url}/responses", headers=headers, content=content)
            reply = await client.send(sent, stream=True)
            body = await reply.aread()
            await reply.aclose()
        kept = {"content-type": reply.headers["content-type"]}
        return Response(body, reply.status_code, headers=kept)

    app: Any = Starlette(routes=[Route("/v1/responses", forward, methods=["POST"])])
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=0,
        http="httptools",
        ws="none",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
