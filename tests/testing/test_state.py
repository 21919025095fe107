"""Server-side state: stored and background responses, continuations by id, counting."""

from __future__ import annotations

from typing import Any

import pytest
from openai import BadRequestError, NotFoundError

from memoflow.testing import call, calls, failed, items, message, reasoning, status, text, usage
from tests.testing._callers import Caller
from tests.testing.conftest import Talk


def _retrieve(caller: Caller, response_id: str, **options: Any) -> Any:
    return caller.ask(lambda responses: responses.retrieve(response_id, **options))


def _background(caller: Caller, **request: Any) -> Any:
    return caller.create(background=True, **request)


def test_a_response_can_be_retrieved(talk: Talk) -> None:
    """A stored response is retrieved as it was created; that is a wire request and no generation."""
    caller = talk(calls(call("f"), thought="Hm."))
    created = caller.create()
    assert _retrieve(caller, created.id).to_dict() == created.to_dict()
    assert caller.provider.wire_requests == {"POST /v1/responses": 1, "GET /v1/responses/{id}": 1}
    assert caller.provider.performed == 1


def test_store_false_is_404(talk: Talk) -> None:
    """What was not stored cannot be retrieved."""
    caller = talk()
    with pytest.raises(NotFoundError):
        _retrieve(caller, caller.create(store=False).id)


def test_background_goes_step_by_step(talk: Talk) -> None:
    """A background response is queued, then in progress, then completed; it is billed when it completes."""
    caller = talk(text("Done.", usage=usage(10, 5)))
    created = _background(caller)
    assert (created.status, created.output, created.usage, created.background) == ("queued", [], None, True)
    assert caller.provider.billed.total == 0
    first, second, third = [_retrieve(caller, created.id) for _ in range(3)]
    assert (first.status, first.usage) == ("in_progress", None)
    assert (second.status, second.output_text, second.usage.total_tokens) == ("completed", "Done.", 15)
    assert third.to_dict() == second.to_dict()
    assert caller.provider.billed.total == 15
    assert [record.performed for record in caller.provider.requests] == [True, False, False, False]


def test_background_may_fail(talk_in_process: Talk) -> None:
    """A background response ends as the script says."""
    caller = talk_in_process(failed("server_error"), background_polls=1)
    assert _retrieve(caller, _background(caller).id).error.code == "server_error"


def test_background_by_hand(talk_in_process: Talk) -> None:
    """With `background_polls=None` only `advance` takes a response further."""
    caller = talk_in_process("a", "b", background_polls=None)
    first, second = _background(caller).id, _background(caller).id
    caller.provider.advance(first)
    assert [_retrieve(caller, each).status for each in (first, second)] == ["in_progress", "queued"]
    caller.provider.advance()
    assert [_retrieve(caller, each).status for each in (first, second)] == ["completed", "in_progress"]


def test_cancelling_is_idempotent(talk: Talk) -> None:
    """A cancelled background response stays cancelled, without usage and without a bill."""
    caller = talk()
    created = _background(caller)
    cancelled = [caller.ask(lambda responses: responses.cancel(created.id)) for _ in range(2)]
    assert [response.status for response in cancelled] == ["cancelled", "cancelled"]
    assert (cancelled[0].usage, cancelled[0].output) == (None, [])
    assert _retrieve(caller, created.id).status == "cancelled"
    assert caller.provider.billed.total == 0


def test_a_cancelled_response_may_report_usage(talk_in_process: Talk) -> None:
    """Whether a cancelled response carries usage is not known, so a provider can do either."""
    caller = talk_in_process(cancelled_usage=True)
    created = _background(caller)
    cancelled = caller.ask(lambda responses: responses.cancel(created.id))
    assert cancelled.usage.output_tokens == 0
    assert caller.provider.billed.input_tokens == cancelled.usage.input_tokens > 0
    assert _retrieve(caller, created.id).usage.total_tokens == cancelled.usage.total_tokens


