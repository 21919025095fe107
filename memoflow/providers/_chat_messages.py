"""Messages of chat completions: the calls in one, what answers them, and how one is handed back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from memoflow.providers._chat_calls import KINDS
from memoflow.providers._reading import repeated_ids, text_or_none
from memoflow.providers.base import AnsweredCall, CallKind, RequestedCall
from memoflow.providers.http import safe_code

__all__ = ["Calls", "answers", "first_message", "handed_back", "is_refusal", "read_calls"]

# Fields of a reply's message that a request's message does not have.
_REPLY_ONLY: Final = frozenset({"annotations", "function_call"})
_CALL_KINDS: Final[dict[str, CallKind]] = {"function": "function", "custom": "custom"}


@dataclass(frozen=True, slots=True)
class Calls:
    """What one message asks for."""

    calls: tuple[RequestedCall, ...]
    needs_client: tuple[str, ...]
    problem: str | None


def read_calls(message: dict[str, Any], *, runnable: bool) -> Calls:
    """The calls of a message; none is complete unless ``runnable`` and nothing contradicts itself."""
    given = message.get("tool_calls")
    entries = given if isinstance(given, list) else []
    problem = None if given is None or isinstance(given, list) else "its calls are no list"
    if message.get("function_call") is not None:
        problem = "it holds a function_call, which was replaced by tool_calls"
    read = [_read_call(entry, ordinal) for ordinal, entry in enumerate(entries)]
    problem = problem or next((one for one in read if isinstance(one, str)), None)
    found = [one for one in read if isinstance(one, tuple)]
    problem = problem or repeated_ids(_calls(found, complete=False))
    return Calls(
        calls=_calls(found, complete=runnable and problem is None),
        needs_client=tuple(one[0] for one in found if one[0] not in _CALL_KINDS),
        problem=problem,
    )


def _calls(found: list[tuple[str, str, str, str]], *, complete: bool) -> tuple[RequestedCall, ...]:
    own = [one for one in found if one[0] in _CALL_KINDS]
    return tuple(
        RequestedCall(ordinal, call_id, name, None, _CALL_KINDS[kind], text, complete)
        for ordinal, (kind, call_id, name, text) in enumerate(own)
    )


def _read_call(entry: Any, ordinal: int) -> tuple[str, str, str, str] | str:
    """Kind, id, name and text of a call, or what is wrong with it."""
    kind = _kind(entry)
    if kind is None:
        return f"call {ordinal} is not an object with a type"
    call_id = text_or_none(entry.get("id"))
    if call_id is None:
        return f"call {ordinal} has no usable call id"
    if kind not in KINDS:
        # It waits for an answer of a form that only the caller can know.
        return safe_code(kind) or "unknown", call_id, "", ""
    part = entry.get(kind)
    name, text = (part.get("name"), part.get(KINDS[kind])) if isinstance(part, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(text, str):
        return f"call {ordinal} has no name or no arguments as text"
    if "\0" in name:
        return f"call {ordinal} has a name that is no name"
    return kind, call_id, name, text


def _kind(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return None
    kind = entry.get("type")
    if kind is None and isinstance(entry.get("function"), dict):
        # Compatible servers leave the type out where there is only one.
        return "function"
    return kind if isinstance(kind, str) and kind else None


def is_refusal(message: dict[str, Any]) -> bool:
    """Whether the model refused, in the field the API has for it."""
    refusal = message.get("refusal")
    return isinstance(refusal, str) and bool(refusal.strip())


def answers(results: Sequence[AnsweredCall]) -> list[dict[str, Any]]:
    """The messages that answer calls, in the given order; function and custom calls alike."""
    return [{"role": "tool", "tool_call_id": one.request.call_id, "content": one.text} for one in results]


def first_message(body: dict[str, Any]) -> dict[str, Any]:
    """The message of the first choice of a reply, empty if it has none."""
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    return message if isinstance(message, dict) else {}


def handed_back(message: dict[str, Any]) -> dict[str, Any]:
    """A reply's message as one of a request: verbatim, but for what requests do not take."""
    kept = {key: value for key, value in message.items() if key not in _REPLY_ONLY}
    if not kept.get("tool_calls"):
        # Some servers send an empty list, and the API refuses one.
        kept.pop("tool_calls", None)
    audio = kept.get("audio")
    if isinstance(audio, dict):
        kept["audio"] = {"id": audio.get("id")}
    return {"role": "assistant", **kept}
