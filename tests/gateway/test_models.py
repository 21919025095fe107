"""Which models a key may use, in the shape of the SDK that asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from memoflow.gateway.passing import Model, Models
from tests.gateway._inside import Inside, Scripted, inside

OPENAI = {
    "object": "list",
    "data": [{"id": name, "object": "model"} for name in ("gpt-5", "gpt-5-mini", "o9")],
}
ANTHROPIC = {
    "data": [{"type": "model", "id": name} for name in ("claude-sonnet-5", "claude-haiku-5")],
    "has_more": True,
    "first_id": "claude-sonnet-5",
    "last_id": "claude-haiku-5",
}
CLAUDE = {"anthropic_version": "2023-06-01"}


@pytest.fixture
def gateway() -> Iterator[Inside]:
    """A gateway whose provider always gives one answer."""
    with inside(Scripted()) as made:
        yield made


def says(gateway: Inside, body: Any, status: int = 200) -> None:
    """Let the provider answer this."""
    gateway.provider.status, gateway.provider.pieces = status, [json.dumps(body).encode()]


def ids(body: bytes) -> list[str]:
    """The models in a list."""
    return [one["id"] for one in json.loads(body)["data"]]


def test_a_list_has_the_models_that_the_key_is_for(gateway: Inside) -> None:
    """OpenAI's shape; the others are left out, and everything else stays."""
    says(gateway, OPENAI)
    gateway.key = gateway.new_key("gpt-5*")
    got = gateway.call(Models(gateway.service))
    assert ids(got.body) == ["gpt-5", "gpt-5-mini"]
    assert json.loads(got.body)["object"] == "list"
    assert gateway.provider.asked == ["GET http://provider.invalid/v1/models"]


def test_anthropics_list_can_be_paged_through(gateway: Inside) -> None:
    """Anthropic's shape for its SDK; what pages are asked for with stays, whatever was left out."""
    says(gateway, ANTHROPIC)
    gateway.key = gateway.new_key("claude-sonnet-5")
    got = gateway.call(Models(gateway.service), **CLAUDE)
    assert ids(got.body) == ["claude-sonnet-5"]
    told = json.loads(got.body)
    assert (told["has_more"], told["last_id"]) == (True, "claude-haiku-5")


def test_one_model_is_shown_if_the_key_is_for_it(gateway: Inside) -> None:
    """Another one is not there, and the provider is not asked."""
    says(gateway, OPENAI["data"][1])
    gateway.key = gateway.new_key("gpt-5-mini", "ft:gpt-5:*")
    model = Model(gateway.service)
    assert gateway.call(model, path={"model": "gpt-5-mini"}).status == 200
    assert gateway.call(model, path={"model": "ft:gpt-5:org::1"}).status == 200
    assert gateway.provider.asked[-1] == "GET http://provider.invalid/v1/models/ft:gpt-5:org::1"
    asked = len(gateway.provider.asked)
    for name in ("gpt-5", "..", "a/b", "a?b", "", "x" * 201):
        assert gateway.call(model, path={"model": name}).status == 404
    assert len(gateway.provider.asked) == asked


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data":5}', b'{"data":[{}]}', b""])
def test_a_list_that_cannot_be_read_is_not_shown(gateway: Inside, body: bytes) -> None:
    """What might name other models is refused, as a fault of the provider."""
    gateway.provider.pieces = [body]
    assert gateway.call(Models(gateway.service)).status == 502


def test_an_error_of_the_provider_passes(gateway: Inside) -> None:
    """Its status and its words."""
    says(gateway, {"error": {"message": "no"}}, 401)
    got = gateway.call(Models(gateway.service))
    assert (got.status, json.loads(got.body)) == (401, {"error": {"message": "no"}})
