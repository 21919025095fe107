"""What the provider stores is for the account that it was made for, and for nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from memoflow import Budget
from memoflow.gateway.references import foreign_objects
from memoflow.testing import SimulatedProvider, text
from tests.gateway._site import MODEL, Site
from tests.gateway.conftest import MakeSite

BODY: dict[str, Any] = {"model": MODEL, "input": "Hello?", "max_output_tokens": 50}


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    """A gateway with two accounts."""
    site = make_site(SimulatedProvider(default=text("A secret.")))
    site.runtime.budgets.put("other", Budget(model_calls=100))
    return site


def test_a_stored_reply_can_be_asked_for_by_its_account(site: Site) -> None:
    """Whole and its input items, also with another key of the account; nothing is charged for it."""
    with site.http() as client:
        id = client.post("/responses", json=BODY).json()["id"]
    site.settled()
    before = site.account().settled
    with site.http() as another:
        found = another.get(f"/responses/{id}")
        listed = another.get(f"/responses/{id}/input_items", params={"limit": 5, "stream": "true"})
    assert found.status_code == 200
    assert "A secret." in found.text
    assert listed.status_code == 200
    assert site.provider.requests[-1].query == {"limit": "5"}
    assert site.account().settled == before


def test_a_streamed_reply_belongs_to_its_account_too(site: Site) -> None:
    """How a reply came makes no difference to whose it is."""
    client = site.openai()
    with client.responses.stream(**BODY) as events:
        id = events.get_final_response().id
    site.settled()
    assert client.responses.retrieve(id).id == id


@pytest.mark.parametrize("what", ["", "/input_items", "/cancel"])
def test_another_accounts_reply_is_not_there(site: Site, what: str) -> None:
    """404, as if there were none, and the provider is not asked."""
    with site.http() as client:
        id = client.post("/responses", json=BODY).json()["id"]
    site.settled()
    asked = len(site.provider.requests)
    with site.http(site.key("other")) as stranger:
        method = "POST" if what == "/cancel" else "GET"
        refused = stranger.request(method, f"/responses/{id}{what}")
    assert refused.status_code == 404
    assert "secret" not in refused.text
    assert len(site.provider.requests) == asked


def test_a_conversation_goes_on_in_its_own_account_alone(site: Site) -> None:
    """previous_response_id is for replies of the same account."""
    with site.http() as client:
        id = client.post("/responses", json=BODY).json()["id"]
        site.settled()
        assert client.post("/responses", json={**BODY, "previous_response_id": id}).status_code == 200
    with site.http(site.key("other")) as stranger:
        refused = stranger.post("/responses", json={**BODY, "previous_response_id": id})
        assert refused.status_code == 404
        counted = stranger.post("/responses/input_tokens", json={**BODY, "previous_response_id": id})
        assert counted.status_code == 404


def test_an_id_that_is_none_is_not_sent_on(site: Site) -> None:
    """What does not look like an id is not made part of an address."""
    asked = len(site.provider.requests)
    with site.http() as client:
        for id in ("..", "a.b", "x" * 129, "a@b"):
            assert client.get(f"/responses/{id}").status_code == 404
    assert len(site.provider.requests) == asked


FOREIGN: dict[str, tuple[dict[str, Any], str]] = {
    "conversation": ({"conversation": "conv_1"}, "conversation"),
    "prompt": ({"prompt": {"id": "pmpt_1"}}, "stored prompt"),
    "item": ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "stored item"),
    "bare item": ({"input": [{"id": "msg_1"}]}, "stored item"),
    "file": (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}]},
        "file",
    ),
    "image": (
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}]},
        "file",
    ),
    "result": (
        {
            "input": [
                {
                    "type": "function_call_output",
                    "call_id": "c",
                    "output": [{"type": "input_file", "file_id": "file_1"}],
                }
            ]
        },
        "file",
    ),
    "chat file": (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file_1"}}]}]},
        "file",
    ),
    "chat audio": ({"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]}, "stored audio"),
    "document": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "document", "source": {"type": "file", "file_id": "file_1"}}],
                }
            ]
        },
        "file",
    ),
    "nested document": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}],
                        }
                    ],
                }
            ]
        },
        "file",
    ),
    "upload": (
        {"messages": [{"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}]},
        "file",
    ),
    "container": ({"container": "cntr_1"}, "container"),
    "interpreter": ({"tools": [{"type": "code_interpreter", "container": "cntr_1"}]}, "container"),
    "interpreter files": (
        {"tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["f"]}}]},
        "file",
    ),
    "store": ({"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]}, "vector store"),
    "connector": ({"tools": [{"type": "mcp", "connector_id": "connector_gmail"}]}, "connector"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_may_be_somebody_elses_is_found(kind: str) -> None:
    """Every place where a request can name an object of the provider's account."""
    body, what = FOREIGN[kind]
    assert foreign_objects(body) == (what,)


def test_what_only_looks_like_it_is_not() -> None:
    """Names of a program's own, in schemas and arguments, are no objects of the provider."""
    body = {
        "model": MODEL,
        "input": [
            {"role": "user", "content": "file_id"},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "c",
                "name": "f",
                "arguments": '{"file_id":"x"}',
            },
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "content": [{"type": "output_text", "text": ""}],
            },
        ],
        "messages": [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"file_id": "x"}}],
            }
        ],
        "tools": [
            {"type": "function", "name": "f", "parameters": {"properties": {"file_id": {"type": "string"}}}}
        ],
    }
    assert foreign_objects(body) == ()


def test_the_operator_may_allow_them(make_site: MakeSite) -> None:
    """Refused by default; sent where everybody may name everything."""
    asks = {**BODY, **FOREIGN["store"][0]}
    strict = make_site(SimulatedProvider(default=text("A.")), Budget(model_calls=5))
    with strict.http() as client:
        refused = client.post("/responses", json=asks)
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "provider_object_not_allowed"
    assert strict.provider.requests == []


def test_what_is_allowed_is_sent(make_site: MakeSite) -> None:
    """With provider_objects=allow such a request goes on."""
    site = make_site(SimulatedProvider(default=text("A.")), Budget(model_calls=5), provider_objects="allow")
    with site.http() as client:
        assert client.post("/responses", json={**BODY, **FOREIGN["store"][0]}).status_code == 200
