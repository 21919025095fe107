"""Replies of the simulated provider as the official SDK reads them."""

from __future__ import annotations

from typing import Any

import pytest

from memoflow.providers.base import Usage
from memoflow.testing import (
    SimulatedProvider,
    call,
    calls,
    code_interpreter,
    computer_call,
    custom_call,
    failed,
    incomplete,
    items,
    mcp_call,
    message,
    reasoning,
    refusal,
    refusal_message,
    stops,
    text,
    unknown_item,
    usage,
    web_search,
)
from tests.testing.conftest import Talk


def test_text_is_a_completed_message(talk: Talk) -> None:
    """A text reply is one completed assistant message with counted usage."""
    caller = talk(text("Hello, wörld."))
    response = caller.create()
    assert (response.output_text, response.status, response.model) == (
        "Hello, wörld.",
        "completed",
        "gpt-test",
    )
    assert response.output[0].status == "completed"
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert caller.provider.billed.total == response.usage.total_tokens > 0


def test_a_plain_string_is_a_text(talk_in_process: Talk) -> None:
    """A string in a script stands for a text reply, an item for a reply of that item."""
    caller = talk_in_process("Hello.", message("Again."))
    assert [caller.create().output_text for _ in range(2)] == ["Hello.", "Again."]


def test_an_empty_script_echoes(talk: Talk) -> None:
    """When the script is used up, the last user text comes back."""
    caller = talk()
    parts = [{"role": "user", "content": [{"type": "input_text", "text": "What?"}]}]
    assert caller.create(input="Who?").output_text == "echo: Who?"
    assert caller.create(input=parts).output_text == "echo: What?"