def test_cancelling_a_finished_background_response_returns_it(talk_in_process: Talk) -> None:
    """Cancelling too late returns the final response."""
    caller = talk_in_process("Done.", background_polls=1)
    created = _background(caller)
    _retrieve(caller, created.id)
    assert caller.ask(lambda responses: responses.cancel(created.id)).output_text == "Done."


def test_only_background_responses_can_be_cancelled(talk_in_process: Talk) -> None:
    """Cancelling an ordinary response is refused."""
    caller = talk_in_process()
    created = caller.create()
    with pytest.raises(BadRequestError, match="Cannot cancel a synchronous response"):
        caller.ask(lambda responses: responses.cancel(created.id))


def test_a_background_stream_can_be_resumed(talk: Talk) -> None:
    """A background stream begins queued; retrieving it with stream=true repeats what came after a number."""
    caller = talk(text("Hello again."))
    events = caller.events(background=True)
    assert [event.type for event in events[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    response_id = events[0].response.id
    again = caller.read(lambda responses: responses.retrieve(response_id, stream=True, starting_after=4))
    assert [event.to_dict() for event in again] == [event.to_dict() for event in events[5:]]
    assert caller.provider.performed == 1


def test_only_background_streams_can_be_resumed(talk_in_process: Talk) -> None:
    """Retrieving with stream=true what was not created so is refused."""
    caller = talk_in_process()
    created = caller.create()
    with pytest.raises(BadRequestError):
        caller.read(lambda responses: responses.retrieve(created.id, stream=True, starting_after=0))


def test_deleting(talk: Talk) -> None:
    """A deleted response is gone."""
    caller = talk()
    created = caller.create()
    assert caller.ask(lambda responses: responses.delete(created.id)) is None
    with pytest.raises(NotFoundError):
        _retrieve(caller, created.id)


def test_input_items_are_listed(talk: Talk) -> None:
    """Input items are listed newest first, or in order, each with an id."""
    caller = talk()
    created = caller.create(input=[{"role": "user", "content": str(number)} for number in range(5)])
    newest = caller.ask(lambda responses: responses.input_items.list(created.id, limit=2))
    assert [item.content for item in newest.data] == ["4", "3"]
    ordered = caller.ask(lambda responses: responses.input_items.list(created.id, order="asc"))
    assert [item.content for item in ordered.data] == ["0", "1", "2", "3", "4"]
    assert len({item.id for item in ordered.data}) == 5


def test_pages_of_input_items_end(talk: Talk) -> None:
    """Following the pages gives every input item once."""
    caller = talk()
    created = caller.create(input=[{"role": "user", "content": str(number)} for number in range(5)])
    items = caller.read(lambda responses: responses.input_items.list(created.id, limit=2))
    assert [item.content for item in items] == ["4", "3", "2", "1", "0"]
    assert caller.provider.wire_requests["GET /v1/responses/{id}/input_items"] == 3


def test_a_response_continues_another(talk: Talk) -> None:
    """With previous_response_id the earlier turns are context: calls are answered, input is billed."""
    caller = talk(calls(call("f"), thought="Hm."), "done")
    first = caller.create(input="What is it?")
    answer = {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "42"}
    second = caller.create(input=[answer], previous_response_id=first.id)
    assert (second.output_text, second.previous_response_id) == ("done", first.id)
    assert second.usage.input_tokens > first.usage.input_tokens


def test_a_continuation_must_answer_the_calls(talk_in_process: Talk) -> None:
    """With previous_response_id, too, an unanswered call and an item handed back twice are refused."""
    caller = talk_in_process(calls(call("f")))
    first = caller.create()
    with pytest.raises(BadRequestError, match="No tool output found"):
        caller.create(input="And?", previous_response_id=first.id)
    again = [item.to_dict() for item in first.output]
    with pytest.raises(BadRequestError, match="Duplicate item"):
        caller.create(input=again, previous_response_id=first.id)


def test_an_unknown_previous_response_is_400(talk_in_process: Talk) -> None:
    """A previous response that is not there, or not ready, is refused."""
    caller = talk_in_process()
    for previous in ("resp_missing", _background(caller).id):
        with pytest.raises(BadRequestError) as caught:
            caller.create(previous_response_id=previous)
        assert caught.value.code == "previous_response_not_found"


def test_an_item_can_be_referred_to(talk_in_process: Talk) -> None:
    """A stored item may be handed back by its id alone; one that is not stored is a 404."""
    caller = talk_in_process(items([reasoning(), message("Hi")]), "done")
    output = caller.create().output
    references = [{"type": "item_reference", "id": item.id} for item in output]
    assert caller.create(input=references).output_text == "done"
    with pytest.raises(NotFoundError):
        caller.create(input=[{"type": "item_reference", "id": "msg_missing"}])


def test_a_conversation_remembers(talk_in_process: Talk) -> None:
    """Turns of one conversation are context of its next turn."""
    caller = talk_in_process()
    first, second = [caller.create(conversation="conv_1") for _ in range(2)]
    assert first.conversation.id == "conv_1"
    assert second.usage.input_tokens > first.usage.input_tokens


def test_counting_agrees_with_the_bill(talk: Talk) -> None:
    """The counting endpoint gives exactly the input tokens that the same request is billed for."""
    caller = talk()
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}
    request: dict[str, Any] = {
        "model": "m",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "What is this?"}, image]}],
        "instructions": "Be short.",
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}],
    }
    counted = caller.ask(lambda responses: responses.input_tokens.count(**request))
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens == caller.create(**request).usage.input_tokens > 85
    assert caller.provider.performed == 1


