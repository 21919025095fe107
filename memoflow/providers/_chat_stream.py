"""Streams of chat completions: chunks in, one reply out.

A stream has no terminal snapshot, so the body that a whole reply would have had is put together here, and
read by what reads whole replies. What contradicted itself on the way is written into that body, since
the body is all that is kept of a stream. The reply is there when every choice has said why it ended; a usage
that comes after that belongs to it, and one that came before may have been counted too early.
"""

from __future__ import annotations

import json
from types import NoneType
from typing import Any, Final

from memoflow.canonical import freeze_json
from memoflow.errors import InvalidRequest
from memoflow.providers._assembling import Assembling
from memoflow.providers._chat_calls import StreamedCalls
from memoflow.providers._chat_merge import Text, merge, plain
from memoflow.providers._chat_reply import STREAM_PROBLEMS, read_completion
from memoflow.providers._reading import STREAM_PROBLEM, event_code, text_or_none
from memoflow.providers.base import MAX_REPLY_BYTES, Reply, UnreadableReply
from memoflow.providers.measure import json_bytes, text_bytes

__all__ = ["MAX_CHOICES", "ChatAssembler"]

MAX_CHOICES: Final = 128
"""Most choices the API generates for one request."""

# Of one chunk, not of the reply.
_OF_A_CHUNK: Final = frozenset({"choices", "object", "obfuscation", "usage", STREAM_PROBLEM})
# Filter results and the like are repeated whole in every chunk; these are not.
_GROWING: Final = ("logprobs",)
_OF_A_DELTA: Final = frozenset({"delta", "finish_reason", "index", "message", *_GROWING})
# What nearly all chunks have: a word of text, and about as many bytes of JSON around it.
_USUAL: Final = frozenset({"delta", "finish_reason", "index", "logprobs"})
_USUAL_IN_DELTA: Final = frozenset({"content", "reasoning", "reasoning_content", "refusal", "role"})
_SCALARS: Final = frozenset({int, str, NoneType})
_FRAME_BYTES: Final = 64
_MATERIAL: Final = ("content", "function_call", "refusal", "tool_calls")


