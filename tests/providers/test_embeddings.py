"""The codec of embeddings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import CreateEmbeddingResponse, embedding_create_params

from memoflow.errors import InvalidRequest
from memoflow.providers.base import Codec, MeasureMode, UnreadableReply, Usage
from memoflow.providers.measure import estimate_tokens, known_vocabulary
from memoflow.providers.openai_embeddings import MAX_INPUTS, TEXT_TOKENS, OpenAIEmbeddingsCodec
from memoflow.tools import Toolset, tool
from tests.providers._bodies import JSON_VALUES
from tests.providers._chat_bodies import encode
from tests.providers.test_responses_damage import mutate, paths

CODEC = OpenAIEmbeddingsCodec()
MODES: tuple[MeasureMode, ...] = ("bound", "estimate")
MODEL = "text-embedding-3-small"
SIMPLE: dict[str, Any] = {"model": MODEL, "input": "hi"}


@tool(version="v1", effect="read_only")
def inc(n: int) -> int:
    """Add one."""
    return n + 1


def vector(index: Any = 0, values: Any = "AACAPwAAAEA=", **more: Any) -> dict[str, Any]:
    """One embedding."""
    return {"object": "embedding", "index": index, "embedding": values, **more}


def embeddings(*data: Any, **more: Any) -> dict[str, Any]:
    """A reply with these embeddings, or with one."""
    body = {"object": "list", "data": list(data) or [vector()], "model": MODEL}
    return {**body, "usage": {"prompt_tokens": 8, "total_tokens": 8}, **more}


def test_a_request_is_frozen_and_asks_for_base64() -> None:
    """As the SDK does; everything else is left as it is."""
    texts = ["a", "b"]
    prepared = CODEC.prepare({"model": MODEL, "input": texts, "dimensions": 256, "new": 1})
    texts.append("c")
    assert prepared.body == {
        "model": MODEL,
        "input": ["a", "b"],
        "dimensions": 256,
        "new": 1,
        "encoding_format": "base64",
    }
    assert (prepared.model, prepared.choices, prepared.output_cap) == (MODEL, 0, None)
    assert (prepared.offered, prepared.calls_allowed, prepared.hosted) == (None, False, ())


@pytest.mark.parametrize(("given_", "sent"), [("float", "float"), ("base64", "base64"), (None, "base64")])
def test_an_encoding_that_the_request_names_stays(given_: str | None, sent: str) -> None:
    """Null names none."""
    assert CODEC.prepare({**SIMPLE, "encoding_format": given_}).body["encoding_format"] == sent


@pytest.mark.parametrize("given_", ["hi", "", ["a", "b"], [1, 2, 3], [0], [[1, 2], [3]], ["a"] * MAX_INPUTS])
def test_inputs_of_the_api_are_taken(given_: Any) -> None:
    """A text, texts, tokens, or lists of tokens."""
    assert CODEC.prepare({"model": MODEL, "input": given_}).body["input"] == given_


@pytest.mark.parametrize(
    "given_",
    [None, 5, {}, [], [[]], [None], ["a", 1], ["a", [1]], [1, [1]], [True], [1.0], [-1], [["a"]], [[1], []]],
)
def test_other_inputs_are_refused(given_: Any) -> None:
    """What cannot be measured is not sent."""
    with pytest.raises(InvalidRequest, match="input must be a text"):
        CODEC.prepare({"model": MODEL, "input": given_})


def test_inputs_are_bounded() -> None:
    """The API takes no more in one request; a list of tokens is one input, however long."""
    with pytest.raises(InvalidRequest, match="2049 inputs, and the API takes 2048"):
        CODEC.prepare({"model": MODEL, "input": ["a"] * (MAX_INPUTS + 1)})
    assert CODEC.prepare({"model": MODEL, "input": [1] * (MAX_INPUTS + 1)})


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"stream": False}, "key 'stream'"),
        ({"extra_body": {}}, "key 'extra_body'"),
        ({"timeout": 5}, "key 'timeout'"),
        ({"model": " "}, "names no model"),
        ({"user": float("nan")}, "NaN"),
    ],
)
def test_what_cannot_be_right_is_refused(more: dict[str, Any], sentence: str) -> None:
    """Before anything is reserved."""
    with pytest.raises(InvalidRequest, match=sentence):
        CODEC.prepare({**SIMPLE, **more})


def test_there_are_no_tools_streams_or_rounds() -> None:
    """Each is refused with a sentence of its own; what asks for nothing gets nothing."""
    prepared, reply = CODEC.prepare(SIMPLE, Toolset([])), CODEC.read(encode(embeddings()))
    with pytest.raises(InvalidRequest, match="call no tools"):
        CODEC.prepare(SIMPLE, Toolset([inc]))
    for attempt in (
        lambda: CODEC.prepare(SIMPLE, streaming=True),
        lambda: CODEC.streamed(SIMPLE),
        lambda: CODEC.assembler(),
    ):
        with pytest.raises(InvalidRequest, match="no stream"):
            attempt()
    with pytest.raises(InvalidRequest, match="no further round"):
        CODEC.next_request(prepared, reply, [])
    assert (CODEC.events(reply), CODEC.outputs(reply, []), CODEC.needs_declaration(prepared)) == ((), [], ())


def test_a_cap_has_no_field() -> None:
    """Nothing is generated; a cap that cannot be meant is still refused."""
    assert CODEC.with_cap(SIMPLE, 5) == SIMPLE
    with pytest.raises(InvalidRequest, match="at least 1 token"):
        CODEC.with_cap(SIMPLE, 0)


def test_tokens_are_counted() -> None:
    """They are what the provider will count."""
    for given_, count in (([5, 6, 7], 3), ([[5, 6], [7]], 3)):
        prepared = CODEC.prepare({"model": MODEL, "input": given_})
        assert [CODEC.measure(prepared, mode).tokens for mode in MODES] == [count, count]
        assert [CODEC.measure(prepared, mode).basis for mode in MODES] == list(MODES)


def test_texts_are_measured() -> None:
    """By their bytes, or by the tokenizer; each has a frame."""
    texts = ["The quick brown fox jumps over the lazy dog. " * 20, "caf\u00e9"]
    prepared = CODEC.prepare({"model": MODEL, "input": texts})
    bound, estimate = (CODEC.measure(prepared, mode).tokens for mode in MODES)
    assert bound == sum(len(text.encode()) + TEXT_TOKENS for text in texts)
    assert estimate == sum(estimate_tokens([text], MODEL) + TEXT_TOKENS for text in texts)
    assert estimate < bound // 2
    assert known_vocabulary(MODEL) == "cl100k_base"


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), min_size=1, max_size=4))
def test_an_estimate_is_never_above_the_bound(texts: list[str]) -> None:
    """Whatever the texts are."""
    for model in (MODEL, "other"):
        prepared = CODEC.prepare({"model": model, "input": texts})
        bound, estimate = (CODEC.measure(prepared, mode).tokens for mode in MODES)
        assert estimate <= bound


def test_a_reply() -> None:
    """Usage, model and the verbatim body; there is no id."""
    body = embeddings(vector(0), vector(1, [0.5, -1e-05]), new=1)
    reply = CODEC.read(encode(body))
    assert (reply.status, reply.finish_reason, reply.usage) == ("completed", "stop", Usage(8, 0))
    assert (reply.response_id, reply.model, reply.problem, reply.paused) == (None, MODEL, None, False)
    assert (reply.body, reply.calls, reply.hosted) == (body, (), ())


def test_bodies_of_these_tests_are_what_the_sdk_calls_embeddings() -> None:
    """The shapes used here validate as the SDK's own types."""
    body = embeddings(vector(0, [0.5, 1.0]))
    assert CreateEmbeddingResponse.model_validate(body).model_dump() == body
    assert {"model", "input", "encoding_format"} <= set(
        embedding_create_params.EmbeddingCreateParams.__annotations__
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "NOT_JSON"),
        (b"<html>", "NOT_JSON"),
        (b"[]", "WRONG_OBJECT"),
        (b'{"error": {"code": "x"}}', "WRONG_OBJECT"),
        (encode(embeddings(object="embedding")), "WRONG_OBJECT"),
        (encode(embeddings(data=None)), "NO_DATA"),
        (encode(embeddings(data={})), "NO_DATA"),
    ],
)
def test_a_200_that_is_not_the_api_is_unreadable(body: bytes, reason: str) -> None:
    """Nothing is read from it; the reason is a code."""
    with pytest.raises(UnreadableReply) as caught:
        CODEC.read(body)
    assert caught.value.reason == reason


