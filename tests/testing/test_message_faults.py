"""Failures of the Messages API: errors in its words, and streams that break off."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest

from memoflow.providers.base import Usage
from memoflow.testing import (
    SimulatedProvider,
    duplicate_terminal,
    error_event,
    failed,
    message,
    status,
    stream_ends_early,
    usage,
)
from tests.testing._callers import HELLO, Caller
from tests.testing.conftest import Talk

API = "messages"


def _events(caller: Caller, **request: Any) -> list[dict[str, Any]]:
    return [event.to_dict() for event in caller.events(api=API, **request)]


def test_a_failed_reply_is_an_error(talk: Talk) -> None:
    """A message cannot fail: it is a 500, or an error event after its blocks; what it took is billed."""
    reply = failed("server_overloaded", "Busy.", output=[message("So f")], usage=usage(10, 5))
    caller = talk(reply, reply)
    with pytest.raises(anthropic.InternalServerError) as caught:
        caller.create(api=API)
    assert (caught.value.type, caught.value.api_message) == ("overloaded_error", "Busy.")
    seen: list[Any] = []
    with pytest.raises(anthropic.APIStatusError) as broken:
        caller.collect(seen, api=API)
    assert broken.value.type == "overloaded_error"
    assert seen[-1].type == "content_block_stop"
    assert caller.provider.billed == Usage(20, 10)


@pytest.mark.parametrize(
    ("code", "error", "kind"),
    [
        (400, anthropic.BadRequestError, "invalid_request_error"),
        (401, anthropic.AuthenticationError, "authentication_error"),
        (403, anthropic.PermissionDeniedError, "permission_error"),
        (404, anthropic.NotFoundError, "not_found_error"),
        (409, anthropic.ConflictError, "invalid_request_error"),
        (413, anthropic.APIStatusError, "request_too_large"),
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (500, anthropic.InternalServerError, "api_error"),
        (502, anthropic.InternalServerError, "api_error"),
        (529, anthropic.InternalServerError, "overloaded_error"),
    ],
)
def test_every_status_has_its_error(
    code: int, error: type[anthropic.APIStatusError], kind: str, talk_in_process: Talk
) -> None:
    """A scripted status is the SDK's error for it, with the API's type and the id of the request."""
    with pytest.raises(error) as caught:
        talk_in_process(status(code)).create(api=API)
    assert (caught.value.status_code, caught.value.type) == (code, kind)
    body: Any = caught.value.body
    assert body["type"] == "error"
    assert body["request_id"] == caught.value.request_id


def test_a_status_can_say_everything(talk: Talk) -> None:
    """Codes of OpenAI's are translated, others are details; headers and texts are the script's."""
    caller = talk(
        status(429, code="rate_limit_exceeded", message="Slow.", retry_after=7),
        status(400, code="organization_on_hold", message="Held."),
        status(403, type="odd_error"),
    )
    errors = []
    for _ in range(3):
        with pytest.raises(anthropic.APIStatusError) as caught:
            caller.create(api=API)
        errors.append(caught.value)
    assert (errors[0].type, errors[0].api_message) == ("rate_limit_error", "Slow.")
    assert errors[0].response.headers["retry-after"] == "7"
    assert (errors[1].type, errors[1].error_code) == ("invalid_request_error", "organization_on_hold")
    assert errors[2].type == "odd_error"


def test_an_error_event(talk: Talk) -> None:
    """An error within a stream comes after status 200 and is raised by the SDK."""
    caller = talk(error_event("server_overloaded", "Busy.", after=2, performed=False))
    seen: list[Any] = []
    with pytest.raises(anthropic.APIStatusError) as caught:
        caller.collect(seen, api=API)
    assert (caught.value.status_code, caught.value.type) == (200, "overloaded_error")
    assert [event.type for event in seen] == ["message_start", "content_block_start"]
    assert caller.provider.performed == 0


@pytest.mark.parametrize(("after", "last"), [(None, "content_block_stop"), (-1, "message_delta")])
def test_a_stream_may_end_early(after: int | None, last: str, talk_in_process: Talk) -> None:
    """By default a stream that ends early has only the placeholder; a negative number counts from its end."""
    caller = talk_in_process(stream_ends_early("Hi", after=after))
    assert _events(caller)[-1]["type"] == last
    assert caller.provider.performed == 1


def test_two_terminal_events(talk_in_process: Talk) -> None:
    """A stream may stop twice."""
    events = _events(talk_in_process(duplicate_terminal("Hi")))
    assert [event["type"] for event in events[-3:]] == ["message_delta", "message_stop", "message_stop"]


def test_the_key_comes_in_its_own_header_or_as_a_bearer() -> None:
    """Either header carries the key; without one, with a wrong one or without a version nothing is done."""
    provider = SimulatedProvider(["a", "b"], api_key="right")
    version = {"anthropic-version": "2023-06-01"}
    body = {"model": "m", "max_tokens": 9, "messages": HELLO}
    answers = []
    with provider.client(max_retries=0) as client:
        for headers in (
            {"x-api-key": "right", **version},
            {"authorization": "Bearer right", **version},
            {"x-api-key": "wrong", **version},
            version,
            {"x-api-key": "right"},
        ):
            answer = client._client.post("http://simulated.invalid/v1/messages", headers=headers, json=body)
            answers.append((answer.status_code, answer.json().get("error", {}).get("type")))
    refused = (401, "authentication_error")
    assert answers == [(200, None), (200, None), refused, refused, (400, "invalid_request_error")]


def test_an_unknown_path_answers_in_the_words_of_its_client(talk_in_process: Talk) -> None:
    """A path nobody has is a 404 of Anthropic's for a client of Anthropic's."""
    caller = talk_in_process()
    with pytest.raises(anthropic.NotFoundError) as caught:
        caller.ask(lambda messages: messages.batches.retrieve("x"), api=API)
    assert caught.value.type == "not_found_error"
