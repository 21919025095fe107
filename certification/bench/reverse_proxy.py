"""A bare reverse proxy: what a gateway costs that forwards the same requests and does nothing else.

It is served like the gateway and asks upstream with the same client: ``python -m
certification.bench.reverse_proxy BASE_URL``.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["main"]

_NOT_FORWARDED = {"authorization", "content-length", "host", "connection", "accept-encoding"}


def main(base_url: str) -> None:
    """Serve until interrupted."""
    limits = httpx2.Limits(max_connections=256, max_keepalive_connections=256)
    client = httpx2.AsyncClient(verify=False, timeout=None, limits=limits)

    async def forward(request: Request) -> Response:
        headers = {name: value for name, value in request.headers.items() if name not in _NOT_FORWARDED}
        headers |= {"authorization": "Bearer sk-upstream", "accept-encoding": "identity"}
        sent = client.build_request(
            "POST", f"{base_url}/responses", headers=headers, content=await request.body()
        )
        reply = await client.send(sent, stream=True)
        body = await reply.aread()
        await reply.aclose()
        kept = {"content-type": reply.headers["content-type"]}
        return Response(body, reply.status_code, headers=kept)

    app: Any = Starlette(routes=[Route("/v1/responses", forward, methods=["POST"])])
    logging.basicConfig(level=logging.INFO)
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
    main(sys.argv[1])