def test_calls_come_in_parallel_with_ids_of_their_own(talk: Talk) -> None:
    """A reply may hold several function calls; each has its own id and call id."""
    caller = talk(calls(call("add", {"a": 1}), call("add", "{}"), say="Wait.", thought="Hm."))
    response = caller.create()
    assert [item.type for item in response.output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    first, second = response.output[2:]
    assert (first.name, first.arguments, second.arguments) == ("add", '{"a": 1}', "{}")
    assert first.call_id != second.call_id
    assert first.id != second.id


def test_given_keys_of_an_item_stay(talk_in_process: Talk) -> None:
    """Call ids, ids, namespaces and statuses that a script gives are sent as they are, blank ones too."""
    given = call("write", "not json", call_id="", id="fc_7", namespace="files", status="incomplete")
    item = talk_in_process(calls(given)).create().output[0]
    assert (item.call_id, item.id, item.namespace, item.status) == ("", "fc_7", "files", "incomplete")
    assert item.arguments == "not json"


def test_custom_tool_call_has_raw_input(talk: Talk) -> None:
    """A custom tool call carries its text untouched, and no arguments."""
    item = talk(custom_call("patch", "*** begin\n{not json", call_id="call_9")).create().output[0]
    assert (item.type, item.input, item.call_id) == ("custom_tool_call", "*** begin\n{not json", "call_9")
    assert not hasattr(item, "arguments")


def test_refusal_is_a_completed_reply(talk: Talk) -> None:
    """A refusal is a completed message with a refusal part and no text."""
    response = talk(refusal("No.")).create()
    assert (response.status, response.output_text) == ("completed", "")
    assert response.output[0].content[0].refusal == "No."


def test_incomplete_keeps_the_statuses_given(talk: Talk) -> None:
    """In an incomplete reply items keep their status; the last one is incomplete unless it has one."""
    caller = talk(
        incomplete(call("pay", {"n": 1}, status="completed"), call("pay", '{"amount": 5')),
        incomplete("Cut off her", reason="content_filter"),
    )
    first, second = caller.create(), caller.create()
    assert (first.status, first.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert [item.status for item in first.output] == ["completed", "incomplete"]
    assert (second.incomplete_details.reason, second.output[0].status) == ("content_filter", "incomplete")


def test_a_stop_reason_is_a_reason_to_be_incomplete(talk: Talk) -> None:
    """A response has no stop reasons: it is incomplete for the one the script asks for."""
    response = talk(stops("pause_turn", "So far", call("f"))).create()
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "pause_turn")
    assert (response.output_text, response.output[1].status) == ("So far", "completed")


def test_failed_carries_its_error_and_usage(talk: Talk) -> None:
    """A failed reply is a 200 with an error object and, unless told otherwise, usage."""
    caller = talk(
        failed("rate_limit_exceeded", "Slow down.", output=[message("So f")], usage=usage(10, 5)),
        failed(usage=None),
    )
    first, second = caller.create(), caller.create()
    assert (first.status, first.error.code, first.usage.total_tokens) == ("failed", "rate_limit_exceeded", 15)
    assert (second.status, second.error.code, second.usage) == ("failed", "server_error", None)
    assert caller.provider.billed.total == 15


def test_usage_reports_every_detail(talk: Talk) -> None:
    """Scripted usage reaches the client with cached, cache-write and reasoning tokens, and is billed so."""
    caller = talk(text("Hi", usage=usage(100, 50, cached=40, cache_write=30, reasoning=20)))
    reported = caller.create().usage
    assert (reported.input_tokens, reported.output_tokens, reported.total_tokens) == (100, 50, 150)
    assert reported.input_tokens_details.cached_tokens == 40
    assert reported.input_tokens_details.cache_write_tokens == 30
    assert reported.output_tokens_details.reasoning_tokens == 20
    assert caller.provider.billed == Usage(100, 50, 40, 30, 20)


def test_reasoning_tokens_are_part_of_counted_output(talk_in_process: Talk) -> None:
    """Reasoning tokens are added to the output that is counted."""
    caller = talk_in_process(text("Hi"), text("Hi", usage=usage(reasoning=64)))
    plain, thought = caller.create().usage, caller.create().usage
    assert thought.output_tokens == plain.output_tokens + 64


def test_service_tier_and_model_can_differ_from_the_request(talk_in_process: Talk) -> None:
    """The reply reports the tier and model that were used; `auto` becomes `default`."""
    caller = talk_in_process(
        text("a"), text("b"), text("c", service_tier="flex", model="gpt-test-2026-01-01")
    )
    tiers = [caller.create(service_tier=tier).service_tier for tier in ("auto", "priority")]
    assert tiers == ["default", "priority"]
    last = caller.create(service_tier="priority")
    assert (last.service_tier, last.model) == ("flex", "gpt-test-2026-01-01")


def test_fields_reach_the_response_as_they_are(talk_in_process: Talk) -> None:
    """A script can put any field into the response object, known or not."""
    response = talk_in_process(text("a", fields={"status": "dreaming", "colour": "red"})).create()
    assert (response.status, response.colour) == ("dreaming", "red")


def test_the_request_is_reported_back(talk_in_process: Talk) -> None:
    """The response repeats the parameters it was created with."""
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
    response = talk_in_process().create(
        tools=[tool], metadata={"a": "b"}, instructions="Be short.", max_output_tokens=99, tool_choice="none"
    )
    assert response.tools[0].name == "f"
    assert (response.metadata, response.instructions) == ({"a": "b"}, "Be short.")
    assert (response.max_output_tokens, response.tool_choice) == (99, "none")


HOSTED = [web_search(), code_interpreter(), mcp_call(), computer_call(), reasoning("Hm.")]


def test_hosted_items_have_the_types_of_the_sdk(talk: Talk) -> None:
    """Hosted items arrive as the SDK's own types, in order, with ids."""
    output = talk(items([*HOSTED, message("Done.")])).create().output
    types = [*(item["type"] for item in HOSTED), "message"]
    assert [item.type for item in output] == types
    assert all(item.id for item in output)


def test_an_unknown_item_keeps_its_type(talk_in_process: Talk) -> None:
    """An item type nobody knows arrives with its fields; only its type tells what it is."""
    item = talk_in_process(items([unknown_item("brand_new_call", foo=1)])).create().output[0]
    assert (item.type, item.foo) == ("brand_new_call", 1)


@pytest.mark.parametrize(
    ("item", "tokens"),
    [(message("one two"), 2), (refusal_message("no"), 1), (web_search(), 0), (call("f", ""), 1)],
)
def test_visible_output_is_counted(item: dict[str, Any], tokens: int, talk_in_process: Talk) -> None:
    """Output tokens are those of what the model says; hosted items cost none of their own."""
    assert talk_in_process(item).create().usage.output_tokens == tokens


def test_the_same_seed_gives_the_same_replies() -> None:
    """Two providers with one seed answer the same requests with the same bytes; another seed does not."""
    bodies = []
    for seed in (1, 1, 2):
        with SimulatedProvider([calls(call("f"))], seed=seed).client() as client:
            answer = client.responses.with_raw_response.create(model="m", input="x")
        assert answer.status_code == 200
        bodies.append(answer.text)
    assert bodies[0] == bodies[1] != bodies[2]
