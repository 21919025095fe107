"""The codec of OpenAI Embeddings.

Decisions that are this API's own:

- Nothing is generated: a request has no output cap, no stream, no tools and no further round.
- A request that names no ``encoding_format`` asks for base64, as the SDK does, since that is a quarter of the
  bytes; giving the caller lists of floats is a matter of whoever asked.
- A reply has no id. Its usage has no output.
- A reply does not say how many inputs there were, so `mismatch` compares it with the request.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from memoflow.errors import InvalidRequest
from memoflow.providers._reading import (
    UsageFields,
    parse_body,
    read_usage,
    short_or_none,
)
from memoflow.providers._request import SDK_KEYS, check_cap, check_mapping, read_model, refuse_keys
from memoflow.providers.base import (
    AnsweredCall,
    Assembler,
    Measurement,
    MeasureMode,
    PreparedRequest,
    Reply,
    UnreadableReply,
    Usage,
)
from memoflow.providers.measure import estimate_tokens, text_bytes

if TYPE_CHECKING:
    from memoflow.tools import Toolset

__all__ = ["MAX_EMBEDDINGS_BYTES", "MAX_INPUTS", "TEXT_TOKENS", "OpenAIEmbeddingsCodec"]

MAX_INPUTS: Final = 2048
"""Most inputs the API embeds for one request."""

MAX_EMBEDDINGS_BYTES: Final = 128 * 1024 * 1024
"""Largest reply: that many vectors of the longest kind, written as decimals."""

_FLOAT_BYTES: Final = 4
TEXT_TOKENS: Final = 4
"""Tokens that a model may put around a text of its own."""

_USAGE: Final = UsageFields("prompt_tokens", "completion_tokens", "prompt_tokens_details", "")


class OpenAIEmbeddingsCodec:
    """Requests and replies of ``POST /v1/embeddings`` as plain JSON.

    Args:
        max_reply_bytes: largest reply that is read.
    """

    provider: ClassVar[str] = "openai"
    api: ClassVar[str] = "embeddings"

    __slots__ = ("_max_reply_bytes",)

    def __init__(self, *, max_reply_bytes: int = MAX_EMBEDDINGS_BYTES) -> None:
        self._max_reply_bytes = max_reply_bytes

    def prepare(
        self, request: Mapping[str, Any], toolset: Toolset | None = None, *, streaming: bool = False
    ) -> PreparedRequest:
        """Check and freeze a request.

        Raises:
            InvalidRequest: it cannot be encoded, or has a key or value that cannot be right.
        """
        body = check_mapping(request)
        refuse_keys(body, SDK_KEYS)
        if streaming:
            _no_stream()
        if toolset is not None and len(toolset):
            raise InvalidRequest("Embeddings call no tools. Leave the tools out of this call.")
        _inputs(body.get("input"))
        if body.get("encoding_format") is None:
            body["encoding_format"] = "base64"
        return PreparedRequest(
            body=body,
            model=read_model(body),
            output_cap=None,
            streaming=False,
            offered=None,
            calls_allowed=False,
            choices=0,
        )

    def with_cap(self, body: dict[str, Any], cap: int) -> dict[str, Any]:
        """A copy of the body: nothing is generated that could be capped."""
        check_cap(cap)
        return dict(body)

    def streamed(self, body: dict[str, Any]) -> NoReturn:
        """Raise InvalidRequest: there are no events."""
        _no_stream()

    def measure(self, prepared: PreparedRequest, mode: MeasureMode) -> Measurement:
        """Input tokens; inputs that are tokens already are counted."""
        inputs = _inputs(prepared.body["input"])
        texts = [one for one in inputs if isinstance(one, str)]
        tokens = sum(len(one) for one in inputs if not isinstance(one, str)) + TEXT_TOKENS * len(texts)
        if mode == "bound":
            tokens += sum(map(text_bytes, texts))
        else:
            # Each is cut into tokens on its own, so one that is short has no part of another's margin.
            tokens += sum(estimate_tokens([text], prepared.model) for text in texts)
        return Measurement(tokens, mode)

    def needs_declaration(self, prepared: PreparedRequest) -> tuple[str, ...]:
        """Nothing: all input is text or tokens."""
        return ()

    def read(self, body: bytes) -> Reply:
        """Read a whole reply.

        Raises:
            UnreadableReply: it is not a list of embeddings, too large, or not strict JSON.
        """
        value = parse_body(body, self._max_reply_bytes)
        if not isinstance(value, dict) or value.get("object") != "list":
            raise UnreadableReply("WRONG_OBJECT")
        if not isinstance(value.get("data"), list):
            raise UnreadableReply("NO_DATA")
        return Reply(
            status="completed",
            finish_reason="stop",
            usage=_usage(value.get("usage")),
            calls=(),
            hosted=(),
            response_id=None,
            model=short_or_none(value.get("model")),
            service_tier=None,
            body=value,
            problem=_problem(value["data"]),
        )

    def mismatch(self, prepared: PreparedRequest, reply: Reply) -> str | None:
        """What is wrong with a reply to this request: another number of vectors than inputs; else None."""
        asked, got = len(_inputs(prepared.body["input"])), len(reply.body["data"])
        return None if asked == got else f"it has {got} embeddings for {asked} inputs"

    def assembler(self, choices: int | None = None) -> Assembler:
        """Raise InvalidRequest: there are no events."""
        _no_stream()

    def events(self, reply: Reply) -> tuple[dict[str, Any], ...]:
        """Nothing: there are no events."""
        return ()

    def outputs(self, reply: Reply, results: Sequence[AnsweredCall]) -> list[dict[str, Any]]:
        """Nothing: there are no calls."""
        return []

    def next_request(
        self, prepared: PreparedRequest, reply: Reply, outputs: Sequence[dict[str, Any]]
    ) -> PreparedRequest:
        """Raise InvalidRequest: there is no further round."""
        raise InvalidRequest("Embeddings have no further round. Make another call.")


def _no_stream() -> NoReturn:
    raise InvalidRequest("Embeddings have no stream. Call run() for a whole reply.")


def _inputs(given: Any) -> list[str | list[int]]:
    """The inputs of a request, each a text or tokens."""
    inputs = [given] if isinstance(given, str) or _are_tokens(given) else given
    known = isinstance(inputs, list) and all(isinstance(one, str) or _are_tokens(one) for one in inputs)
    if not known or len({type(one) for one in inputs}) != 1:
        raise InvalidRequest(
            "input must be a text, a list of texts, a list of tokens, or a list of lists of tokens, and not "
            "empty. Correct it."
        )
    if len(inputs) > MAX_INPUTS:
        raise InvalidRequest(
            f"The request has {len(inputs)} inputs, and the API takes {MAX_INPUTS} at most. "
            "Make several calls."
        )
    return list(inputs)


def _are_tokens(given: Any) -> bool:
    return (
        isinstance(given, list) and bool(given) and all(type(token) is int and token >= 0 for token in given)
    )


def _usage(given: Any) -> Usage | None:
    # A compatible server may say that no output was made; one that made some is no embedding server.
    usage = read_usage({"completion_tokens": 0, **given}, _USAGE) if isinstance(given, dict) else None
    # Nor was any input ever embedded that has no token: servers that do not count say zero.
    return usage if usage is not None and usage.input_tokens and not usage.output_tokens else None


def _problem(data: list[Any]) -> str | None:
    if not data:
        return "it has no embeddings"
    given = [one.get("index") for one in data if isinstance(one, dict)]
    if sorted(index for index in given if type(index) is int) != list(range(len(data))):
        return "its embeddings are not numbered from 0, each number once"
    if not all(_is_vector(one.get("embedding")) for one in data):
        return "an embedding is neither numbers nor base64 of them"
    return None


def _is_vector(given: Any) -> bool:
    if isinstance(given, list):
        return bool(given) and all(type(number) in (int, float) for number in given)
    try:
        raw = base64.b64decode(given, validate=True) if isinstance(given, str) else b""
    except ValueError:
        return False
    return bool(raw) and len(raw) % _FLOAT_BYTES == 0
