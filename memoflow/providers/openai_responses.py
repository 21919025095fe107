"""The codec of the OpenAI Responses API.

Decisions that are this API's own:

- A request may not ask for ``background``: its reply would be queued, and the call could not wait for it.
- ``tool_choice`` narrows what is offered: ``none`` allows no call, a forced or allowed subset only itself.
  It stays as it is in every round, so a call that is forced is asked for until the rounds are used up.
- An item without a status counts as complete. A call that is answered in the same reply ran at the
  provider and is not offered again.
- A continuation sends the whole input again, followed by every output item verbatim and the answers. With
  ``conversation`` the API adds items of a round by itself, so only the answers are sent. A
  ``previous_response_id`` of the caller is kept: it stands for the history before this call, works with
  ``store: false``, and would be lost if each round pointed to the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from memoflow.canonical import freeze_json
from memoflow.providers import _responses_measure, _responses_request
from memoflow.providers._request import check_cap
from memoflow.providers._responses_events import events_of
from memoflow.providers._responses_items import answers
from memoflow.providers._responses_reply import read_body
from memoflow.providers._responses_stream import ResponsesAssembler
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

__all__ = ["COUNTED", "OpenAIResponsesCodec"]

COUNTED: Final = frozenset(
    {
        "conversation",
        "input",
        "instructions",
        "model",
        "parallel_tool_calls",
        "previous_response_id",
        "reasoning",
        "text",
        "tool_choice",
        "tools",
        "truncation",
    }
)
"""The fields of a request that the endpoint takes which counts its input."""


class OpenAIResponsesCodec:
    """Requests, replies and streams of ``POST /v1/responses`` as plain JSON.

    Args:
        max_reply_bytes: largest reply that is read.
    """

    provider: ClassVar[str] = "openai"
    api: ClassVar[str] = "responses"

    __slots__ = ("_max_reply_bytes",)

    def __init__(self, *, max_reply_bytes: int = MAX_REPLY_BYTES) -> None:
        self._max_reply_bytes = max_reply_bytes

    def prepare(
        self, request: Mapping[str, Any], toolset: Toolset | None = None, *, streaming: bool = False
    ) -> PreparedRequest:
        """Check and freeze a request; the toolset's schemas go in only if it has no ``tools`` key.

        Raises:
            InvalidRequest: it cannot be encoded, or has a key or value that cannot be right.
        """
        return _responses_request.prepare(request, toolset, streaming=streaming)

    def with_cap(self, body: dict[str, Any], cap: int) -> dict[str, Any]:
        """A copy of the body with this output cap in tokens, which bounds visible and reasoning tokens."""
        return {**body, _responses_request.CAP_FIELD: check_cap(cap)}

    def streamed(self, body: dict[str, Any]) -> dict[str, Any]:
        """A copy of the body that asks for events; the terminal one has the usage."""
        return {**body, "stream": True}

    def measure(self, prepared: PreparedRequest, mode: MeasureMode) -> Measurement:
        """Input tokens; ``estimate`` takes up to 3 ms of CPU per KB, ``bound`` next to nothing."""
        return _responses_measure.measure(prepared, mode)

    def needs_declaration(self, prepared: PreparedRequest) -> tuple[str, ...]:
        """Codes of the parts that cannot be measured locally, for example ``image``."""
        return _responses_measure.undeclared(prepared)

    def read(self, body: bytes) -> Reply:
        """Read a whole reply.

        Raises:
            UnreadableReply: it is not a response object, too large, or not strict JSON.
        """
        return read_body(body, max_bytes=self._max_reply_bytes)

    def mismatch(self, prepared: PreparedRequest, reply: Reply) -> str | None:
        """None: nothing in a reply can be counted against its request."""
        return None

    def assembler(self, choices: int | None = None) -> ResponsesAssembler:
        """A fresh assembler for one stream."""
        return ResponsesAssembler()

    def events(self, reply: Reply) -> tuple[dict[str, Any], ...]:
        """The events of a stream that ended in this reply, its texts and arguments in one delta each."""
        return events_of(reply.body, reply.status)

    def outputs(self, reply: Reply, results: Sequence[AnsweredCall]) -> list[dict[str, Any]]:
        """The items that answer calls of a reply, in the given order."""
        return answers(results, reply.body.get("output") or [])

    def next_request(
        self, prepared: PreparedRequest, reply: Reply, outputs: Sequence[dict[str, Any]]
    ) -> PreparedRequest:
        """The request of the next round: nothing is left out, reordered or repaired.

        Its input is known from the usage of ``reply``. Without a usage all of it is measured again.
        """
        appended = freeze_json(list(outputs))
        output = reply.body.get("output") or []
        if prepared.body.get("conversation") is not None:
            items = appended
        else:
            items = [*_as_items(prepared.body.get("input")), *output, *appended]
        usage = reply.usage
        prior = PriorRound(usage.total, len(output), tuple(appended)) if usage is not None else None
        body = {**prepared.body, "input": items}
        return _responses_request.describe(body, streaming=prepared.streaming, prior=prior)


def _as_items(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return list(given or [])
