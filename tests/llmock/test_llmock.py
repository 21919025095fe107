"""llmock behind memoflow: replies, tools and faults of a server that was written for other clients.

After each test its journal has one request for each invocation, and no repetition of an SDK (see ``meet``).
"""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from llmock.scenarios import Delay, Fail, Match, Reply, SlowFirstToken, StreamFault, ToolCall, ToolFault

from memoflow import OutcomeUnknown, ProviderRejected
from memoflow.budget import Amounts
from tests._apis import CHAT, MESSAGES
from tests.llmock.conftest import Foreign, Meet
from tests.turn._asks import LEAVE
from tests.turn._tools import Bench

SOON = 0.2  # seconds until a limit is reached that is to be reached
KINDS: tuple[Literal["run", "stream"], ...] = ("run", "stream")
LOOPS: tuple[Literal["run_with_tools", "stream"], ...] = ("run_with_tools", "stream")

kinds = pytest.mark.parametrize("kind", KINDS)
loops = pytest.mark.parametrize("kind", LOOPS)


def state(w: Foreign) -> tuple[str, str, str | None]:
    """State and reason of the only invocation and of its reservation."""
    found = w.invocation
    return found.state, found.reservation_state, found.reason


def results_sent(w: Foreign, body: dict[str, Any]) -> list[Any]:
    """The numbers in the tools' results that a request hands back."""
    if w.api is MESSAGES:
        texts = [block["content"] for block in body["messages"][-1]["content"]]
    elif w.api is CHAT:
        texts = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    else:
        texts = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
    return [json.loads(text)["n"] for text in texts]


@kinds
def test_a_reply(meet: Meet, kind: Any) -> None:
    """Its estimate of the usage is settled as it reports it, and the reply is restored."""
    w = meet(Reply(text="Hello from elsewhere."))
    assert w.api.said(w.ask(w.api.ask(kind)).result.response) == "Hello from elsewhere."
    assert state(w)[:2] == ("SUCCEEDED", "SETTLED")
    assert w.ask(w.api.ask(kind)).result.restored
    w.check_counts()


@kinds
def test_a_reply_that_was_cut_short(meet: Meet, kind: Any) -> None:
    """The finish reason of each API becomes the one word."""
    w = meet(Reply(text="Hello from", finish_reason="length"))
    w.ask(w.api.ask(kind))
    assert w.invocation.finish_reason == "length"
    w.check_counts()


@loops
def test_a_loop(meet: Meet, kind: Any) -> None:
    """Both calls of one reply run, and the next request hands their results back in order."""
    bench = Bench()
    w = meet(Reply(tool_calls=(ToolCall("f", {"n": 1}), ToolCall("f", {"n": 2}))), Reply(text="Done."))
    got = w.ask(w.api.ask(kind, tools=(bench.make("f"),))).result
    assert w.api.said(got.response) == "Done."
    assert sorted(n for _, n in bench.ran) == [1, 2]
    assert results_sent(w, w.seen[1].body) == [1, 2]
    w.check_counts()


@loops
@pytest.mark.parametrize(
    ("fault", "code"), [("malformed_arguments", "INVALID_ARGUMENTS"), ("unknown_tool", "UNKNOWN_TOOL")]
)
def test_calls_that_cannot_run(meet: Meet, kind: Any, fault: Any, code: str) -> None:
    """The model is told, nothing runs, and the loop goes on."""
    bench = Bench()
    w = meet(ToolFault(fault), Reply(text="Done."))
    result = w.ask(w.api.ask(kind, tools=(bench.make("f"),))).result
    (refused,) = result.tool_results
    assert (refused.state, json.loads(refused.output)["error"]["code"], bench.ran) == ("REFUSED", code, [])
    w.check_counts()


