"""Chat Completions: its route, its rules and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from memoflow.providers.base import Usage
from memoflow.testing._api import billing, decode
from memoflow.testing._chat_form import as_items, as_message, chunks, finish_reason, report_chat_usage
from memoflow.testing._chat_rules import check_chat
from memoflow.testing._openai_dialects import error_chunk
from memoflow.testing._openai_path import OnePath
from memoflow.testing._play import Rendering
from memoflow.testing._rejections import Rejection
from memoflow.testing._request import ProviderRequest
from memoflow.testing._script import ModelReply
from memoflow.testing._speech import Speech, speak
from memoflow.testing._tokens import count_input
from memoflow.testing._usage import spoil_usage
from memoflow.testing._wire import RecordedRequest

__all__ = ["ChatApi"]

_DETAILS = ("prompt_tokens_details", "completion_tokens_details")


class ChatApi(OnePath):
    """``/v1/chat/completions``. It keeps no state."""

    name = "chat.completions"
    path = "/v1/chat/completions"

    def read(self, record: RecordedRequest) -> ProviderRequest | Rejection:
        """The request, or why the API refuses it."""
        body = decode(record.body)
        problem = check_chat(body)
        if problem is not None:
            return problem
        items = tuple(as_items(body["messages"]))
        counted = {"tools": body.get("tools"), "text": body.get("response_format")}
        return ProviderRequest(
            body=body,
            headers=record.headers,
            items=items,
            input_items=items,
            input_tokens=count_input(counted, items),
            api=self.name,
        )

    def render(self, request: ProviderRequest, record: RecordedRequest, reply: ModelReply) -> Rendering:
        """What a reply of the script becomes for this request."""
        body = request.body
        record.response_id = self._ids.new("chatcmpl", "-")
        said = _spoken(reply, request)
        usage = _total(reply, [speech.usage for speech in said])
        completion = self._completion(body, record.response_id, said, usage)
        overridden = {"model": reply.model, "service_tier": reply.service_tier}
        completion |= {key: value for key, value in overridden.items() if value is not None}
        if reply.usage_variant is not None and usage is not None:
            completion = spoil_usage(completion, reply.usage_variant, details=_DETAILS)
        completion |= reply.fields
        perform = billing(self._bill, record, usage)
        options = body.get("stream_options") or {}
        events, ending = None, 0
        if request.streaming:
            events, ending = chunks(completion, options.get("include_usage") is True)
        if reply.status != "failed":
            return Rendering(completion, events, perform, ending, ending)
        # There is no completion that failed: it is an error, within the stream or instead of the reply.
        error = error_chunk(**(reply.error or {}))
        shown = None if events is None else (*events[:-ending], error)
        return Rendering(error, shown, perform, status=500)

    def _completion(
        self, body: Any, completion_id: str, said: Sequence[Speech], usage: Usage | None
    ) -> dict[str, Any]:
        tier = body.get("service_tier") or "auto"
        return {
            "id": completion_id,
            "object": "chat.completion",
            "created": self._ids.second(),
            "model": body["model"],
            "choices": [self._choice(index, speech) for index, speech in enumerate(said)],
            "usage": None if usage is None else report_chat_usage(usage),
            "service_tier": "default" if tier == "auto" else tier,
            "system_fingerprint": "fp_simulated",
        }

    def _choice(self, index: int, speech: Speech) -> dict[str, Any]:
        message = as_message(speech.items, self._ids)
        reason = speech.stop or finish_reason(message, speech.status, speech.reason)
        return {"index": index, "message": message, "logprobs": None, "finish_reason": reason}


def _spoken(reply: ModelReply, request: ProviderRequest) -> list[Speech]:
    """What each choice says: the reply and its further ones, and then the last of them again."""
    body = request.body
    cap = (
        body.get("max_tokens") if body.get("max_completion_tokens") is None else body["max_completion_tokens"]
    )
    replies = [reply, *(replace(more, usage=reply.usage and more.usage) for more in reply.more)]
    wanted = body.get("n") or 1
    replies = (replies + [replies[-1]] * wanted)[:wanted]
    return [speak(each, request, cap) for each in replies]


def _total(reply: ModelReply, usages: Sequence[Usage | None]) -> Usage | None:
    """The usage of all choices: their output together, unless the script says how much it is."""
    spent = [usage for usage in usages if usage is not None]
    if not spent or reply.usage is None:
        return None
    if reply.usage.output_tokens is not None:
        return spent[0]
    return replace(
        spent[0],
        output_tokens=sum(usage.output_tokens for usage in spent),
        reasoning_tokens=sum(usage.reasoning_tokens for usage in spent),
    )
