"""Whole replies of chat completions.

With several choices the reply is cut short if one of them is; else the first one says why it ended. Calls
are those of the first choice, and they only run if there is no other: a further round could not tell the
model which of its answers it goes on with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from memoflow.providers._chat_messages import Calls, is_refusal, read_calls
from memoflow.providers._reading import (
    UsageFields,
    noted_problem,
    own_word,
    parse_body,
    plausible,
    read_usage,
    short_or_none,
    text_or_none,
)
from memoflow.providers.base import MAX_REPLY_BYTES, Reply, ReplyStatus, UnreadableReply
from memoflow.providers.http import safe_code

__all__ = ["STREAM_PROBLEMS", "USAGE", "read_body", "read_completion"]

USAGE: Final = UsageFields(
    "prompt_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details"
)

STREAM_PROBLEMS: Final = {
    "AFTER_END": "a choice went on after its end",
    "CALL_AMBIGUOUS": "a fragment of a call does not say which call it belongs to",
    "CALL_ID_CHANGED": "a call changed its id while it was streamed",
    "CALL_NAME": "a call was named more than once, or with something that is no name",
    "CALL_SHAPE": "a fragment of a call is not of the form the API has",
    "CHOICE_SHAPE": "a streamed choice is not of the form the API has",
    "END_CHANGED": "a choice ended for two different reasons",
    "ID_CHANGED": "the stream holds chunks of more than one reply",
    "UNASKED_CHOICE": "the stream holds a choice that was not asked for",
}
_CUT: Final = frozenset({"length", "content_filter"})


@dataclass(frozen=True, slots=True)
class _Choice:
    status: ReplyStatus
    reason: str
    paused: bool
    calls: Calls


def read_body(body: bytes, *, max_bytes: int = MAX_REPLY_BYTES) -> Reply:
    """Read the bytes of a reply; raises UnreadableReply."""
    return read_completion(parse_body(body, max_bytes))


def read_completion(value: Any) -> Reply:
    """Read a completion that is plain JSON; raises UnreadableReply."""
    if not isinstance(value, dict) or value.get("object") != "chat.completion":
        raise UnreadableReply("WRONG_OBJECT")
    given = value.get("choices")
    if not isinstance(given, list) or not given:
        raise UnreadableReply("NO_CHOICES")
    problem = noted_problem(value, STREAM_PROBLEMS.values()) or _shape_problem(given)
    choices = [_read_choice(one, alone=len(given) == 1 and not problem) for one in given]
    decisive = _decisive(choices)
    problem = problem or next((one.calls.problem for one in choices if one.calls.problem), None)
    return Reply(
        status=decisive.status,
        finish_reason=decisive.reason,
        usage=plausible(read_usage(value.get("usage"), USAGE), made=any(map(_holds_something, given))),
        calls=choices[0].calls.calls,
        hosted=(),
        response_id=text_or_none(value.get("id")),
        model=short_or_none(value.get("model")),
        service_tier=safe_code(value.get("service_tier")),
        body=value,
        problem=problem,
        needs_client=choices[0].calls.needs_client,
        paused=any(one.paused for one in choices),
    )


def _holds_something(choice: Any) -> bool:
    message = choice.get("message") if isinstance(choice, dict) else None
    return isinstance(message, dict) and any(message[key] for key in message.keys() - {"role"})


def _shape_problem(choices: list[Any]) -> str | None:
    for position, choice in enumerate(choices):
        if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
            return "a choice is not an object with a message"
        index = choice.get("index", position)
        if type(index) is not int or index != position:
            return "its choices are not numbered from 0"
    return None


def _decisive(choices: list[_Choice]) -> _Choice:
    """The choice that says how the reply ended: one without an end, else one cut short, else the first."""
    for status in ("pending", "incomplete"):
        for choice in choices:
            if choice.status == status:
                return choice
    return choices[0]


def _read_choice(choice: Any, *, alone: bool) -> _Choice:
    given = choice.get("message") if isinstance(choice, dict) else None
    message = given if isinstance(given, dict) else {}
    word = choice.get("finish_reason") if isinstance(choice, dict) else None
    if word is None or word == "":
        return _Choice("pending", "pending", False, read_calls(message, runnable=False))
    if word in ("stop", "tool_calls"):
        return _finished(word, message, alone=alone)
    calls = read_calls(message, runnable=False)
    if isinstance(word, str) and word in _CUT:
        return _Choice("incomplete", word, False, calls)
    if word == "function_call":
        problem = calls.problem or "it ended with a function_call, which was replaced by tool_calls"
        return _Choice("completed", word, False, Calls(calls.calls, calls.needs_client, problem))
    return _Choice("completed", own_word(word), True, calls)


def _finished(word: str, message: dict[str, Any], *, alone: bool) -> _Choice:
    calls = read_calls(message, runnable=alone)
    # The API itself says "stop" where a call was forced, and compatible servers always do.
    if calls.calls or calls.needs_client:
        return _Choice("completed", "tool_calls", False, calls)
    if word == "tool_calls":
        problem = calls.problem or "it ended for calls, but has none"
        return _Choice("completed", word, False, Calls((), (), problem))
    return _Choice("completed", "refusal" if is_refusal(message) else "stop", False, calls)
