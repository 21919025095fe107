"""Provider envelopes: how the messages of a call are found again at the provider.

An envelope correlates messages. It holds ids of the provider and digests, and says nothing about causes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from memoflow.canonical import JSON, Digester
from memoflow.causal._frozen import EMPTY, thaw
from memoflow.errors import InvalidRequest

__all__ = [
    "CLAUDE_MESSAGES",
    "OPENAI_CHAT",
    "OPENAI_RESPONSES",
    "Shape",
    "broken",
    "content_digests",
    "section",
]


class Shape(NamedTuple):
    """What an API calls the things in an envelope; ``host`` and ``hosted`` are where a call is executed."""

    provider: str
    api: str
    host: str
    hosted: str
    request: str
    result: str
    request_id: str
    result_id: str
    input_digest: str
    output_digest: str


OPENAI_RESPONSES: Final = Shape(
    provider="openai",
    api="responses",
    host="host_custom_function",
    hosted="provider_hosted_tool",
    request="request_item",
    result="result_item",
    request_id="call_id",
    result_id="call_id",
    input_digest="arguments_digest",
    output_digest="output_digest",
)
OPENAI_CHAT: Final = OPENAI_RESPONSES._replace(
    api="chat_completions", request_id="id", result_id="tool_call_id", output_digest="content_digest"
)
CLAUDE_MESSAGES: Final = Shape(
    provider="claude",
    api="messages",
    host="client_side_tool",
    hosted="server_side_tool",
    request="request_block",
    result="result_block",
    request_id="id",
    result_id="tool_use_id",
    input_digest="input_digest",
    output_digest="content_digest",
)
_SHAPES: Final = {
    (shape.provider, shape.api): shape for shape in (OPENAI_RESPONSES, OPENAI_CHAT, CLAUDE_MESSAGES)
}


def broken(payload: Mapping[str, JSON], envelope: JSON) -> Iterator[str]:
    """What is wrong with the envelope of a record, in itself and beside what else the record says."""
    if not isinstance(envelope, dict):
        yield "is no JSON object"
        return
    provider, api = envelope.get("provider"), envelope.get("api")
    shape = _SHAPES.get((provider, api)) if isinstance(provider, str) and isinstance(api, str) else None
    if shape is None:
        yield "is of no provider and API that are known"
        return
    request, result = section(envelope, shape.request), section(envelope, shape.result)
    evidence = section(payload, "evidence_bundle")
    yield from _broken_request(shape, request, payload.get("tool"), evidence)
    if result:
        yield from _broken_result(shape, request, result, evidence)


def _broken_request(
    shape: Shape, request: Mapping[str, JSON], tool: JSON, evidence: Mapping[str, JSON]
) -> Iterator[str]:
    call_id = request.get(shape.request_id)
    if not isinstance(call_id, str) or not call_id:
        yield "has no id of the call"
    if request.get("name") != tool:
        yield "names another tool"
    if request.get(shape.input_digest) != evidence.get("request_digest"):
        yield f"has another {shape.input_digest}"


def _broken_result(
    shape: Shape, request: Mapping[str, JSON], result: Mapping[str, JSON], evidence: Mapping[str, JSON]
) -> Iterator[str]:
    if result.get(shape.result_id) != request.get(shape.request_id):
        yield "has the result of another call"
    if result.get(shape.output_digest) != evidence.get("result_digest"):
        yield f"has another {shape.output_digest}"


def section(payload: Mapping[str, JSON], key: str) -> Mapping[str, JSON]:
    """The object under a key; an empty one where there is none."""
    value = payload.get(key)
    return value if isinstance(value, dict) else EMPTY


def content_digests(value: JSON, digester: Digester) -> tuple[str, ...]:
    """The digests that content may have: of its canonical form; of text also that of its bytes alone.

    The input of a custom tool is text of its own and is digested as such. None where it has no form.
    """
    try:
        whole = digester.json(thaw(value))
        return (whole, digester.bytes(value.encode())) if isinstance(value, str) else (whole,)
    except InvalidRequest:
        return ()
