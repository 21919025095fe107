"""Replies with calls, whole and as streams, in the shapes that the three APIs document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from memoflow.inspection import Decision, Event, Inspector, Session
from memoflow.inspection.calls import API, Holder, Out
from memoflow.inspection.policy_file import read_policy

__all__ = [
    "APIS",
    "DENIED",
    "Call",
    "Said",
    "Watched",
    "encoded",
    "events",
    "first_call_at",
    "played",
    "said",
    "splits",
    "whole",
]

APIS: tuple[API, ...] = ("chat", "messages", "responses")
DENIED = "marker" + "-denied"
POLICY = read_policy(
    {
        "agent_policies": [
            {"name": "no-mail", "when": {"detector": "pii.email", "facet": "tool_args"}, "action": "deny"}
        ]
    }
)
BAD = {"to": f"{DENIED}@evil.example"}


@dataclass(frozen=True)
class Call:
    """A call that a model makes."""

    name: str
    args: dict[str, Any]
    pieces: int = 2

    def fragments(self) -> list[str]:
        """Its arguments as JSON text, cut."""
        text = json.dumps(self.args)
        size = -(-len(text) // self.pieces)
        return [text[at : at + size] for at in range(0, len(text), size)]


@dataclass(frozen=True)
class Said:
    """What a model says before and after its calls."""

    text: str
    calls: tuple[Call, ...]


names = st.sampled_from(["lookup", "save_note", "send_mail"])
arguments = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.text(max_size=12) | st.integers(-9, 9) | st.lists(st.booleans(), max_size=2),
)
calls = st.builds(Call, names, arguments | st.just(BAD), st.integers(1, 5))
said = st.builds(Said, st.text(max_size=20), st.lists(calls, max_size=3).map(tuple))


def whole(api: API, reply: Said) -> dict[str, Any]:
    """The reply in one body."""
    bodies = {"chat": _chat_body, "messages": _message_body, "responses": _response_body}
    return bodies[api](reply)


def events(api: API, reply: Said) -> list[dict[str, Any]]:
    """The reply as the events of a stream."""
    streams = {"chat": _chat_events, "messages": _message_events, "responses": _response_events}
    return list(streams[api](reply))


def encoded(api: API, shown: Sequence[dict[str, Any]], end: str = "\n", comment: str = "") -> bytes:
    """Events as the bytes of a stream."""
    frames = []
    for event in shown:
        name = "" if api == "chat" else f"event: {event['type']}{end}"
        frames.append(f"{comment}{name}data: {json.dumps(event, ensure_ascii=False)}{end}{end}")
    if api == "chat":
        frames.append(f"data: [DONE]{end}{end}")
    return "".join(frames).encode("utf-8", "surrogatepass")


def first_call_at(api: API, reply: Said, end: str = "\n", comment: str = "") -> int:
    """Where in these bytes the first frame of a call begins."""
    shown = events(api, reply)
    before = shown[: next(n for n, event in enumerate(shown) if _begins_call(event))]
    ending = len(f"data: [DONE]{end}{end}") if api == "chat" else 0
    # A comment with a blank line is a frame of its own.
    alone = len(comment) if comment.endswith("\n\n") else 0
    return len(encoded(api, before, end, comment)) - ending + alone


def _begins_call(event: dict[str, Any]) -> bool:
    delta = event["choices"][0]["delta"] if "choices" in event else {}
    part = event.get("item") or event.get("content_block") or {}
    return "tool_calls" in delta or part.get("type") in ("function_call", "tool_use")


def splits(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """Ways to cut bytes into chunks."""
    cuts = st.lists(st.integers(0, len(data)), max_size=12) | st.just(list(range(len(data))))
    return cuts.map(
        lambda at: [data[a:b] for a, b in zip([0, *sorted(at)], [*sorted(at), len(data)], strict=True)]
    )


class Watched:
    """A session that remembers what it was asked."""

    def __init__(self, mode: Any = "enforce", **more: Any) -> None:
        self._session: Session = Inspector(POLICY, mode=mode, **more).session()
        self.mode = mode
        self.asked: list[Event] = []

    def judge(self, event: Event) -> Decision:
        """Remember and judge."""
        self.asked.append(event)
        return self._session.judge(event)

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """The calls it was asked about."""
        return [(one.kind.tool, one.kind.args) for one in self.asked if hasattr(one.kind, "args")]


def played(api: API, chunks: Sequence[bytes], watched: Watched, **more: Any) -> Out:
    """All that a holder gives for these chunks."""
    holder = Holder(api, watched, **more)  # type: ignore[arg-type]
    outs = [*map(holder.feed, chunks), holder.finish()]
    return Out(
        b"".join(out.release for out in outs),
        tuple(one for out in outs for one in out.decisions),
        next((out.refusal for out in outs if out.refusal), None),
        next((out.problem for out in outs if out.problem), None),
    )


def _chat_call(number: int, call: Call, arguments: str) -> dict[str, Any]:
    return {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _chat_body(reply: Said) -> dict[str, Any]:
    made = [_chat_call(n, call, json.dumps(call.args)) for n, call in enumerate(reply.calls)]
    message = {"role": "assistant", "content": reply.text, **({"tool_calls": made} if made else {})}
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if made else "stop",
        "logprobs": None,
    }
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def _chunk(delta: dict[str, Any], end: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": end, "logprobs": None}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def _chat_events(reply: Said) -> Iterator[dict[str, Any]]:
    yield _chunk({"role": "assistant", "content": ""})
    yield _chunk({"content": reply.text})
    for number, call in enumerate(reply.calls):
        yield _chunk({"tool_calls": [{"index": number, **_chat_call(number, call, "")}]})
        for part in call.fragments():
            yield _chunk({"tool_calls": [{"index": number, "function": {"arguments": part}}]})
    yield _chunk({}, "tool_calls" if reply.calls else "stop")


def _message_body(reply: Said) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": reply.text}]
    content += [
        {"type": "tool_use", "id": f"toolu_{n}", "name": call.name, "input": call.args}
        for n, call in enumerate(reply.calls)
    ]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": "tool_use" if reply.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _message_events(reply: Said) -> Iterator[dict[str, Any]]:
    body = _message_body(reply)
    yield {"type": "message_start", "message": {**body, "content": [], "stop_reason": None}}
    yield {"type": "ping"}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": reply.text}}
    yield {"type": "content_block_stop", "index": 0}
    for index, call in enumerate(reply.calls, 1):
        block = {**body["content"][index], "input": {}}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for part in ("", *call.fragments()):
            delta = {"type": "input_json_delta", "partial_json": part}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


def _response_body(reply: Said) -> dict[str, Any]:
    part = {"type": "output_text", "text": reply.text, "annotations": []}
    spoken = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    made = [
        {
            "id": f"fc_{n}",
            "type": "function_call",
            "status": "completed",
            "call_id": f"call_{n}",
            "name": call.name,
            "arguments": json.dumps(call.args),
        }
        for n, call in enumerate(reply.calls)
    ]
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": [spoken, *made],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def _response_events(reply: Said) -> Iterator[dict[str, Any]]:
    body = _response_body(reply)
    numbered = enumerate(_unnumbered(body, reply))
    yield from ({**event, "sequence_number": number} for number, event in numbered)


def _unnumbered(body: dict[str, Any], reply: Said) -> Iterator[dict[str, Any]]:
    spoken, *made = body["output"]
    yield {"type": "response.created", "response": {**body, "status": "in_progress", "output": []}}
    yield {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {**spoken, "content": [], "status": "in_progress"},
    }
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    yield {
        "type": "response.content_part.added",
        **place,
        "part": {"type": "output_text", "text": "", "annotations": []},
    }
    yield {"type": "response.output_text.delta", **place, "delta": reply.text, "logprobs": []}
    yield {"type": "response.output_text.done", **place, "text": reply.text, "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": spoken["content"][0]}
    yield {"type": "response.output_item.done", "output_index": 0, "item": spoken}
    for index, (item, call) in enumerate(zip(made, reply.calls, strict=True), 1):
        where = {"item_id": item["id"], "output_index": index}
        begun = {**item, "arguments": "", "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        for part in call.fragments():
            yield {"type": "response.function_call_arguments.delta", **where, "delta": part}
        yield {
            "type": "response.function_call_arguments.done",
            **where,
            "arguments": item["arguments"],
            "name": call.name,
        }
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": body}
