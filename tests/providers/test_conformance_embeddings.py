"""Embeddings: one request, no output, no tools and no stream, recorded and charged like every other call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai.types import CreateEmbeddingResponse

from memoflow import (
    Budget,
    BudgetDenied,
    BudgetTooSmall,
    InvalidProviderReply,
    ReplayMismatch,
)
from memoflow.budget import Amounts
from memoflow.errors import ConfigurationError, InvalidRequest
from memoflow.testing import embedding, items, malformed_usage, missing_usage, text, usage
from tests.providers.conformance import API, OnApi, on
from tests.turn._asks import run
from tests.turn._outcome_checks import check_charged, check_raised, check_recorded
from tests.turn._outcomes import OUTCOMES, Expected, unknown, without_usage
from tests.turn._worlds import MODES, World

USED = usage(10, 0)
NOTHING = Amounts()
on_embeddings = on("embeddings")


def vectors(response: CreateEmbeddingResponse) -> list[list[float]]:
    """The vectors of a reply, in the order of the inputs."""
    return [one.embedding for one in response.data]


def by_the_sdk(w: World, **request: Any) -> list[list[float]]:
    """What the official client gives for a request by itself."""
    with w.provider.client() as client:
        return vectors(client.embeddings.create(**{"model": "gpt-test", **request}))


@on_embeddings
def test_vectors_are_what_the_sdk_gives_and_cost_their_input(api_world: OnApi) -> None:
    """Lists of floats in the SDK's own type; there is no output to reserve, cap or charge."""
    w = api_world(text("", usage=USED))
    result = w.ask(run("Grüße 👋")).result
    assert type(result.response) is CreateEmbeddingResponse
    assert vectors(result.response) == by_the_sdk(w, input="Grüße 👋")
    assert w.balance() == (Amounts(10, 10, 0, 1), NOTHING, NOTHING)
    assert (w.invocation.output_cap, w.invocation.reserved.output_tokens) == (None, 0)
    assert w.provider.requests[0].json == {
        "model": "gpt-test",
        "input": "Grüße 👋",
        "encoding_format": "base64",
    }


@on_embeddings
def test_what_is_recorded_is_restored(api_world: OnApi) -> None:
    """The same floats in a fresh object, for nothing."""
    w = api_world()
    live, restored = (w.ask(run()).result for _ in range(2))
    assert restored.response.model_dump() == live.response.model_dump()
    assert restored.response is not live.response
    assert (live.restored, restored.restored, w.sent) == (False, True, 1)
    w.ask(run("Something else")).raised(ReplayMismatch)
    assert w.again(api=API["responses"]).ask(run()).raised(ReplayMismatch).component == "api"


@on_embeddings
@pytest.mark.parametrize(
    "given",
    ["a", ["a", "b", "a"], [1, 2, 3], [[1, 2], [3]], ["x"] * 2_048],
    ids=["text", "texts", "tokens", "lists_of_tokens", "as_many_as_there_may_be"],
)
def test_inputs_of_every_form_have_a_vector_each(api_world: OnApi, given: Any) -> None:
    """One request for all of them, in their order, and the measured input bounds what they cost."""
    w = api_world()
    request = {"input": given}
    result = w.ask(run(request=request)).result
    count = len(given) if isinstance(given, list) and not isinstance(given[0], int) else 1
    assert [one.index for one in result.response.data] == list(range(count))
    assert vectors(result.response) == by_the_sdk(w, input=given)
    assert w.invocation.input_tokens is not None
    assert w.invocation.input_measured is not None
    assert 0 < w.invocation.input_tokens <= w.invocation.input_measured
    assert w.ask(run(request=request)).result.restored


@on_embeddings
@pytest.mark.parametrize("given", [[], [[]], ["a", [1]], [1, "a"], [-1], None, ["x"] * 2_049])
def test_inputs_that_cannot_be_right_are_refused_before_anything(api_world: OnApi, given: Any) -> None:
    """Nothing is reserved and nothing sent."""
    w = api_world()
    w.ask(run(request={"input": given})).raised(InvalidRequest)
    assert (w.invocations(), w.sent) == ([], 0)


@on_embeddings
def test_floats_and_base64_are_the_same_vectors(api_world: OnApi) -> None:
    """Whatever travels, a caller gets floats; asked for as text, they may be written longer."""
    w = api_world()
    packed = w.ask(run(replay_key="a")).result.response
    written = w.ask(run(replay_key="b", request={"encoding_format": "float"})).result.response
    assert vectors(packed) == vectors(written)
    assert all(isinstance(number, float) for vector in vectors(packed) for number in vector)
    bodies = [request.json["encoding_format"] for request in w.provider.requests]
    assert bodies == ["base64", "float"]
    again = w.ask(run(replay_key="b", request={"encoding_format": "float"})).result
    assert vectors(again.response) == vectors(written)