@kinds
@pytest.mark.parametrize(
    ("code", "rejected"), [(400, True), (401, True), (429, True), (500, False), (503, False), (529, False)]
)
def test_a_status(meet: Meet, kind: Any, code: int, rejected: bool) -> None:
    """A refusal counts one call and no tokens, a failure is unknown; neither is sent again by the SDK."""
    w = meet(Fail(code, retry_after=2 if code == 429 else None))
    error = w.ask(w.api.ask(kind)).error
    assert type(error) is (ProviderRejected if rejected else OutcomeUnknown)
    if code == 429:
        assert isinstance(error, ProviderRejected)
        assert (error.retry_after, error.retryable) == (2.0, True)
    assert state(w)[:2] == (("FAILED", "SETTLED") if rejected else ("OUTCOME_UNKNOWN", "RECONCILE"))
    assert [record.status for record in w.seen] == [code]
    settled, _, unknown = w.balance()
    assert (settled, unknown) == (
        (Amounts(model_calls=1), Amounts()) if rejected else (Amounts(), w.invocation.reserved)
    )


@kinds
def test_a_failure_and_then_a_reply(meet: Meet, kind: Any) -> None:
    """A further attempt is an invocation of its own: two requests, two rows, the old hold beside the new."""
    w = meet(Fail(529), Reply(text="Now."))
    w.ask(w.api.ask(kind)).raised(OutcomeUnknown)
    assert w.api.said(w.ask(w.api.ask(kind)).result.response) == "Now."
    assert [record.status for record in w.seen] == [529, 200]
    first, second = w.invocations()
    assert (first.reservation_state, second.reservation_state) == ("RECONCILE", "SETTLED")
    assert (second.input_tokens, second.output_tokens) == w.tap.exchanges[1].reported(w.api)


@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize("fault", ["disconnect", "truncate", "malformed"])
def test_a_stream_that_breaks(meet: Meet, fault: Any, after: int) -> None:
    """A dropped, an early or a corrupt stream is unknown; its reply's id is kept; a retry asks again."""
    w = meet(StreamFault(fault, after_chunks=after, match=Match(stream=True)))
    w.ask(w.api.ask("stream")).raised(OutcomeUnknown)
    assert state(w)[:2] == ("OUTCOME_UNKNOWN", "RECONCILE")
    assert w.invocation.retrievable
    assert w.balance()[2] == w.invocation.reserved
    assert w.ask(w.api.ask("stream")).error is None


@pytest.mark.parametrize("fault", ["disconnect", "truncate", "malformed"])
def test_a_stream_that_breaks_within_a_call(meet: Meet, fault: Any) -> None:
    """What was seen of a call before the break does not run."""
    bench = Bench()
    asked = Reply(tool_calls=(ToolCall("f", {"n": 1}),))
    w = meet(asked, StreamFault(fault, after_chunks=3, match=Match(stream=True)))
    w.ask(w.api.ask("stream", tools=(bench.make("f"),))).raised(OutcomeUnknown)
    assert (bench.ran, w.effects()) == ([], [])


@kinds
def test_a_reply_that_comes_too_late(meet: Meet, kind: Any) -> None:
    """It is not waited for after the deadline."""
    w = meet(Delay(1.0))
    assert w.ask(w.api.ask(kind, timeout=SOON)).raised(OutcomeUnknown).reason == "DEADLINE"
    assert state(w) == ("OUTCOME_UNKNOWN", "RECONCILE", "DEADLINE")


@pytest.mark.parametrize("behaviour", [SlowFirstToken(1.0), StreamFault("stall", 3, stall_seconds=1.0)])
def test_a_stream_that_stalls(meet: Meet, behaviour: Any) -> None:
    """Nobody waits longer for an event than the limit between two."""
    w = meet(behaviour)
    assert w.ask(w.api.ask("stream", idle_timeout=SOON)).raised(OutcomeUnknown).reason == "IDLE_TIMEOUT"
    assert state(w)[:2] == ("OUTCOME_UNKNOWN", "RECONCILE")


def test_a_stream_that_is_left(meet: Meet) -> None:
    """What was held stays, as unknown."""
    w = meet(Reply(text="Some words that nobody reads to their end. " * 5))
    w.ask(w.api.ask("stream", watch=lambda event: LEAVE))
    assert state(w) == ("OUTCOME_UNKNOWN", "RECONCILE", "ABANDONED")
