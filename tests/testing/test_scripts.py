"""Scripts: order, agents, functions, defaults, and their JSON form."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from pydantic import ValidationError

from memoflow.errors import ConfigurationError
from memoflow.testing import (
    ProviderRequest,
    SimulatedProvider,
    agent,
    call,
    calls,
    choices,
    closed_before_reply,
    connect_refused,
    connect_timeout,
    corrupt_chunk,
    custom_call,
    delay,
    dns_failure,
    duplicate_terminal,
    echo,
    embedding,
    error_event,
    failed,
    forever,
    hold,
    html_200,
    huge,
    incomplete,
    items,
    malformed_usage,
    message,
    missing_usage,
    no_events,
    not_json,
    pool_timeout,
    raw,
    read_timeout,
    redacted_thinking,
    refusal,
    reset_before_reply,
    reset_mid_body,
    snapshot_differs,
    status,
    stops,
    stream_ends_early,
    text,
    thinking,
    truncated_body,
    usage,
    web_search,
    write_error,
)
from memoflow.testing._wireform import entry_from_json, entry_to_json, script_to_json
from tests.testing._callers import Caller
from tests.testing.conftest import Talk


def _converse(caller: Caller, question: str) -> list[str]:
    """Answer every call until there are none; what was said or asked in each round."""
    context: list[Any] = [{"role": "user", "content": question}]
    heard = []
    while True:
        response = caller.create(input=context)
        asked = [item for item in response.output if item.type in ("function_call", "custom_tool_call")]
        heard.append(response.output_text or "+".join(item.name for item in asked))
        if not asked:
            return heard
        context += [item.to_dict() for item in response.output]
        context += [
            {"type": f"{item.type}_output", "call_id": item.call_id, "output": "ok"} for item in asked
        ]


def test_entries_are_used_in_order_then_the_default(talk_in_process: Talk) -> None:
    """Each request takes the next entry; after the last one the default answers."""
    caller = talk_in_process("one", "two", default=text("over"))
    assert [caller.create().output_text for _ in range(4)] == ["one", "two", "over", "over"]


def test_an_agent_works_in_rounds(talk: Talk) -> None:
    """An agent asks for its calls round by round, and speaks when all of them are answered."""
    caller = talk(
        agent(calls(call("a"), custom_call("b", "x")), calls(call("c"), thought="Hm."), final="done")
    )
    assert _converse(caller, "Go.") == ["a+b", "c", "done"]
    assert _converse(caller, "Again.") == ["a+b", "c", "done"]


def test_an_agent_keeps_every_conversation_apart(talk_in_process: Talk) -> None:
    """Where a conversation stands is read from its request, through previous_response_id too."""
    caller = talk_in_process(agent(calls(call("a")), final="done"))
    first, other = caller.create(), caller.create()
    answer = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "ok"}
    assert other.output[0].name == "a"
    done = caller.create(input=[answer], previous_response_id=first.id)
    assert done.output_text == "done"
    again = caller.create(input="And again?", previous_response_id=done.id)
    assert again.output[0].name == "a"


def test_an_agent_may_follow_a_fault(talk_in_process: Talk) -> None:
    """Entries before an agent are used up first; the agent stays."""
    caller = talk_in_process(status(500), agent(calls(call("a")), final="done"), "never")
    with pytest.raises(openai.InternalServerError):
        caller.create()
    assert _converse(caller, "Go.") == ["a", "done"]
    assert caller.provider.remaining == 2


def test_forever_stays(talk_in_process: Talk) -> None:
    """An entry that stays answers every further request."""
    caller = talk_in_process("once", forever("always"))
    assert [caller.create().output_text for _ in range(3)] == ["once", "always", "always"]


def test_a_function_sees_the_request(talk: Talk) -> None:
    """A function in a script decides by the request, and may return any entry, text or item."""
    seen: list[ProviderRequest] = []

    def decide(request: ProviderRequest) -> Any:
        seen.append(request)
        return [text("first"), "second", message("third"), agent(final="fourth")][len(seen) - 1]

    caller = talk(*[decide] * 4)
    answers = [caller.create(instructions="Be short.", store=False).output_text for _ in range(4)]
    assert answers == ["first", "second", "third", "fourth"]
    request = seen[0]
    assert (request.last_text, request.body["instructions"]) == ("Hello", "Be short.")
    assert (request.streaming, request.background, request.stored) == (False, False, False)
    assert (request.outputs, request.answered_rounds) == ((), 0)
    assert request.headers["authorization"].startswith("Bearer ")
    assert request.input_tokens > 0


def test_a_function_may_break_the_connection(talk_in_process: Talk) -> None:
    """A function can also return a fault before arrival: then the request did not arrive."""
    caller = talk_in_process(lambda request: connect_refused())
    with pytest.raises(openai.APIConnectionError):
        caller.create()
    assert caller.provider.wire_requests == {}


def test_one_function_may_be_the_whole_script() -> None:
    """A function instead of a list decides about every request."""
    provider = SimulatedProvider(lambda request: f"{len(request.outputs)} outputs")
    with provider.client() as client:
        answers = [client.responses.create(model="m", input="x").output_text for _ in range(2)]
    assert answers == ["0 outputs", "0 outputs"]


@pytest.mark.parametrize("alone", [agent(text("A.")), text("A."), "A.", message("A.")])
def test_one_entry_may_be_the_whole_script(alone: Any) -> None:
    """It need not stand in a list, neither here nor for another process."""
    client = SimulatedProvider(alone).client()
    assert client.responses.create(model="m", input="x").output_text == "A."
    assert script_to_json(alone) == script_to_json([alone])


def test_a_function_that_raises_is_remembered() -> None:
    """An exception of a script's function is kept for the test; the client sees a server error."""

    def broken(request: ProviderRequest) -> Any:
        raise LookupError("broken")

    provider = SimulatedProvider([broken])
    with provider.client(max_retries=0) as client, pytest.raises(openai.InternalServerError) as caught:
        client.responses.create(model="m", input="x")
    assert caught.value.code == "script_error"
    assert [type(error) for error in provider.errors] == [LookupError]


