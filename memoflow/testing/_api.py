"""What the provider asks of an API it speaks, and what the APIs share."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from memoflow.providers.base import Usage
from memoflow.testing._dialect import Dialect, Headers
from memoflow.testing._encoding import Ids
from memoflow.testing._play import Rendering
from memoflow.testing._rejections import Rejection
from memoflow.testing._request import ProviderRequest
from memoflow.testing._script import ModelReply
from memoflow.testing._wire import Perform, RecordedRequest

__all__ = ["GENERATING", "Api", "Bill", "bearer_problem", "billing", "decode", "openai_headers"]

# The operation of all requests that generate, whatever API they belong to: one queue serves them.
GENERATING = "create"

Bill = Callable[[RecordedRequest, Usage], None]


class Api(Protocol):
    """One API of the provider. The provider holds its lock while it calls one."""

    @property
    def name(self) -> str:
        """What requests call it: `ProviderRequest.api`."""
        ...

    @property
    def dialect(self) -> Dialect:
        """How it writes events and errors."""
        ...

    def headers(self) -> Headers:
        """Headers of every reply to a new request."""
        ...

    def route(self, method: str, path: str) -> tuple[str, str] | None:
        """Operation and path without ids, or None if the API has no such path."""
        ...

    def refuse(self, record: RecordedRequest, api_key: str | None) -> Rejection | None:
        """Why the request may not be made at all: its key, mostly."""
        ...

    def read(self, record: RecordedRequest) -> ProviderRequest | Rejection:
        """The generation request in a recorded one, or why the API refuses it."""
        ...

    def render(self, request: ProviderRequest, record: RecordedRequest, reply: ModelReply) -> Rendering:
        """What a reply of the script becomes for this request."""
        ...

    def answer(self, operation: str, record: RecordedRequest) -> Rendering | Rejection:
        """What the API answers to an operation that generates nothing."""
        ...


def decode(body: bytes) -> Any:
    """A request body, or None if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def billing(bill: Bill, record: RecordedRequest, usage: Usage | None) -> Perform | None:
    """What completes a generation of an API that stores nothing."""
    return None if usage is None else Perform(partial(_complete, bill, record, usage))


def _complete(bill: Bill, record: RecordedRequest, usage: Usage, gone: bool) -> None:
    bill(record, usage)


def openai_headers(ids: Ids) -> Headers:
    """The headers of every reply of OpenAI."""
    return (("x-request-id", ids.new("req")), ("openai-version", "2020-10-01"))


def bearer_problem(record: RecordedRequest, api_key: str | None) -> Rejection | None:
    """What is wrong with the key of a request to OpenAI."""
    scheme, _, key = record.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        message = "You didn't provide an API key in an Authorization header."
        return Rejection(status=401, message=message)
    if api_key is not None and key.strip() != api_key:
        return Rejection(status=401, message="Incorrect API key provided.", code="invalid_api_key")
    return None