class ChatAssembler(Assembling):
    """Takes the chunks of one stream as plain JSON objects.

    Args:
        choices: how many choices were asked for; None takes the stream's word for it.
        max_bytes: most bytes of JSON that are collected.
    """

    __slots__ = ("_asked", "_choices", "_dead", "_frame", "_max_bytes", "_size", "_top", "_usage")

    def __init__(self, *, choices: int | None = None, max_bytes: int = MAX_REPLY_BYTES) -> None:
        super().__init__()
        self._asked = choices
        self._max_bytes = max_bytes
        self._size = 0
        self._top: dict[str, Any] = {}
        self._frame: dict[str, Any] | None = None
        self._choices: dict[int, _Choice] = {}
        self._usage: Any = None
        self._dead = False

    @property
    def skipped(self) -> tuple[str, ...]:
        """None: chunks have no names, and each is a part of the reply."""
        return ()

    def reply(self) -> Reply | None:
        """The reply, or None until every choice has ended; a later chunk may still bring its usage."""
        if self._dead or self._failed or not self._is_complete():
            return None
        if self._reply is None:
            body = self._recordable()
            if body is None:
                self._dead = True
                return None
            self._reply = read_completion(body)
        return self._reply

    def feed(self, event: dict[str, Any]) -> None:
        """Take the next chunk; what is no chunk is skipped.

        Raises:
            UnreadableReply: it cannot be part of a reply; there is none then.
        """
        if self._dead or self._failed or not isinstance(event, dict):
            return
        if event.get("error") or event.get("type") == "error":
            self._fail(event)
        elif isinstance(event.get("choices"), list):
            self._reply = None
            try:
                frame = _frame(event)
                if frame is None or frame != self._frame or not self._take_word(event["choices"][0]):
                    self._take(event, self._owned(event["choices"]))
                    self._frame = frame
            except UnreadableReply:
                self._dead = True
                raise
            except RecursionError:
                self._dead = True
                raise UnreadableReply("NOT_JSON") from None

    def _fail(self, event: dict[str, Any]) -> None:
        if not self._is_complete():
            self._failed = True
            self._error_code = event_code(event)

    def _take_word(self, choice: dict[str, Any]) -> bool:
        """Take what nearly every chunk has, one more piece of a text that grows; whether it has only that."""
        index, delta = choice.get("index"), choice.get("delta")
        if type(index) is not int or type(delta) is not dict or len(delta) != 1 or self._usage is not None:
            return False
        text, known = delta.get("content"), self._choices.get(index)
        if type(text) is not str or known is None or not known.grows():
            return False
        if choice.get("logprobs") is not None or not choice.keys() <= _USUAL:
            return False
        self._grow(_FRAME_BYTES + self._sized(text))
        known.grow(text)
        return True

    def _owned(self, choices: list[Any]) -> list[Any]:
        """A copy of the choices of a chunk, which may be changed.

        For every word of a stream, so only as much as tells that it is JSON; what it all came to is
        checked in full at the end.
        """
        if len(choices) != 1 or (copy := _flat_copy(choices[0])) is None:
            return list(self._copied(choices))
        texts = [value for part in (copy["delta"], copy) for value in part.values() if type(value) is str]
        self._grow(_FRAME_BYTES + sum(map(self._sized, texts)))
        return [copy]

    @staticmethod
    def _sized(text: str) -> int:
        try:
            return text_bytes(text)
        except UnicodeEncodeError:
            raise UnreadableReply("NOT_JSON") from None

    def _copied(self, value: Any) -> Any:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
            self._grow(len(text.encode()))
        except (TypeError, ValueError, RecursionError):
            raise UnreadableReply("NOT_JSON") from None
        return json.loads(text)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._max_bytes:
            raise UnreadableReply("TOO_LARGE")

    def _take(self, chunk: dict[str, Any], choices: list[Any]) -> None:
        self._identify(chunk.get("id"))
        for key, value in chunk.items():
            if key in _OF_A_CHUNK or (key in self._top and (value == self._top[key] or value in (None, ""))):
                continue
            self._top |= self._copied({key: value})
        ended = 0 if self._usage is None else self._ended()
        for choice in choices:
            self._note(self._take_choice(choice, len(choices) == 1))
        if self._usage is not None and (self._ended() > ended or not self._is_complete()):
            self._usage = None
        if chunk.get("usage") is not None and self._is_complete():
            self._usage = self._copied(chunk["usage"])

    def _identify(self, value: Any) -> None:
        found = text_or_none(value)
        # Filter results of some servers come in chunks whose id is blank.
        if found is not None and self._response_id not in (None, found):
            self._note("ID_CHANGED")
        self._response_id = self._response_id or found

    def _note(self, problem: str | None) -> None:
        self._problem = self._problem or problem

    def _take_choice(self, choice: Any, alone: bool) -> str | None:
        index = choice.get("index", 0 if alone else None) if isinstance(choice, dict) else None
        if type(index) is not int or not 0 <= index < MAX_CHOICES:
            return "CHOICE_SHAPE"
        if self._asked is not None and index >= self._asked:
            return "UNASKED_CHOICE"
        return self._choices.setdefault(index, _Choice()).take(choice)

    def _ended(self) -> int:
        return sum(choice.ended for choice in self._choices.values())

    def _is_complete(self) -> bool:
        count = len(self._choices) if self._asked is None else self._asked
        return self._ended() == len(self._choices) == count > 0 and max(self._choices) == count - 1

    def _recordable(self) -> dict[str, Any] | None:
        """The body, if it can be read again from its record, which is held to the rules of a whole reply."""
        try:
            body = self._body()
            freeze_json(body)
        except (InvalidRequest, RecursionError):
            return None
        return body if json_bytes(body) <= self._max_bytes else None

    def _body(self) -> dict[str, Any]:
        body = {**self._top, "id": self._response_id or self._top.get("id"), "object": "chat.completion"}
        body["choices"] = [self._choices[index].body(index) for index in sorted(self._choices)]
        if self._usage is not None:
            body["usage"] = self._usage
        if self._problem is not None:
            body[STREAM_PROBLEM] = STREAM_PROBLEMS[self._problem]
        return body