def test_reset_forgets_everything() -> None:
    """After a reset nothing is left of requests, bills, stored responses and the script; ids begin again."""
    provider = SimulatedProvider(["one", "two"])
    with provider.client(max_retries=0) as client:
        first = client.responses.create(model="m", input="x")
        provider.reset(["three"])
        assert (provider.requests, provider.billed.total, provider.remaining) == ([], 0, 1)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.id)
        provider.reset(["three"])
        second = client.responses.create(model="m", input="x")
    assert (second.output_text, second.id) == ("three", first.id)


@pytest.mark.parametrize("misuse", [lambda: missing_usage(status(500)), lambda: reset_mid_body(delay(1))])
def test_faults_wrap_replies_not_faults(misuse: Any) -> None:
    """A fault where a reply is needed is refused with what to do instead."""
    with pytest.raises(ConfigurationError, match="fault outside, the reply in its `then`"):
        misuse()


EVERY_ENTRY = [
    text(
        "é",
        thought="Hm.",
        usage=usage(1, 2, cached=3, cache_write=4, reasoning=5),
        model="m",
        service_tier="flex",
    ),
    calls(call("f", {"a": 1}), say="Wait."),
    custom_call("p", "x"),
    refusal("No."),
    incomplete("Cut"),
    failed(usage=None),
    items([message("a")], fields={"odd": 1}, honour_cap=False),
    echo(),
    stops("pause_turn", web_search(), "So far"),
    choices("a", incomplete("b"), calls(call("f"))),
    items([thinking("Hm.", signature="s"), redacted_thinking(), embedding(0.5, index=1)]),
    raw(b"\xff\x00", performed=False, headers={"a": "b"}),
    status(429, retry_after=1, then="x"),
    connect_refused(),
    dns_failure(),
    connect_timeout(),
    pool_timeout(),
    write_error(),
    read_timeout(),
    reset_before_reply("x", performed=False),
    closed_before_reply(),
    reset_mid_body(after=2),
    truncated_body(),
    not_json(),
    html_200(),
    huge(10),
    stream_ends_early(after=2),
    error_event("c", "m", after=1, nested=True),
    corrupt_chunk(),
    no_events(),
    duplicate_terminal(),
    snapshot_differs(),
    missing_usage("x"),
    malformed_usage("strings"),
    delay(0.5, status(500), after=1),
    agent(calls(call("f")), delay(1), final="done"),
    forever(text("x")),
]


@pytest.mark.parametrize(
    "entry", EVERY_ENTRY, ids=lambda entry: str(getattr(entry, "kind", type(entry).__name__))
)
def test_every_entry_has_a_json_form(entry: Any) -> None:
    """Every entry of plain data survives the way to another process."""
    sent = json.dumps(entry_to_json(entry))
    received = entry_from_json(json.loads(sent))
    assert entry_to_json(received) == entry_to_json(entry)
    if not isinstance(entry, dict):
        assert received == entry


def test_a_hold_keeps_its_name_in_json() -> None:
    """A hold arrives with a gate of its own under the same name."""
    received: Any = entry_from_json(entry_to_json(hold("x", after=2, name="here")))
    assert (received.gate.name, received.after, received.then) == ("here", 2, text("x"))


@pytest.mark.parametrize("short", ["Hello.", {"type": "message", "role": "assistant", "content": []}])
def test_json_may_be_short(short: Any) -> None:
    """In JSON, too, a string is a message and an item a reply of that item."""
    assert entry_from_json(short) == (text(short) if isinstance(short, str) else items([short]))


def test_functions_have_no_json_form() -> None:
    """A function cannot be sent to another process, nor stand inside another entry."""
    for misuse in (entry_to_json, forever, lambda entry: agent(entry), lambda entry: delay(1, entry)):
        with pytest.raises(ConfigurationError, match="in-process"):
            misuse(lambda request: "x")


def test_unknown_entries_are_refused() -> None:
    """An entry nobody knows is refused when it arrives."""
    with pytest.raises(ValidationError):
        entry_from_json({"entry": "surprise"})
