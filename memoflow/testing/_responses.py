"""The Responses API: routes, server-side state and what each operation answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

from memoflow.providers.base import Usage
from memoflow.testing._api import GENERATING, Bill, bearer_problem, decode, openai_headers
from memoflow.testing._dialect import Headers
from memoflow.testing._encoding import Ids
from memoflow.testing._events import response_events
from memoflow.testing._items import Item
from memoflow.testing._openai_dialects import ResponsesDialect
from memoflow.testing._options import ProviderOptions
from memoflow.testing._pairing import ItemMemory, as_items
from memoflow.testing._play import Rendering
from memoflow.testing._rejections import Rejection
from memoflow.testing._render import Generation, generate, item_id, pending
from memoflow.testing._request import ProviderRequest
from memoflow.testing._rules import check_body, check_input, conversation_id
from memoflow.testing._script import ModelReply
from memoflow.testing._tokens import count_input
from memoflow.testing._usage import report_usage
from memoflow.testing._wire import Perform, RecordedRequest

__all__ = ["ResponsesApi"]

_ROUTES = (
    ("POST", re.compile(r"/v1/responses"), GENERATING, "/v1/responses"),
    ("POST", re.compile(r"/v1/responses/input_tokens"), "count", "/v1/responses/input_tokens"),
    ("GET", re.compile(r"/v1/responses/([^/]+)"), "retrieve", "/v1/responses/{id}"),
    ("DELETE", re.compile(r"/v1/responses/([^/]+)"), "delete", "/v1/responses/{id}"),
    ("POST", re.compile(r"/v1/responses/([^/]+)/cancel"), "cancel", "/v1/responses/{id}/cancel"),
    (
        "GET",
        re.compile(r"/v1/responses/([^/]+)/input_items"),
        "input_items",
        "/v1/responses/{id}/input_items",
    ),
)
_PENDING = ("queued", "in_progress")


@dataclass(slots=True)
class _Stored:
    """A response on the server: its outcome is known from the start, and shown when its time comes."""

    generation: Generation
    request: ProviderRequest
    record: RecordedRequest
    status: str
    polls: int = 0

    @property
    def id(self) -> str:
        return str(self.generation.response["id"])

    @property
    def context(self) -> list[Item]:
        return [*self.request.items, *self.generation.response["output"]]

    def shown(self) -> dict[str, Any]:
        if self.status in _PENDING:
            return pending(self.generation.response, self.status)
        return self.generation.response

    def cancel(self, usage: Usage | None) -> None:
        reported = {} if usage is None else {"usage": report_usage(usage)}
        self.status = "cancelled"
        self.generation = Generation(pending(self.generation.response, "cancelled") | reported, usage)


class ResponsesApi:
    """State and rules of ``/v1/responses``. Not thread safe: the provider holds its lock."""

    name = "responses"

    def __init__(self, options: ProviderOptions, ids: Ids, bill: Bill) -> None:
        self.dialect = ResponsesDialect()
        self._options, self._ids, self._bill = options, ids, bill
        self._memory = ItemMemory()
        self._stored: dict[str, _Stored] = {}
        self._conversations: dict[str, list[Item]] = {}

    def headers(self) -> Headers:
        """Headers of every reply to a new request."""
        return openai_headers(self._ids)

    def refuse(self, record: RecordedRequest, api_key: str | None) -> Rejection | None:
        """What is wrong with the key."""
        return bearer_problem(record, api_key)

    def route(self, method: str, path: str) -> tuple[str, str] | None:
        """Operation and path without ids, or None if the API has no such path."""
        for verb, pattern, operation, template in _ROUTES:
            if verb == method and pattern.fullmatch(path):
                return operation, f"{method} {template}"
        return None

    def read(self, record: RecordedRequest) -> ProviderRequest | Rejection:
        """The generation request in a recorded one, or why the API refuses it."""
        body = decode(record.body)
        problem = check_body(body, self._options.min_output_tokens)
        return problem if problem is not None else self._read_context(body, record, paired=True)

    def _read_context(
        self, body: dict[str, Any], record: RecordedRequest, *, paired: bool
    ) -> ProviderRequest | Rejection:
        prior = self._prior(body)
        if isinstance(prior, Rejection):
            return prior
        own = self._resolved(as_items(body.get("input")))
        if isinstance(own, Rejection):
            return own
        items = [*prior, *own]
        problem = self._memory.check(items) if paired else None
        return problem or ProviderRequest(
            body=body,
            headers=record.headers,
            items=tuple(items),
            input_items=tuple(own),
            input_tokens=count_input(body, items),
        )

    def _prior(self, body: dict[str, Any]) -> list[Item] | Rejection:
        conversation, previous = body.get("conversation"), body.get("previous_response_id")
        if conversation is not None:
            return self._conversations.get(conversation_id(conversation), [])
        if previous is None:
            return []
        stored = self._stored.get(previous)
        if stored is not None and stored.status not in _PENDING:
            return stored.context
        state = "not found" if stored is None else "is not completed yet"
        return Rejection(
            message=f"Previous response with id '{previous}' {state}.",
            param="previous_response_id",
            code="previous_response_not_found",
        )

    def _resolved(self, items: list[Item]) -> list[Item] | Rejection:
        resolved = []
        for item in items:
            if item.get("type") == "item_reference":
                found = self._memory.stored(str(item.get("id")))
                if found is None:
                    return Rejection(
                        message=f"Item with id '{item.get('id')}' not found.", status=404, param="input"
                    )
                item = found
            resolved.append(item)
        return resolved

    def render(self, request: ProviderRequest, record: RecordedRequest, reply: ModelReply) -> Rendering:
        """What a reply of the script becomes for this request."""
        record.response_id = self._ids.new("resp")
        generation = generate(reply, request, record.response_id, self._ids)
        stored = _Stored(generation, request, record, "in_progress")
        perform = Perform(partial(self._complete, stored))
        events = response_events(generation.response) if request.streaming else None
        if not request.background:
            return Rendering(generation.response, events, perform)
        stored.status = "queued"
        self._stored[stored.id] = stored
        return Rendering(stored.shown(), events, None if events is None else perform)

    def _complete(self, stored: _Stored, gone: bool) -> None:
        if stored.status not in _PENDING:
            return
        response, request = stored.generation.response, stored.request
        stored.status = str(response["status"])
        if stored.generation.usage is not None:
            self._bill(stored.record, stored.generation.usage)
        self._memory.remember(response["output"], request.stored)
        if request.stored and (request.background or not gone or self._options.store_interrupted):
            self._stored[stored.id] = stored
            if "conversation" in response:
                self._conversations[conversation_id(response["conversation"])] = stored.context

    def advance(self, response_id: str | None = None) -> None:
        """One step for a background response, or for all of them: queued, in progress, terminal."""
        for stored in list(self._stored.values()):
            if response_id in (None, stored.id):
                self._advance(stored)

    def _advance(self, stored: _Stored) -> None:
        if stored.status == "queued":
            stored.status = "in_progress"
        else:
            self._complete(stored, False)

    def answer(self, operation: str, record: RecordedRequest) -> Rendering | Rejection:
        """What the API answers to an operation that generates nothing."""
        if operation == "count":
            return self._count(record)
        response_id = record.path.split("/")[3]
        stored = self._stored.get(response_id)
        if stored is None:
            return Rejection(message=f"Response with id '{response_id}' not found.", status=404)
        if operation == "retrieve":
            return self._retrieve(stored, record)
        if operation == "cancel":
            return self._cancel(stored)
        if operation == "input_items":
            return self._input_items(stored, record)
        del self._stored[response_id]
        return Rendering({"id": response_id, "object": "response", "deleted": True})

    def _count(self, record: RecordedRequest) -> Rendering | Rejection:
        body = decode(record.body)
        request = check_input(body) or self._read_context(body, record, paired=False)
        if isinstance(request, Rejection):
            return request
        return Rendering({"object": "response.input_tokens", "input_tokens": request.input_tokens})

    def _retrieve(self, stored: _Stored, record: RecordedRequest) -> Rendering | Rejection:
        if record.query.get("stream") == "true":
            return self._resume(stored, _number(record.query.get("starting_after"), -1))
        self._poll(stored)
        return Rendering(stored.shown())

    def _poll(self, stored: _Stored) -> None:
        polls = self._options.background_polls
        if polls is None or stored.status not in _PENDING:
            return
        stored.polls += 1
        if stored.polls >= polls:
            self._complete(stored, False)
        else:
            stored.status = "in_progress"

    def _resume(self, stored: _Stored, after: int) -> Rendering | Rejection:
        if not (stored.request.background and stored.request.streaming):
            message = "Only responses created with background=true and stream=true can be streamed again."
            return Rejection(message=message, param="stream")
        events = response_events(stored.generation.response)[after + 1 :]
        return Rendering(None, events, Perform(partial(self._complete, stored)))

    def _cancel(self, stored: _Stored) -> Rendering | Rejection:
        if not stored.request.background:
            return Rejection(message="Cannot cancel a synchronous response.")
        if stored.status in _PENDING:
            reports = self._options.cancelled_usage
            usage = Usage(input_tokens=stored.request.input_tokens, output_tokens=0) if reports else None
            stored.cancel(usage)
            if usage is not None:
                self._bill(stored.record, usage)
        return Rendering(stored.shown())

    def _input_items(self, stored: _Stored, record: RecordedRequest) -> Rendering:
        items = [self._listed(item) for item in stored.request.input_items]
        if record.query.get("order", "desc") == "desc":
            items.reverse()
        after = record.query.get("after")
        start = next((index + 1 for index, item in enumerate(items) if item["id"] == after), 0)
        limit = _number(record.query.get("limit"), 20)
        page = items[start : start + limit]
        return Rendering(
            {
                "object": "list",
                "data": page,
                "first_id": page[0]["id"] if page else None,
                "last_id": page[-1]["id"] if page else None,
                "has_more": start + limit < len(items),
            }
        )

    def _listed(self, item: Item) -> Item:
        kind = item.get("type", "message")
        if "id" not in item:
            item["id"] = item_id({"type": kind}, self._ids)
        return {"type": kind, "status": "completed", **item}


def _number(given: str | None, usual: int) -> int:
    return int(given) if given is not None and given.lstrip("-").isdecimal() else usual
