"""The codec of the Anthropic Messages API.

Decisions that are this API's own:

- ``max_tokens`` is required by the API. Zero, which only fills a prompt cache, is refused: nothing would be
  generated that could be returned or recorded.
- Input counts with what was read from and written to the cache; the provider reports the three apart.
- ``pause_turn``, and any stop reason unknown here, is not the end of the turn. Handing the reply back as the
  last message lets the model go on.
- Calls run after ``tool_use`` or ``end_turn`` alone. After any other stop reason the input of a call may have
  been cut and repaired by the provider. The calls of a refusal are not answered at all.
- The input of a streamed call is parsed once, strictly, when the stream has ended. Text that is no object is
  kept as it came, beside an empty input, so that the call is refused live and restored alike.
- ``tool_choice`` stays as it is in every round, so a call that is forced is asked for until the rounds are
  used up.
- A continuation sends all messages again, then every content block verbatim and the answers in one user
  message. A reply that went on with the assistant's own turn (a prefill, a pause) becomes part of that turn.
- The container that code ran in is named in the next round.
- A reply cannot be retrieved later: a lost one stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from memoflow.providers import _messages_measure, _messages_request
from memoflow.providers._messages_blocks import answers
from memoflow.providers._messages_events import events_of
from memoflow.providers._messages_reply import read_body
from memoflow.providers._messages_stream import MessagesAssembler
from memoflow.providers._request import check_cap
from memoflow.providers.base import (
    MAX_REPLY_BYTES,
    AnsweredCall,
    Measurement,
    MeasureMode,
    PreparedRequest,
    Reply,
)

if TYPE_CHECKING:
    from memoflow.tools import Toolset

__all__ = ["COUNTED", "AnthropicMessagesCodec"]

COUNTED: Final = frozenset(
    {
        "cache_control",
        "messages",
        "model",
        "output_config",
        "system",
        "thinking",
        "tool_choice",
        "tools",
    }
)
"""The fields of a request that the endpoint takes which counts its input."""


class AnthropicMessagesCodec:
    """Requests, replies and streams of ``POST /v1/messages`` as plain JSON.

    Args:
        max_reply_bytes: largest reply that is read.
        strict_tools: whether registered tools ask the provider to enforce their schema where it can; turn it
            off for a model or a compatible server that does not know ``strict``.
    """

    provider: ClassVar[str] = "anthropic"
    api: ClassVar[str] = "messages"

    __slots__ = ("_max_reply_bytes", "_strict_tools")

    def __init__(self, *, max_reply_bytes: int = MAX_REPLY_BYTES, strict_tools: bool = True) -> None:
        self._max_reply_bytes = max_reply_bytes
        self._strict_tools = strict_tools

    def prepare(
        self, request: Mapping[str, Any], toolset: Toolset | None = None, *, streaming: bool = False
    ) -> PreparedRequest:
        """Check and freeze a request; the toolset's schemas go in only if it has no ``tools`` key.

        Raises:
            InvalidRequest: it cannot be encoded, or has a key or value that cannot be right.
        """
        return _messages_request.prepare(
            request, toolset, streaming=streaming, strict_tools=self._strict_tools
        )

    def with_cap(self, body: dict[str, Any], cap: int) -> dict[str, Any]:
        """A copy of the body with this output cap in tokens, which bounds thinking and visible tokens."""
        return {**body, _messages_request.CAP_FIELD: check_cap(cap)}

    def streamed(self, body: dict[str, Any]) -> dict[str, Any]:
        """A copy of the body that asks for events, which always bring the usage."""
        return {**body, "stream": True}

    def measure(self, prepared: PreparedRequest, mode: MeasureMode) -> Measurement:
        """Input tokens; ``estimate`` takes up to 3 ms of CPU per KB, ``bound`` next to nothing."""
        return _messages_measure.measure(prepared, mode)

    def needs_declaration(self, prepared: PreparedRequest) -> tuple[str, ...]:
        """Codes of the parts that cannot be measured locally, for example ``image``."""
        return _messages_measure.undeclared(prepared)

    def read(self, body: bytes) -> Reply:
        """Read a whole reply.

        Raises:
            UnreadableReply: it is not a message object, too large, or not strict JSON.
        """
        return read_body(body, max_bytes=self._max_reply_bytes)

    def mismatch(self, prepared: PreparedRequest, reply: Reply) -> str | None:
        """None: nothing in a reply can be counted against its request."""
        return None

    def assembler(self, choices: int | None = None) -> MessagesAssembler:
        """A fresh assembler for one stream."""
        return MessagesAssembler(max_bytes=self._max_reply_bytes)

    def events(self, reply: Reply) -> tuple[dict[str, Any], ...]:
        """The events of a stream that ended in this reply, its texts in one delta each."""
        return events_of(reply.body)

    def outputs(self, reply: Reply, results: Sequence[AnsweredCall]) -> list[dict[str, Any]]:
        """The one user message that answers calls of a reply, in the given order."""
        return answers(results)

    def next_request(
        self, prepared: PreparedRequest, reply: Reply, outputs: Sequence[dict[str, Any]]
    ) -> PreparedRequest:
        """The request of the next round; without outputs it lets a paused reply go on.

        Its input is known from the usage of ``reply``. Without a usage all of it is measured again.
        """
        return _messages_request.following(prepared, reply, outputs)
