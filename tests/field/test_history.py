"""Cases about what goes back to the provider."""

from __future__ import annotations

from typing import Any

import pytest

from memoflow import Budget, OutcomeUnknown, ProviderRejected, tool
from memoflow.testing import (
    SimulatedProvider,
    call,
    calls,
    items,
    message,
    reasoning,
    redacted_thinking,
    status,
    text,
    thinking,
    unknown_item,
)
from tests.field._faces import CHAT, MESSAGES, RESPONSES, Face
from tests.field.conftest import Field


@tool(version="v1", effect="read_only")
def lookup(n: int) -> int:
    """Look up."""
    return n


WANTED = call("lookup", {"n": 1})
# What each API shows of its thinking, beside what nobody knows yet.
THOUGHT: dict[str, list[dict[str, Any]]] = {
    "responses": [reasoning("Think.", encrypted=True), message("So:", phase="commentary")],
    "chat": [message("So:", reasoning_content="Think.", reasoning_signature="sig-1", odd={"x": [1.5]})],
    "messages": [thinking("Think.", signature="sig+/=="), redacted_thinking("opaque"), message("So:")],
}


def _said(face: Face, body: dict[str, Any]) -> list[Any]:
    """What the history of a request holds of the model's turn, without the answers."""
    if face is RESPONSES:
        return [item for item in body["input"][1:] if "output" not in item]
    turns = [one for one in body["messages"] if one["role"] == "assistant"]
    return list(turns[0]["content"]) if face is MESSAGES else turns


def test_case_18_reasoning_goes_back_with_its_call(each: Field, stream: bool) -> None:
    """Every item goes back verbatim and in order, live and after a restore, streamed or not."""
    odd = [] if each.face is CHAT else [unknown_item("odd", foo={"x": [1.5, None]})]
    said = [*THOUGHT[each.face.name], *odd]
    provider = SimulatedProvider([items([*said, WANTED]), status(500), text("ok")])
    request = each.face.asking(**({"store": False} if each.face is RESPONSES else {}))
    first = each.play(provider, [lookup], request=request, run="r", stream=stream)
    assert isinstance(first.error, OutcomeUnknown)
    again = each.play(provider, [lookup], request=request, run="r", stream=not stream)
    assert again.text == "ok"
    live, restored = ({**body, "stream": None, "stream_options": None} for body in again.sent[1:])
    assert live == restored
    handed_back = _said(each.face, live)
    assert [given for given in said if not any(_holds(one, given) for one in handed_back)] == []


def _holds(one: dict[str, Any], given: dict[str, Any]) -> bool:
    """Whether an item that was handed back has all that the model said in it."""
    filled_in = ("type", "role", "content", "encrypted_content")
    return all(one.get(name) == value for name, value in given.items() if name not in filled_in)


def test_case_18_its_kinds_and_their_order(case: Field) -> None:
    """Of a response, as the provider that enforces the pairing wants them."""
    script = [calls(WANTED, thought="Think."), text("ok")]
    request = {**case.face.asking(), "store": False, "include": ["reasoning.encrypted_content"]}
    played = case.play(script, [lookup], request=request)
    assert played.error is None
    kinds = [item["type"] for item in played.sent[1]["input"][1:]]
    assert kinds == ["reasoning", "function_call", "function_call_output"]
    assert played.sent[1]["input"][1]["encrypted_content"]


def test_case_18_thinking_in_its_order(case: Field, stream: bool) -> None:
    """Of a message: thinking first, with the signature it came with, before text and call."""
    script = [items([*THOUGHT["messages"], WANTED]), text("ok")]
    played = case.play(script, [lookup], stream=stream, face=MESSAGES)
    assert played.text == "ok"
    content = _said(MESSAGES, played.sent[1])
    assert [block["type"] for block in content] == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert content[0] == {"type": "thinking", "thinking": "Think.", "signature": "sig+/=="}
    assert content[1] == {"type": "redacted_thinking", "data": "opaque"}


def _broken(face: Face) -> dict[str, Any]:
    """A request that answers a call which was never made."""
    answer: dict[str, Any] = {"type": "function_call_output", "call_id": "call_unknown", "output": "1"}
    if face is CHAT:
        answer = {"role": "tool", "tool_call_id": "call_unknown", "content": "1"}
    if face is MESSAGES:
        block = {"type": "tool_result", "tool_use_id": "call_unknown", "content": "1"}
        answer = {"role": "user", "content": [block]}
    return {**face.asking(), face.field: [answer]}


def test_case_18_a_pairing_the_provider_refuses(each: Field, stream: bool) -> None:
    """Its 400 is known and unbilled: released of its tokens, and not tried again."""
    played = each.play([text("never")], request=_broken(each.face), stream=stream)
    assert isinstance(played.error, ProviderRejected)
    assert (played.error.status, played.error.retryable, played.wire) == (400, False, 1)
    assert each.account.settled.total_tokens == 0
    assert each.account.settled.model_calls == 1


def test_case_18_a_history_that_the_provider_lost(case: Field) -> None:
    """The same of a 404 for an item that was not stored."""
    played = case.play([status(404, message="Item with id 'rs_1' not found.")])
    assert isinstance(played.error, ProviderRejected)
    assert (played.error.retryable, played.wire) == (False, 1)
    assert case.account.settled.total_tokens == 0


def test_case_20_results_that_are_too_large(each: Field, stream: bool) -> None:
    """A result over the limit is DONE with digest and size, told, and never a reason to run again."""
    ran: list[int] = []

    @tool(version="v1", effect="at_most_once")
    def dump(pad: str = "") -> str:
        """Dump everything."""
        ran.append(len(pad))
        return "x" * (11 * 1024 * 1024)

    provider = SimulatedProvider([calls(call("dump")), status(500), text("ok")])
    each.play(provider, [dump], stream=stream, run="r")
    played = each.play(provider, [dump], stream=stream, run="r")
    assert played.text == "ok"
    assert ran == [0]
    (done,) = each.effects
    assert (done.state, done.reason, done.result_bytes) == ("DONE", "RESULT_TOO_LARGE", 11 * 1024 * 1024)
    assert len(played.outputs[0]) < 1_000
    assert each.face.answered(played.sent[2])[0][1] == played.outputs[0]


def test_case_20_arguments_that_are_too_large(each: Field) -> None:
    """Arguments over the limit are refused, and the provider's refusal of their history is final."""
    ran: list[str] = []

    @tool(version="v1", effect="at_most_once")
    def keep(pad: str) -> str:
        """Keep something."""
        ran.append(pad)
        return "kept"

    script = [calls(call("keep", {"pad": "y" * 1_200_000})), status(400)]
    played = each.play(script, [keep], budget=Budget(total_tokens=900_000, tool_calls=2))
    assert isinstance(played.error, ProviderRejected)
    assert not played.error.retryable
    assert ran == []
    assert [(effect.state, effect.reason) for effect in each.effects] == [("REFUSED", "INVALID_ARGUMENTS")]


@pytest.mark.postgres
def test_case_20_a_large_result_on_postgresql(on_postgres: Field) -> None:
    """What is near the limit is kept whole, on the other database too."""

    @tool(version="v1", effect="at_most_once")
    def dump() -> str:
        """Dump as much as is kept."""
        return "x" * 900_000

    budget = Budget(total_tokens=2_000_000, tool_calls=1)
    played = on_postgres.play([calls(call("dump")), text("ok")], [dump], budget=budget)
    assert played.error is None
    assert len(played.outputs[0]) >= 900_000