def test_a_reply_that_is_too_large_is_unreadable() -> None:
    """Size is checked before anything is parsed."""
    body = encode(embeddings())
    assert OpenAIEmbeddingsCodec(max_reply_bytes=len(body)).read(body).problem is None
    with pytest.raises(UnreadableReply, match="TOO_LARGE"):
        OpenAIEmbeddingsCodec(max_reply_bytes=len(body) - 1).read(body)


@pytest.mark.parametrize(
    "data",
    [
        [],
        [vector(1)],
        [vector(0), vector(0)],
        [vector(0), vector(2)],
        [vector(0), "text"],
        [vector(None)],
        [vector(False)],
        [vector(0.0)],
        [vector("0")],
        [vector(0, None)],
        [vector(0, "")],
        [vector(0, [])],
        [vector(0, 5)],
    ],
)
def test_a_reply_that_contradicts_itself_has_a_problem(data: list[Any]) -> None:
    """It is still settled."""
    reply = CODEC.read(encode(embeddings(data=data)))
    assert reply.problem
    assert reply.usage == Usage(8, 0)


def test_embeddings_may_come_in_any_order() -> None:
    """Their index says which input they are of."""
    assert CODEC.read(encode(embeddings(vector(1), vector(0)))).problem is None


@pytest.mark.parametrize("given_", ["a", ["a"], [1, 2], [[1, 2]]])
def test_a_reply_has_one_embedding_for_each_input(given_: Any) -> None:
    """The reply alone cannot say that; the request has to be at hand."""
    prepared = CODEC.prepare({"model": MODEL, "input": given_})
    assert CODEC.mismatch(prepared, CODEC.read(encode(embeddings()))) is None
    two = CODEC.read(encode(embeddings(vector(0), vector(1))))
    assert CODEC.mismatch(prepared, two) == "it has 2 embeddings for 1 inputs"


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"prompt_tokens": 8}, Usage(8, 0)),
        ({"prompt_tokens": 0, "total_tokens": 0}, None),
        ({"prompt_tokens": 8, "total_tokens": 8, "completion_tokens": 0}, Usage(8, 0)),
        (
            {"prompt_tokens": 8, "total_tokens": 8, "prompt_tokens_details": {"cached_tokens": 2}},
            Usage(8, 0, 2),
        ),
        (None, None),
        ([], None),
        ({}, None),
        ({"total_tokens": 8}, None),
        ({"prompt_tokens": 8, "total_tokens": 9}, None),
        ({"prompt_tokens": 8, "total_tokens": 9, "completion_tokens": 1}, None),
        ({"prompt_tokens": 8, "total_tokens": 8, "completion_tokens": None}, None),
        ({"prompt_tokens": True}, None),
        ({"prompt_tokens": -1}, None),
        ({"prompt_tokens": 10**10}, None),
    ],
)
def test_a_usage_is_consistent_or_there_is_none(given_: Any, expected: Usage | None) -> None:
    """Never zero for what is not known."""
    assert CODEC.read(encode(embeddings(usage=given_))).usage == expected


WHOLE = embeddings(vector(0), vector(1, [0.5]))


@given(st.sampled_from(paths(WHOLE)), JSON_VALUES)
def test_garbage_never_raises_otherwise(path: tuple[Any, ...], value: Any) -> None:
    """Any JSON is a reply or an UnreadableReply."""
    try:
        reply = CODEC.read(encode(mutate(WHOLE, path, value)))
    except UnreadableReply:
        return
    assert reply.status == "completed"
    indexes = [one["index"] for one in reply.body["data"]] if reply.problem is None else [0]
    assert sorted(indexes) == list(range(len(indexes)))


def test_the_codec_has_the_shape_every_adapter_is_written_against() -> None:
    """It satisfies the protocol."""
    codec: Codec = CODEC
    assert (codec.provider, codec.api) == ("openai", "embeddings")