@on_embeddings
@pytest.mark.parametrize(
    "said",
    [
        [embedding(0.5, 0.25)],
        [embedding(0.5), embedding(0.5), embedding(0.5)],
        [embedding(0.5, index=0), embedding(0.5, index=0)],
        [embedding(0.5), embedding()],
    ],
    ids=["too_few", "too_many", "one_index_twice", "an_empty_one"],
)
def test_vectors_that_cannot_be_told_apart_are_refused(api_world: OnApi, said: list[Any]) -> None:
    """The reply is settled and no vector is given to anybody, neither live nor from the record."""
    w = api_world(items(said, usage=USED), text("never"))
    for _ in range(2):
        w.ask(run(request={"input": ["a", "b"]})).raised(InvalidProviderReply)
    assert (w.sent, w.invocation.reason) == (1, "INVALID_REPLY")
    assert w.balance() == (Amounts(10, 10, 0, 1), NOTHING, NOTHING)


# Budgets


@on_embeddings
def test_an_input_that_does_not_fit_is_refused_before_it_is_sent(api_world: OnApi) -> None:
    """The message says what it takes; there is no output that could be made smaller."""
    w = api_world()
    long = "word " * 500
    error = w.ask(run(long, budget=Budget(total_tokens=100))).raised(BudgetTooSmall)
    assert (error.dimension, error.reserved, error.output_cap_fits) == ("total_tokens", 100, 0)
    assert error.needed > 100
    w.ask(run(long, budget=Budget(input_tokens=100))).raised(BudgetTooSmall)
    assert (w.invocations(), w.sent) == ([], 0)
    assert w.ask(run(long, budget=Budget(total_tokens=error.needed))).error is None


@on_embeddings
def test_an_account_that_is_used_up_denies(api_world: OnApi) -> None:
    """Embeddings are charged to the same accounts as everything else."""
    twenty = text("", usage=usage(20, 0))
    w = api_world(twenty, twenty, text("never"), limits=Budget(total_tokens=60))
    small = Budget(total_tokens=40)
    assert w.ask(run("a", budget=small)).error is None
    assert w.ask(run("b", budget=small, replay_key="b")).error is None
    w.ask(run("c", budget=small, replay_key="c")).raised(BudgetDenied)
    assert w.sent == 2


@on_embeddings
def test_without_a_budget_the_input_is_what_is_reserved(api_world: OnApi) -> None:
    """A call that says nothing reserves exactly what its input can cost."""
    w = api_world()
    assert w.ask(run(budget=None)).error is None
    reserved = w.invocation.reserved
    assert reserved.total_tokens == reserved.input_tokens == w.invocation.input_measured
    assert reserved.output_tokens == 0


@on_embeddings
def test_a_usage_that_cannot_be_used_keeps_the_hold(api_world: OnApi) -> None:
    """An embedding has no output, so a usage with any is none; the vectors are given, the tokens unknown."""
    wrong = {"usage": {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}}
    w = api_world(missing_usage(), malformed_usage("negative"), text("", fields=wrong))
    for key in "abc":
        assert vectors(w.ask(run(replay_key=key)).result.response)
    assert [one.reservation_reason for one in w.invocations()] == ["USAGE_MISSING"] * 3
    settled, _, unknown = w.balance()
    assert (settled, unknown.total_tokens) == (NOTHING, 60_000)


# What there is none of


@on_embeddings
def test_there_are_no_tools_and_no_stream(api_world: OnApi) -> None:
    """The adapter has no such calls, and what only they have is refused."""
    w = api_world()
    assert not hasattr(w.api.adapters[0], "stream")
    assert not hasattr(w.api.adapters[1], "run_with_tools")
    w.ask(run(count_input=True)).raised(ConfigurationError)
    w.ask(run(request={"stream": True})).raised(InvalidRequest)
    assert (w.invocations(), w.sent) == ([], 0)


# Outcomes


# The status of a response, replies that failed, and what is a list, which is what a reply of this API is.
_OTHERWISE = ("unknown_status", "queued", "failed", "failed_for_good", "failed_early", "wrong_object")


def outcomes() -> dict[str, Expected]:
    """The rows of the table in which no reply arrives, and replies whose usage cannot be used."""
    rows = {name: row.whole for name, row in OUTCOMES.items() if not row.options and name not in _OTHERWISE}
    failures = {name: row for name, row in rows.items() if row.error is not None and row.tokens is None}
    return {**failures, "wrong_object": unknown("NO_DATA"), "missing_usage": without_usage()}


def played_outcomes() -> Iterator[Any]:
    """Each row once on SQLite, with either adapter by turns."""
    for number, name in enumerate(outcomes()):
        mode = MODES[number % 2]
        yield pytest.param("sqlite", ("embeddings", mode), name, id=f"{name}-{mode}")


@pytest.mark.parametrize(
    ("ledger", "api_world", "name"), list(played_outcomes()), indirect=["ledger", "api_world"]
)
def test_an_outcome_is_the_same_as_in_every_api(api_world: OnApi, name: str) -> None:
    """State, reservation, reason, balances and exception of a row; then a retry, which is a new request."""
    expected = outcomes()[name]
    w = api_world(OUTCOMES[name].reply(), text(""))
    check_raised(w, w.ask(run()), expected)
    check_recorded(w, expected)
    check_charged(w, expected)
    assert w.ask(run()).result.restored == (not expected.again)
