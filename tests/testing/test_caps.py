"""The output cap of a request is honoured: the reply is cut, and usage stands at the cap."""

from __future__ import annotations

from typing import Any

import pytest
from openai import BadRequestError

from memoflow.testing import (
    call,
    calls,
    custom_call,
    items,
    message,
    reasoning,
    refusal,
    text,
    usage,
    web_search,
)
from tests.testing.conftest import Talk

LONG = " ".join(f"word{number}" for number in range(100))


def _cut(talk: Talk, reply: Any, cap: int) -> Any:
    return talk(reply).create(max_output_tokens=cap)


def test_a_long_text_is_cut_at_the_cap(talk: Talk) -> None:
    """More output than the cap ends incomplete, with usage exactly at the cap and a prefix of the text."""
    caller = talk(text(LONG))
    response = caller.create(max_output_tokens=20)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.usage.output_tokens == 20
    assert LONG.startswith(response.output_text)
    assert response.output[0].status == "incomplete"
    assert caller.provider.billed.output_tokens == 20


def test_a_cut_stream_ends_incomplete(talk: Talk) -> None:
    """A stream that meets the cap ends in `response.incomplete`."""
    last = talk(text(LONG)).events(max_output_tokens=20)[-1]
    assert (last.type, last.response.usage.output_tokens) == ("response.incomplete", 20)


def test_a_reply_within_the_cap_is_whole(talk_in_process: Talk) -> None:
    """Output of exactly the cap is not cut."""
    response = _cut(talk_in_process, text(LONG, usage=usage(output=40)), 40)
    assert (response.status, response.output_text) == ("completed", LONG)


def test_a_cut_call_is_an_incomplete_prefix(talk_in_process: Talk) -> None:
    """A call that is cut keeps a prefix of its arguments; what follows it is gone."""
    response = _cut(talk_in_process, calls(call("a"), call("b", {"text": LONG}), call("c")), 20)
    first, second = response.output
    assert (first.status, second.status) == ("completed", "incomplete")
    assert call("b", {"text": LONG})["arguments"].startswith(second.arguments)
    assert second.arguments != ""


@pytest.mark.parametrize("reply", [custom_call("patch", LONG), refusal(LONG)])
def test_every_kind_of_speech_is_cut(reply: Any, talk_in_process: Talk) -> None:
    """Custom calls and refusals are cut as text is."""
    response = _cut(talk_in_process, reply, 20)
    assert (response.status, response.output[0].status) == ("incomplete", "incomplete")
    assert len(str(response.output[0].to_dict())) < len(LONG)


def test_reasoning_may_use_up_the_cap(talk_in_process: Talk) -> None:
    """Reasoning counts against the cap and comes first: it can leave no room for any text."""
    reply = items([reasoning("Hm."), message("Hello.")], usage=usage(10, 500, reasoning=490))
    response = _cut(talk_in_process, reply, 100)
    assert [item.type for item in response.output] == ["reasoning"]
    assert response.usage.output_tokens == response.usage.output_tokens_details.reasoning_tokens == 100
    assert response.output_text == ""


def test_scripted_usage_decides_whether_to_cut(talk_in_process: Talk) -> None:
    """With scripted usage above the cap the visible text is cut in proportion."""
    response = _cut(talk_in_process, text(LONG, usage=usage(10, 1_000)), 500)
    assert response.usage.output_tokens == 500
    assert len(LONG) * 0.4 < len(response.output_text) < len(LONG) * 0.6


def test_reasoning_leaves_the_rest_of_the_cap(talk_in_process: Talk) -> None:
    """What reasoning leaves of the cap is shared in proportion by what is said."""
    response = _cut(talk_in_process, text(LONG, usage=usage(10, 500, reasoning=100)), 300)
    assert response.usage.output_tokens_details.reasoning_tokens == 100
    assert len(LONG) * 0.45 < len(response.output_text) < len(LONG) * 0.55


def test_a_call_may_be_cut_within_its_name(talk_in_process: Talk) -> None:
    """A call whose name alone meets the cap has no arguments yet."""
    response = _cut(talk_in_process, call("a_name_of_some_length" * 3, {"a": 1}), 16)
    assert (response.output[0].arguments, response.output[0].status) == ("", "incomplete")


def test_parts_behind_the_cut_are_gone(talk_in_process: Talk) -> None:
    """A message of several parts is cut at the cap, even between two of them."""
    parts = [{"type": "output_text", "text": "a " * 16, "annotations": []}] * 2
    response = _cut(talk_in_process, {"type": "message", "role": "assistant", "content": parts}, 17)
    assert [len(part.text.split()) for part in response.output[0].content] == [16]


def test_hosted_items_are_not_cut(talk_in_process: Talk) -> None:
    """What the provider ran itself stays."""
    response = _cut(talk_in_process, items([web_search(), message(LONG)]), 20)
    assert [item.status for item in response.output] == ["completed", "incomplete"]


def test_a_provider_may_ignore_the_cap(talk_in_process: Talk) -> None:
    """With `honour_cap=False` the reply is whole and its usage above the cap."""
    response = _cut(talk_in_process, text(LONG, usage=usage(10, 1_400), honour_cap=False), 100)
    assert (response.status, response.usage.output_tokens, response.output_text) == ("completed", 1_400, LONG)


@pytest.mark.parametrize(
    ("cap", "code"),
    [
        (15, "integer_below_min_value"),
        (0, "integer_below_min_value"),
        ("10", "invalid_type"),
        (True, "invalid_type"),
    ],
)
def test_bad_caps_are_refused(cap: Any, code: str, talk_in_process: Talk) -> None:
    """Caps below the least one, and those that are no integers, are a 400."""
    with pytest.raises(BadRequestError) as caught:
        talk_in_process().create(max_output_tokens=cap)
    assert (caught.value.code, caught.value.param) == (code, "max_output_tokens")


def test_the_least_cap_can_be_set(talk_in_process: Talk) -> None:
    """The least cap is the real API's, unless a test needs another."""
    assert talk_in_process(text("Hi"), min_output_tokens=1).create(max_output_tokens=1).output_text == "Hi"
