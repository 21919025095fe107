"""Anthropic's Messages API: its routes, its rules and what it answers."""

from __future__ import annotations

from functools import partial
from typing import Any

from memoflow.providers.base import Usage
from memoflow.testing._anthropic_dialect import MessagesDialect, error_event
from memoflow.testing._api import GENERATING, Bill, decode
from memoflow.testing._dialect import Event, Headers
from memoflow.testing._encoding import Ids
from memoflow.testing._messages_events import ENDING, message_events
from memoflow.testing._messages_form import (
    Block,
    as_blocks,
    as_items,
    report_message_usage,
    stop_reason,
    wrong_cache,
)
from memoflow.testing._messages_pairing import ThoughtMemory
from memoflow.testing._messages_rules import check_message
from memoflow.testing._play import Rendering
from memoflow.testing._rejections import Rejection
from memoflow.testing._request import ProviderRequest
from memoflow.testing._script import ModelReply
from memoflow.testing._speech import speak
from memoflow.testing._tokens import count_input
from memoflow.testing._usage import spoil_usage
from memoflow.testing._wire import Perform, RecordedRequest

__all__ = ["MessagesApi"]

_OPERATIONS = {"/v1/messages": GENERATING, "/v1/messages/count_tokens": "count"}
_DETAILS = (
    *("cache_creation_input_tokens", "cache_read_input_tokens", "cache_creation"),
    *("output_tokens_details", "server_tool_use"),
)


class MessagesApi:
    """State and rules of ``/v1/messages``."""

    name = "messages"

    def __init__(self, ids: Ids, bill: Bill) -> None:
        self._ids, self._bill = ids, bill
        self._memory = ThoughtMemory()
        self.dialect = MessagesDialect()

    def headers(self) -> Headers:
        """Headers of every reply to a new request."""
        return (("request-id", self._ids.new("req")),)

    def refuse(self, record: RecordedRequest, api_key: str | None) -> Rejection | None:
        """What is wrong with the key, which comes in a header of its own or as a bearer, or the version."""
        scheme, _, bearer = record.headers.get("authorization", "").partition(" ")
        key = record.headers.get("x-api-key") or (bearer.strip() if scheme.lower() == "bearer" else "")
        if not key:
            return Rejection(status=401, message="x-api-key header is required", type="authentication_error")
        if api_key is not None and key != api_key:
            return Rejection(status=401, message="invalid x-api-key", type="authentication_error")
        if "anthropic-version" not in record.headers:
            return Rejection(message="anthropic-version: header is required")
        return None

    def route(self, method: str, path: str) -> tuple[str, str] | None:
        """Operation and path, or None if the API has no such path."""
        operation = _OPERATIONS.get(path)
        return None if method != "POST" or operation is None else (operation, f"POST {path}")

    def read(self, record: RecordedRequest) -> ProviderRequest | Rejection:
        """The request, or why the API refuses it."""
        return self._read(record, counting=False)

    def _read(self, record: RecordedRequest, *, counting: bool) -> ProviderRequest | Rejection:
        body = decode(record.body)
        problem = check_message(body, counting=counting) or self._memory.check(body)
        if problem is not None:
            return problem
        items = tuple(as_items(body))
        counted = {"tools": body.get("tools"), "text": body.get("output_config")}
        return ProviderRequest(
            body=body,
            headers=record.headers,
            items=items,
            input_items=items,
            input_tokens=count_input(counted, items),
            api=self.name,
        )

    def answer(self, operation: str, record: RecordedRequest) -> Rendering | Rejection:
        """How many tokens a request has."""
        request = self._read(record, counting=True)
        if isinstance(request, Rejection):
            return request
        return Rendering({"input_tokens": request.input_tokens})

    def render(self, request: ProviderRequest, record: RecordedRequest, reply: ModelReply) -> Rendering:
        """What a reply of the script becomes for this request."""
        record.response_id = self._ids.new("msg")
        speech = speak(reply, request, request.body["max_tokens"])
        blocks = as_blocks(speech.items, self._ids)
        report = None
        if speech.usage is not None:
            report = report_message_usage(speech.usage, blocks, reply.service_tier or "standard")
        stop = speech.stop or stop_reason(speech.items, blocks, speech.status, speech.reason)
        message: dict[str, Any] = {
            "id": record.response_id,
            "type": "message",
            "role": "assistant",
            "model": reply.model or request.body["model"],
            "content": [block.content for block in blocks],
            **_stopped(stop, request, blocks),
            "usage": report,
        }
        begun = report
        if reply.usage_variant is not None and report is not None:
            message = spoil_usage(message, reply.usage_variant, details=_DETAILS, wrong=wrong_cache)
            # A stream begins with true counts whatever it ends with, but for those only its beginning has.
            begun = message["usage"] if reply.usage_variant == "wrong_total" else report
        message |= reply.fields
        perform = Perform(partial(self._complete, record, speech.usage, blocks))
        events = message_events(message, blocks, begun) if request.streaming else None
        if reply.status == "failed":
            return _failed(reply, events, perform)
        return Rendering(message, events, perform, ENDING)

    def _complete(
        self, record: RecordedRequest, usage: Usage | None, blocks: list[Block], gone: bool
    ) -> None:
        if usage is not None:
            self._bill(record, usage)
        self._memory.remember([block.content for block in blocks])


def _stopped(stop: str, request: ProviderRequest, blocks: list[Block]) -> dict[str, Any]:
    details = None
    if stop == "refusal":
        said = "".join(str(block.content.get("text", "")) for block in blocks)
        details = {"type": "refusal", "category": None, "explanation": said or None}
    sequences = request.body.get("stop_sequences") or [None]
    sequence = sequences[0] if stop == "stop_sequence" else None
    return {"stop_reason": stop, "stop_sequence": sequence, "stop_details": details}


def _failed(reply: ModelReply, events: tuple[Event, ...] | None, perform: Perform) -> Rendering:
    """There is no message that failed: it is an error, within the stream or instead of the reply."""
    error = error_event(**(reply.error or {}))
    shown = None if events is None else (*events[:-ENDING], error)
    return Rendering(error, shown, perform, status=500)
