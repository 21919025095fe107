"""Embeddings of the simulated provider, as the official SDK reads them."""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import Any

import openai
import pytest
from openai import BadRequestError

from memoflow.providers.base import Usage
from memoflow.testing import (
    ProviderRequest,
    SimulatedProvider,
    embedding,
    failed,
    items,
    malformed_usage,
    missing_usage,
    status,
    text,
    usage,
)
from tests.testing.conftest import Talk

API = "embeddings"


def test_a_vector(talk: Talk) -> None:
    """One input gives one vector of length 1; only input is billed."""
    caller = talk()
    reply = caller.create(api=API, input="one two")
    (made,) = reply.data
    assert (reply.object, reply.model, made.object, made.index) == ("list", "embed-test", "embedding", 0)
    assert math.isclose(math.hypot(*made.embedding), 1, rel_tol=1e-6)
    assert (reply.usage.prompt_tokens, reply.usage.total_tokens) == (2, 2)
    assert caller.provider.billed == Usage(2, 0)
    assert caller.provider.wire_requests == {"POST /v1/embeddings": 1}
    (record,) = caller.provider.requests
    assert (record.api, record.operation, record.response_id) == ("embeddings", "create", None)


def test_the_same_input_has_the_same_vector(talk_in_process: Talk) -> None:
    """Vectors depend on their input alone, and have as many numbers as were asked for."""
    reply = talk_in_process().create(api=API, input=["a", "b", "a"], dimensions=5)
    first, second, again = [made.embedding for made in reply.data]
    assert first == again != second
    assert [made.index for made in reply.data] == [0, 1, 2]
    assert len(first) == 5


def test_floats_and_base64_are_the_same_vector(talk_in_process: Talk) -> None:
    """Base64 is 32 bit floats, least byte first; the SDK asks for it unless told otherwise."""
    caller = talk_in_process()
    vectors = [
        caller.create(api=API, **given).data[0].embedding for given in ({}, {"encoding_format": "float"})
    ]
    assert vectors[0] == vectors[1]
    packed = caller.create(api=API, encoding_format="base64").data[0].embedding
    assert list(struct.unpack("<8f", base64.b64decode(packed))) == vectors[0]
    asked = [record.json["encoding_format"] for record in caller.provider.requests]
    assert asked == ["base64", "float", "base64"]


@pytest.mark.parametrize(
    ("given", "inputs", "tokens"),
    [("one two", 1, 2), (["one", "two six"], 2, 3), ([1, 2, 3], 1, 3), ([[1], [2, 3]], 2, 3)],
)
def test_every_kind_of_input(given: Any, inputs: int, tokens: int, talk_in_process: Talk) -> None:
    """Texts and tokens, one or many; tokens are counted as they are."""
    reply = talk_in_process().create(api=API, input=given)
    assert (len(reply.data), reply.usage.prompt_tokens) == (inputs, tokens)


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"model": None}, "model"),
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": [[1], []]}, "input"),
        ({"input": [True]}, "input"),
        ({"input": {"a": 1}}, "input"),
        ({"input": ["a"] * 2_049}, "input"),
        ({"dimensions": 0}, "dimensions"),
        ({"encoding_format": ["float"]}, "encoding_format"),
    ],
)
def test_bad_requests_are_400(extra: dict[str, Any], param: str, talk_in_process: Talk) -> None:
    """What the API cannot embed is refused with the parameter that is wrong."""
    with pytest.raises(BadRequestError) as caught:
        talk_in_process().create(api=API, extra_body=extra)
    assert caught.value.param == param


def test_a_body_that_is_not_json_is_400() -> None:
    """A body nobody can read is refused."""
    with SimulatedProvider().client(max_retries=0) as client, pytest.raises(BadRequestError):
        client.post("/embeddings", cast_to=object, content=b"7")


def test_scripted_vectors(talk_in_process: Talk) -> None:
    """A reply with embeddings has exactly these, with indexes of its own if it says so."""
    caller = talk_in_process(items([embedding(0.5, 0.25), embedding(1, index=7)]))
    data = caller.create(api=API, model="m").data
    assert [(made.index, made.embedding) for made in data] == [(0, [0.5, 0.25]), (7, [1])]


def test_the_script_serves_embeddings_too(talk: Talk) -> None:
    """Faults, model and usage of the one script apply; a failed reply is a server error."""
    caller = talk(
        status(429, code="insufficient_quota"),
        text("ignored", usage=usage(10, 5), model="m2"),
        failed("odd", "No.", usage=usage(3, 0)),
    )
    with pytest.raises(openai.RateLimitError):
        caller.create(api=API)
    reply = caller.create(api=API)
    assert (reply.model, reply.usage.total_tokens) == ("m2", 10)
    with pytest.raises(openai.InternalServerError, match=r"No\."):
        caller.create(api=API)
    assert caller.provider.billed == Usage(13, 0)


def test_spoilt_usage(talk_in_process: Talk) -> None:
    """Usage can be missing or malformed; the fields of the script arrive."""
    caller = talk_in_process(
        missing_usage(), malformed_usage("wrong_total"), text("", fields={"object": "odd"})
    )
    bodies = []
    for _ in range(3):
        answer = caller.ask(lambda api: api.with_raw_response.create(model="m", input="a"), api=API)
        bodies.append(json.loads(answer.http_response.content))
    assert "usage" not in bodies[0]
    assert bodies[1]["usage"] == {"prompt_tokens": 1, "total_tokens": 2}
    assert bodies[2]["object"] == "odd"


def test_a_function_sees_the_inputs(talk_in_process: Talk) -> None:
    """A function of the script sees one user message an input, and the rule of routes chooses its queue."""
    seen: list[ProviderRequest] = []
    caller = talk_in_process("for a response")
    caller.provider.push(lambda request: seen.append(request) or "x", to="POST /v1/embeddings")
    caller.create(api=API, input=["a", "b"])
    assert [item["content"] for item in seen[0].items] == ["a", "b"]
    assert (seen[0].api, seen[0].last_text, seen[0].streaming) == ("embeddings", "b", False)
    assert caller.create().output_text == "for a response"
