"""The codec of OpenAI Chat Completions, and of the servers that are compatible with it.

Decisions that are this API's own:

- The output cap has two names. The one that the request uses is used; a request without a cap gets the one
  that the codec was made for, since OpenAI's newer models refuse ``max_tokens`` and many servers know nothing
  else.
- ``n`` choices are generated side by side, each up to the cap. A reply with several has no calls that run.
- An id is kept where there is one, but none is needed: some servers send it blank, and nothing is fetched
  by it.
- A call that stands in a reply which ended with ``stop`` is a call.
- A usage whose parts do not add up is none. Some servers leave reasoning out of ``completion_tokens`` but not
  out of the total; what they bill cannot be told from that.
- A continuation sends the messages again, then the reply's message as it came, with the fields that servers
  add to it, such as ``reasoning_content`` and signatures, which some refuse to go on without. ``annotations``
  are left out and audio is named by its id, because requests have no more than that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from memoflow.canonical import freeze_json
from memoflow.errors import ConfigurationError
from memoflow.providers import _chat_measure, _chat_request
from memoflow.providers._chat_events import chunks
from memoflow.providers._chat_messages import answers, first_message, handed_back
from memoflow.providers._chat_reply import read_body
from memoflow.providers._chat_stream import ChatAssembler
from memoflow.providers._request import check_cap
from memoflow.providers.base import (
    MAX_REPLY_BYTES,
    AnsweredCall,
    Measurement,
    MeasureMode,
    PreparedRequest,
    PriorRound,
    Reply,
)

if TYPE_CHECKING:
    from memoflow.tools import Toolset

__all__ = ["OpenAIChatCodec"]


class OpenAIChatCodec:
    """Requests, replies and streams of ``POST /v1/chat/completions`` as plain JSON.

    Args:
        cap_field: the field for the output cap of a request that names none: ``max_completion_tokens``, or
            ``max_tokens`` for servers that do not know the first.
        max_reply_bytes: largest reply that is read.
    """

    provider: ClassVar[str] = "openai"
    api: ClassVar[str] = "chat.completions"

    __slots__ = ("_cap_field", "_max_reply_bytes")

    def __init__(
        self, *, cap_field: str = _chat_request.CAP_FIELDS[0], max_reply_bytes: int = MAX_REPLY_BYTES
    ) -> None:
        if cap_field not in _chat_request.CAP_FIELDS:
            raise ConfigurationError(
                f"cap_field must be one of {', '.join(_chat_request.CAP_FIELDS)}. Correct it."
            )
        self._cap_field = cap_field
        self._max_reply_bytes = max_reply_bytes

    def prepare(
        self, request: Mapping[str, Any], toolset: Toolset | None = None, *, streaming: bool = False
    ) -> PreparedRequest:
        """Check and freeze a request; the toolset's schemas go in only if it has no ``tools`` key.

        Raises:
            InvalidRequest: it cannot be encoded, or has a key or value that cannot be right.
        """
        return _chat_request.prepare(request, toolset, streaming=streaming)

    def with_cap(self, body: dict[str, Any], cap: int) -> dict[str, Any]:
        """A copy of the body with this output cap in tokens, for each choice."""
        return {**body, _chat_request.cap_field(body) or self._cap_field: check_cap(cap)}

    def streamed(self, body: dict[str, Any]) -> dict[str, Any]:
        """A copy of the body that asks for chunks, one with the usage among them."""
        options = {**(body.get("stream_options") or {}), "include_usage": True}
        return {**body, "stream": True, "stream_options": options}

    def measure(self, prepared: PreparedRequest, mode: MeasureMode) -> Measurement:
        """Input tokens; ``estimate`` takes up to 3 ms of CPU per KB, ``bound`` next to nothing."""
        return _chat_measure.measure(prepared, mode)

    def needs_declaration(self, prepared: PreparedRequest) -> tuple[str, ...]:
        """Codes of the parts that cannot be measured locally, for example ``image``."""
        return _chat_measure.undeclared(prepared)

    def read(self, body: bytes) -> Reply:
        """Read a whole reply.

        Raises:
            UnreadableReply: it is not a completion, too large, or not strict JSON.
        """
        return read_body(body, max_bytes=self._max_reply_bytes)

    def mismatch(self, prepared: PreparedRequest, reply: Reply) -> str | None:
        """Whether another number of choices came than was asked for."""
        asked, got = prepared.choices, len(reply.body["choices"])
        return None if asked == got else f"it has {got} choices, and {asked} were asked for"

    def assembler(self, choices: int | None = None) -> ChatAssembler:
        """A fresh assembler for one stream.

        Args:
            choices: how many choices were asked for; without it a stream that was cut before one of them
                began cannot be told from a whole one.
        """
        return ChatAssembler(choices=choices, max_bytes=self._max_reply_bytes)

    def events(self, reply: Reply) -> list[dict[str, Any]]:
        """Chunks of a stream that ends in this reply."""
        return list(chunks(reply.body))

    def outputs(self, reply: Reply, results: Sequence[AnsweredCall]) -> list[dict[str, Any]]:
        """The messages that answer calls of a reply, in the given order."""
        return answers(results)

    def next_request(
        self, prepared: PreparedRequest, reply: Reply, outputs: Sequence[dict[str, Any]]
    ) -> PreparedRequest:
        """The request of the next round: nothing is reordered or repaired.

        Its input is known from the usage of ``reply``. Without a usage all of it is measured again.
        """
        appended = freeze_json(list(outputs))
        message, usage = first_message(reply.body), reply.usage
        body = {
            **prepared.body,
            "messages": [*prepared.body["messages"], handed_back(message), *appended],
        }
        frames = _chat_measure.frames_of(message)
        prior = PriorRound(usage.total, frames, tuple(appended)) if usage is not None else None
        return _chat_request.describe(body, streaming=prepared.streaming, prior=prior)
