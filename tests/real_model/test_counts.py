"""Token counts of a real model: what its server reported on the wire is what the ledger has."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import pytest

from memoflow import Budget, BudgetTooSmall, ProviderRejected
from memoflow.budget import Amounts
from memoflow.ledger.queries import InvocationInfo
from tests._apis import CHAT, MESSAGES, RESPONSES
from tests.real_model.conftest import MODEL, RealWorld
from tests.turn._asks import Ask
from tests.turn._tools import Bench

KINDS: tuple[Literal["run", "stream"], ...] = ("run", "stream")
CAP = 24

kinds = pytest.mark.parametrize("kind", KINDS)


def ask(w: RealWorld, kind: Any, text: str = "Name three colours.", **options: Any) -> Ask:
    """A short question."""
    return w.api.ask(kind, text, model=MODEL, **{"cap": CAP, **options})


def tokens(found: InvocationInfo) -> Amounts:
    """What was settled of an invocation, but for what the wire does not tell."""
    assert found.actual is not None
    return found.actual._replace(wall_clock_ms=0, tool_calls=0)


def check_books(w: RealWorld) -> None:
    """Every request is an invocation with the figures of the wire, and the balance is their sum."""
    reported = [exchange.reported(w.api) for exchange in w.exchanges]
    assert [tokens(found) for found in w.invocations()] == [
        Amounts(given + made, given, made, 1) for given, made in reported
    ]
    total, held, unknown = w.balance()
    given, made = (sum(column) for column in zip(*reported, strict=True))
    assert total._replace(tool_calls=0) == Amounts(given + made, given, made, len(reported))
    assert (held, unknown) == (Amounts(), Amounts())


@kinds
def test_the_counts_of_the_wire_are_settled(real: RealWorld, kind: str) -> None:
    """Exactly, streamed or not; within the reservation; and the reply is restored without a request."""
    got = real.ask(ask(real, kind)).result
    assert real.api.said(got.response).strip()
    check_books(real)
    found = real.invocation
    assert found.state == "SUCCEEDED"
    assert tokens(found).total_tokens <= found.reserved.total_tokens
    again = real.ask(ask(real, kind)).result
    assert (again.restored, real.api.said(again.response)) == (True, real.api.said(got.response))
    assert len(real.exchanges) == 1


def test_a_stream_and_a_whole_reply_cost_the_same(real: RealWorld) -> None:
    """The same question at temperature 0: the same input, and the same text from both ways."""
    whole = real.ask(ask(real, "run", replay_key="whole")).result
    streamed = real.ask(ask(real, "stream", replay_key="streamed")).result
    assert real.api.said(whole.response) == real.api.said(streamed.response)
    first, second = map(tokens, real.invocations())
    assert first == second


@kinds
def test_a_cap_that_memoflow_sends_is_kept(real: RealWorld, kind: str) -> None:
    """A request without a cap is given what its reservation leaves, and the model stops there."""
    real.ask(ask(real, kind, "Tell a long story.", cap=None, budget=Budget(total_tokens=200)))
    (exchange,) = real.exchanges
    found = real.invocation
    assert exchange.sent[real.api.cap] == found.output_cap
    assert exchange.reported(real.api)[1] == found.output_cap
    assert tokens(found).total_tokens <= 200
    # This server calls a Responses reply complete that its cap cut off.
    assert found.finish_reason == ("stop" if real.api is RESPONSES else "length")
    check_books(real)


@kinds
@pytest.mark.parametrize("api", [CHAT], ids=str, indirect=True)
def test_choices_of_one_reply(real: RealWorld, kind: str) -> None:
    """Several choices of one request are one invocation, with the one usage that is reported for them."""
    got = real.ask(ask(real, kind, more={"n": 2})).result
    assert [choice.index for choice in got.response.choices] == [0, 1]
    assert all(choice.message.content for choice in got.response.choices)
    check_books(real)


SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "maxLength": 12}},
    "required": ["colour"],
    "additionalProperties": False,
}


# This server does not look at ``text.format`` of a Responses request.
@kinds
@pytest.mark.parametrize("api", [CHAT], ids=str, indirect=True)
def test_a_structured_reply(real: RealWorld, kind: str) -> None:
    """The schema reaches the server, which keeps the model to it, and the counts are settled."""
    form = {"type": "json_schema", "json_schema": {"name": "colour", "schema": SCHEMA}}
    asked = ask(real, kind, "Which colour is the sky?", cap=60, more={"response_format": form})
    got = real.ask(asked).result
    assert json.loads(real.api.said(got.response)).keys() == {"colour"}
    check_books(real)


def test_a_cap_that_does_not_fit_sends_nothing(real: RealWorld) -> None:
    """Refused before the model is asked."""
    real.ask(ask(real, "run", cap=500, budget=Budget(total_tokens=300))).raised(BudgetTooSmall)
    assert (real.tap.exchanges, real.invocations()) == ([], [])


@kinds
@pytest.mark.parametrize("api", [RESPONSES, MESSAGES], ids=str, indirect=True)
def test_the_count_of_the_server_is_the_input(real: RealWorld, kind: str) -> None:
    """Where the server counts, its count is what it then reports, so nothing of the budget is lost."""
    real.ask(ask(real, kind, "¿Cuántos años tiene? 多大年纪?", count_input=True))
    found = real.invocation
    assert (found.input_basis, found.input_measured) == ("counted", found.input_tokens)
    check_books(real)


def test_what_the_model_cannot_take_is_rejected(real: RealWorld) -> None:
    """An input longer than its context is a definite refusal: no tokens, one call."""
    real.ask(ask(real, "run", "word " * 9_000)).raised(ProviderRejected)
    found = real.invocation
    assert (found.state, found.http_status, found.reason) == ("FAILED", 400, "PROVIDER_REJECTED")
    assert real.balance() == (Amounts(model_calls=1), Amounts(), Amounts())


@pytest.mark.parametrize("mode", ["async"], indirect=True)
def test_calls_side_by_side_are_settled_each_with_its_own(real: RealWorld) -> None:
    """Several at once on one account; each invocation has the counts of its own reply."""
    texts = ["One word: sky?", "Two words: sea?", "Count to five.", "Say nothing at all, please."]

    async def all_of_them(llm: Any) -> None:
        asks = [ask(real, "run", text, replay_key=text) for text in texts]
        await asyncio.gather(*(llm.run(one.request, **one.options) for one in asks))

    real.within(all_of_them)
    reported = sorted(exchange.reported(real.api) for exchange in real.exchanges)
    assert sorted((found.input_tokens, found.output_tokens) for found in real.invocations()) == reported
    assert real.balance()[0].total_tokens == sum(map(sum, reported))


@pytest.mark.parametrize("kind", ["run_with_tools", "stream"])
def test_a_tool_loop(real: RealWorld, kind: Any) -> None:
    """The model calls, the tool runs once, the model reads its result; both rounds are settled exactly."""
    bench = Bench()
    double = bench.make("double", lambda n: {"n": 2 * n})
    loop = ask(real, kind, "Call double with n = 3.", cap=60, tools=(double,))
    got = real.ask(loop).result
    assert bench.ran == [("double", 3)]
    assert "6" in real.api.said(got.response)
    assert real.states() == [("DONE", None, 1)]
    assert [found.finish_reason for found in real.invocations()] == ["tool_calls", "stop"]
    check_books(real)
    assert real.balance()[0].tool_calls == 1
    assert real.ask(loop).result.restored
    assert (len(real.exchanges), len(bench.ran)) == (2, 1)
