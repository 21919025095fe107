"""Embeddings: deterministic vectors of any input, or the ones a script gives."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memoflow.providers.base import Usage
from memoflow.testing._api import billing, decode
from memoflow.testing._encoding import encode_json
from memoflow.testing._openai_dialects import error_chunk
from memoflow.testing._openai_path import OnePath
from memoflow.testing._openai_rules import UNREADABLE, about, check_least, missing, mistyped
from memoflow.testing._play import Rendering
from memoflow.testing._rejections import Rejection
from memoflow.testing._request import ProviderRequest
from memoflow.testing._script import ModelReply
from memoflow.testing._tokens import count_text
from memoflow.testing._usage import resolve_usage, spoil_usage
from memoflow.testing._wire import RecordedRequest

__all__ = ["EmbeddingsApi"]

_DIMENSIONS, _MOST_INPUTS = 8, 2048


class EmbeddingsApi(OnePath):
    """``/v1/embeddings``. It keeps no state."""

    name = "embeddings"
    path = "/v1/embeddings"

    def read(self, record: RecordedRequest) -> ProviderRequest | Rejection:
        """The request, or why the API refuses it. Its inputs are user messages, tokens as a list."""
        body = decode(record.body)
        if not isinstance(body, Mapping):
            return UNREADABLE
        problem = next(_objections(body), None)
        if problem is not None:
            return problem
        inputs = _inputs(body["input"])
        items = tuple({"type": "message", "role": "user", "content": each} for each in inputs)
        tokens = sum(count_text(each) if isinstance(each, str) else len(each) for each in inputs)
        return ProviderRequest(
            body=body,
            headers=record.headers,
            items=items,
            input_items=items,
            input_tokens=tokens,
            api=self.name,
        )

    def render(self, request: ProviderRequest, record: RecordedRequest, reply: ModelReply) -> Rendering:
        """The vectors of all inputs. Of a reply only its embeddings, usage and model matter here."""
        usage = None
        if reply.usage is not None:
            usage = Usage(resolve_usage(reply.usage, request.input_tokens, 0).input_tokens, 0)
        perform = billing(self._bill, record, usage)
        if reply.status == "failed":
            return Rendering(error_chunk(**(reply.error or {})), perform=perform, status=500)
        count = None if usage is None else usage.input_tokens
        body: dict[str, Any] = {
            "object": "list",
            "data": _data(request, reply),
            "model": reply.model or request.body["model"],
            "usage": None if count is None else {"prompt_tokens": count, "total_tokens": count},
        }
        if reply.usage_variant is not None and usage is not None:
            body = spoil_usage(body, reply.usage_variant)
        return Rendering(body | reply.fields, perform=perform)


def _inputs(given: Any) -> list[str | list[int]]:
    """One text, several texts, one text as tokens, or several as tokens."""
    if isinstance(given, str) or isinstance(given[0], int):
        return [given]
    return list(given)


def _objections(body: Mapping[str, Any]) -> Iterator[Rejection]:
    if not isinstance(body.get("model"), str):
        yield missing("model")
    yield from check_least(body.get("dimensions"), "dimensions", 1)
    if body.get("encoding_format", "float") not in ("float", "base64"):
        message = "Invalid value for 'encoding_format': expected 'float' or 'base64'."
        yield about("encoding_format", message, "invalid_value")
    given = body.get("input")
    if given is None:
        yield missing("input")
    elif not _is_input(given):
        yield mistyped("input", "a string, or an array of strings, tokens or arrays of tokens, none empty")
    elif len(_inputs(given)) > _MOST_INPUTS:
        message = f"Invalid 'input': array too long. Expected an array with maximum length {_MOST_INPUTS}."
        yield about("input", message, "array_above_max_length")


def _is_input(given: Any) -> bool:
    if isinstance(given, list) and given and not _are_tokens(given):
        return all(isinstance(each, str) and each for each in given) or all(map(_are_tokens, given))
    return bool(given) and (isinstance(given, str) or _are_tokens(given))


def _are_tokens(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(type(token) is int for token in given)


def _data(request: ProviderRequest, reply: ModelReply) -> list[dict[str, Any]]:
    scripted = [item for item in reply.items or () if item.get("type") == "embedding"]
    wanted = request.body.get("dimensions") or _DIMENSIONS
    made = [{"embedding": _vector(item["content"], wanted)} for item in request.items]
    shown = scripted or made
    base64_wanted = request.body.get("encoding_format") == "base64"
    return [
        {
            "object": "embedding",
            "index": each.get("index", index),
            "embedding": _packed(each["embedding"]) if base64_wanted else list(each["embedding"]),
        }
        for index, each in enumerate(shown)
    ]


def _vector(content: str | list[int], dimensions: int) -> list[float]:
    """A vector of length 1 that only this input has; its numbers are exact in 32 bits."""
    seed = encode_json(content)
    raw = [_number(seed, index) for index in range(dimensions)]
    length = math.sqrt(sum(number * number for number in raw)) or 1.0
    return [_single(number / length) for number in raw]


def _number(seed: bytes, index: int) -> float:
    digest = hashlib.sha256(b"%d:" % index + seed).digest()
    return float(int.from_bytes(digest[:4], "big", signed=True))


def _single(number: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def _packed(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