@pytest.mark.parametrize(
    ("item", "tokens"),
    [
        ({"role": "user", "content": "one two"}, 2),
        ({"role": "user", "content": None}, 0),
        ({"role": "user", "content": ["x"]}, 3),
        ({"role": "user", "content": {"a": 1}}, 7),
        ({"type": "function_call_output", "call_id": "c", "output": "ok"}, 1),
        (
            {
                "type": "custom_tool_call_output",
                "call_id": "c",
                "output": [{"type": "input_text", "text": "ok"}],
            },
            1,
        ),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, 3),
        ({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}, 2),
        ({"type": "brand_new", "foo": 1}, 17),
        ({"type": "brand_new", "foo": "é"}, 19),
    ],
)
def test_every_kind_of_input_is_counted(item: dict[str, Any], tokens: int, talk_in_process: Talk) -> None:
    """Input items cost their text and three tokens each; what is not known costs its JSON."""
    request = {"model": "m", "input": [item]}
    counted = talk_in_process().ask(lambda responses: responses.input_tokens.count(extra_body=request))
    assert counted.input_tokens == tokens + 6


def test_counting_sees_earlier_turns(talk_in_process: Talk) -> None:
    """Counting with previous_response_id counts the earlier turns too."""
    caller = talk_in_process()
    first = caller.create()
    counted = caller.ask(
        lambda responses: responses.input_tokens.count(model="m", input="x", previous_response_id=first.id)
    )
    alone = caller.ask(lambda responses: responses.input_tokens.count(model="m", input="x"))
    assert counted.input_tokens > alone.input_tokens


@pytest.mark.parametrize("body", [{"input": 3}, {"previous_response_id": "resp_missing"}])
def test_bad_counting_requests_are_400(body: dict[str, Any], talk_in_process: Talk) -> None:
    """The counting endpoint refuses what it cannot read."""
    with pytest.raises(BadRequestError):
        talk_in_process().ask(lambda responses: responses.input_tokens.count(extra_body=body))


def test_other_operations_can_fail_too(talk: Talk) -> None:
    """A script for an operation other than create makes that operation fail, once an entry."""
    caller = talk()
    created = caller.create()
    caller.provider.push(status(404, code="gone"), to="retrieve")
    with pytest.raises(NotFoundError) as caught:
        _retrieve(caller, created.id)
    assert caught.value.code == "gone"
    assert _retrieve(caller, created.id).id == created.id
