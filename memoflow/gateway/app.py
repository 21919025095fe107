"""The gateway as an ASGI application."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from memoflow.gateway.apis import GENERATING
from memoflow.gateway.endpoints import Generating, dialect
from memoflow.gateway.passing import Counting, Model, Models, StoredResponse
from memoflow.gateway.refusals import Refusal
from memoflow.gateway.service import Service
from memoflow.gateway.settings import GatewaySettings
from memoflow.runtime import Runtime

__all__ = ["make_app"]

# A path in one form only: what two parsers could read differently is no path of ours.
_PLAIN: Final = re.compile(rb"(/(?!\.{0,2}(/|$))([A-Za-z0-9._~@:-]|%3[Aa])+)+|/")
_UNKNOWN: Final = Refusal(
    404, "not_found", "The gateway has no such path. It serves the model APIs that its documentation names."
)
_WRONG_METHOD: Final = Refusal(405, "method_not_allowed", "This path is not asked in this way.")


def make_app(open_runtime: Callable[[], Runtime], settings: GatewaySettings) -> Any:
    """The application; its ledger is opened when the server starts, and closed when it ends.

    Args:
        open_runtime: opens the ledger, in the process that serves.
        settings: how to serve.
    """
    app = Starlette(
        lifespan=partial(_lifespan, open_runtime=open_runtime, settings=settings),
        exception_handlers={404: _refused(_UNKNOWN), 405: _refused(_WRONG_METHOD)},
    )
    app.router.redirect_slashes = False
    return _Plain(app)


class _Plain:
    """Answers what has no plain path, before anything else looks at it."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass on what may be passed on."""
        if scope["type"] == "http" and not _PLAIN.fullmatch(scope.get("raw_path") or b""):
            response = _response(_UNKNOWN, scope["headers"])
            await response(scope, receive, send)
        elif scope["type"] in ("http", "lifespan"):
            await self._app(scope, receive, send)


@asynccontextmanager
async def _lifespan(
    app: Starlette, *, open_runtime: Callable[[], Runtime], settings: GatewaySettings
) -> AsyncIterator[None]:
    runtime = open_runtime()
    try:
        service = Service(runtime, settings)
    except BaseException:
        runtime.close()
        raise
    app.router.routes[:] = _routes(service)
    try:
        yield
    finally:
        await service.close()


def _routes(service: Service) -> list[Route]:
    stored = partial(StoredResponse, service)
    counting = [
        Route(api.count_path, Counting(service, api.provider, api.count_path), methods=["POST"])
        for api in GENERATING
        if api.count_path is not None
    ]
    return [
        *[Route(api.path, Generating(service, api), methods=["POST"]) for api in GENERATING],
        *counting,
        Route("/v1/responses/{response_id}", stored("GET"), methods=["GET"]),
        Route("/v1/responses/{response_id}/cancel", stored("POST", "/cancel"), methods=["POST"]),
        Route("/v1/responses/{response_id}/input_items", stored("GET", "/input_items"), methods=["GET"]),
        Route("/v1/models", Models(service), methods=["GET"]),
        Route("/v1/models/{model}", Model(service), methods=["GET"]),
        Route("/healthz", _healthy, methods=["GET"]),
        Route("/readyz", partial(_ready, service), methods=["GET"]),
    ]


async def _healthy(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _ready(service: Service, request: Request) -> Response:
    troubles = await service.troubles()
    served = sorted(service.upstreams)
    return JSONResponse(
        {"status": "unready" if troubles else "ready", "providers": served, "troubles": troubles},
        status_code=503 if troubles else 200,
    )


def _refused(refusal: Refusal) -> Any:
    async def handle(request: Request, error: Exception) -> Response:
        return _response(refusal, request.scope["headers"])

    return handle


def _response(refusal: Refusal, headers: list[tuple[bytes, bytes]]) -> Response:
    given = {name.decode(): value.decode() for name, value in refusal.headers()}
    return Response(refusal.body(dialect(headers)), refusal.status, headers=given)