def _frame(chunk: dict[str, Any]) -> dict[str, Any] | None:
    """What stands around the only delta of a chunk, and is mostly the same from one to the next."""
    choices = chunk["choices"]
    if len(choices) != 1 or type(choices[0]) is not dict:
        return None
    choice = choices[0].copy()
    choice.pop("delta", None)
    frame = {**chunk, "choices": choice}
    frame.pop("obfuscation", None)
    return frame


def _flat_copy(choice: Any) -> dict[str, Any] | None:
    """A copy of a choice that has only the usual fields, and text or less in them; else None."""
    delta = choice.get("delta") if type(choice) is dict else None
    if type(delta) is not dict or not (choice.keys() <= _USUAL and delta.keys() <= _USUAL_IN_DELTA):
        return None
    copy = {**choice, "delta": None}
    if not (_SCALARS.issuperset(map(type, copy.values())) and _SCALARS.issuperset(map(type, delta.values()))):
        return None
    return {**copy, "delta": {**delta}}


class _Choice:
    """One choice of a stream."""

    __slots__ = ("_calls", "_end", "_has_calls", "_message", "_more")

    def __init__(self) -> None:
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._more: dict[str, Any] = {}
        self._calls = StreamedCalls()
        self._has_calls = False
        self._end: Any = None

    @property
    def ended(self) -> bool:
        """Whether it has said why it ended."""
        return self._end is not None

    def body(self, index: int) -> dict[str, Any]:
        """The choice as a whole reply would have it."""
        message = plain(self._message)
        if self._has_calls:
            message["tool_calls"] = self._calls.plain()
        return {"index": index, "message": message, **plain(self._more), "finish_reason": self._end}

    def grows(self) -> bool:
        """Whether it is in the middle of a text."""
        return self._end is None and type(self._message["content"]) is Text

    def grow(self, text: str) -> None:
        """Take one more piece of it."""
        self._message["content"].pieces.append(text)

    def take(self, choice: dict[str, Any]) -> str | None:
        """Take a choice of a chunk; returns the code of what is wrong with it."""
        problem = self._take_delta(choice)
        self._take_more(choice)
        end = choice.get("finish_reason")
        if end is None or end == "":
            return problem
        if self._end not in (None, end):
            problem = problem or "END_CHANGED"
        self._end = end if self._end is None else self._end
        return problem

    def _take_more(self, choice: dict[str, Any]) -> None:
        merge(self._more, {key: choice[key] for key in _GROWING if key in choice})
        for key, value in choice.items():
            if key not in _OF_A_DELTA and (value is not None or key not in self._more):
                self._more[key] = value

    def _take_delta(self, choice: dict[str, Any]) -> str | None:
        delta = choice.get("delta")
        if delta is None:
            # Some servers repeat the message so far beside the delta, but none sends it instead.
            return "CHOICE_SHAPE" if choice.get("message") is not None else None
        if not isinstance(delta, dict):
            return "CHOICE_SHAPE"
        late = self.ended and any(delta.get(key) for key in _MATERIAL)
        fragments = delta.pop("tool_calls", None)
        merge(self._message, delta)
        problem = self._take_calls(fragments)
        return "AFTER_END" if late else problem

    def _take_calls(self, fragments: Any) -> str | None:
        if fragments is None:
            return None
        self._has_calls = True
        return self._calls.take(fragments)
