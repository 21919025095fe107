"""The APIs whose requests are reserved before they are forwarded, and what a virtual key can be for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from memoflow.providers import anthropic_messages, openai_responses
from memoflow.providers.anthropic_messages import AnthropicMessagesCodec
from memoflow.providers.base import Codec
from memoflow.providers.openai_chat import OpenAIChatCodec
from memoflow.providers.openai_embeddings import OpenAIEmbeddingsCodec
from memoflow.providers.openai_responses import OpenAIResponsesCodec

__all__ = ["GeneratingApi"]


@dataclass(frozen=True, slots=True, eq=False)
class GeneratingApi:
    """An API that generates.

    Attributes:
        kind: its codec.
        path: where it is, here and at the provider.
        cap_fields: the fields of a request that hold an output cap.
        count_path: where the provider counts the input of a request, or None.
        counted: the fields of a request that the counting endpoint takes.
        done: what a stream of it ends with, after its last event.
        usage_on_request: whether a stream tells its usage only if it is asked to.
        stores: whether the provider keeps replies, which can be asked for by their id.
    """

    kind: type[Any]
    path: str
    cap_fields: tuple[str, ...] = ()
    count_path: str | None = None
    counted: frozenset[str] = frozenset()
    done: bytes = b""
    usage_on_request: bool = False
    stores: bool = False

    @property
    def name(self) -> str:
        """How a virtual key names it."""
        return str(self.kind.api)

    @property
    def provider(self) -> str:
        """Whose API it is."""
        return str(self.kind.provider)

    def codec(self, max_reply_bytes: int) -> Codec:
        """Its codec, for replies up to a size."""
        made: Codec = self.kind(max_reply_bytes=max_reply_bytes)
        return made


RESPONSES: Final = GeneratingApi(
    kind=OpenAIResponsesCodec,
    path="/v1/responses",
    cap_fields=("max_output_tokens",),
    count_path="/v1/responses/input_tokens",
    counted=openai_responses.COUNTED,
    stores=True,
)
CHAT: Final = GeneratingApi(
    kind=OpenAIChatCodec,
    path="/v1/chat/completions",
    cap_fields=("max_completion_tokens", "max_tokens"),
    done=b"data: [DONE]\n\n",
    usage_on_request=True,
)
EMBEDDINGS: Final = GeneratingApi(kind=OpenAIEmbeddingsCodec, path="/v1/embeddings")
MESSAGES: Final = GeneratingApi(
    kind=AnthropicMessagesCodec,
    path="/v1/messages",
    cap_fields=("max_tokens",),
    count_path="/v1/messages/count_tokens",
    counted=anthropic_messages.COUNTED,
)
GENERATING: Final = (RESPONSES, CHAT, EMBEDDINGS, MESSAGES)

COUNT: Final = "count_tokens"
MODELS: Final = "models"
ENDPOINTS: Final = (*(api.name for api in GENERATING), COUNT, MODELS)
"""Every endpoint that a virtual key can be for. What is done with a stored reply goes with ``responses``."""
