"""When the ledger cannot be written: before a call nothing is sent, after it the outcome is unknown."""

from __future__ import annotations

import pytest

from memoflow import LedgerUnavailable, OutcomeUnknown, Retry
from memoflow.budget import Amounts
from memoflow.ledger.invocations import KeepResponseId
from memoflow.testing import call, calls, stream_ends_early, text
from tests.turn._asks import loop, run, stream
from tests.turn._stopping import at_commit, from_point
from tests.turn._tools import Bench
from tests.turn._worlds import MakeWorld

KINDS = {"whole": run, "streamed": stream}
START, SETTLE = 2, 3  # commits of an attempt, after its claim
AT_ONCE = Retry(attempts=3, wait=lambda state: 0)


def unavailable() -> None:
    """What the writer raises when it has tried for long enough."""
    raise LedgerUnavailable("The ledger could not be written.")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_sent_without_a_reservation(world: MakeWorld, kind: str) -> None:
    """The next attempt finds nothing of the one that could not reserve."""
    w = world(text("Hello."))
    with at_commit(START, unavailable):
        w.ask(KINDS[kind](), retry=AT_ONCE).raised(LedgerUnavailable)
    assert (w.provider.requests, w.invocations()) == ([], [])
    assert w.ask(KINDS[kind]()).result.response.output_text == "Hello."


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_that_is_not_recorded_is_unknown(world: MakeWorld, kind: str) -> None:
    """It was paid for: the error is none that is retried, and the hold stays for whoever decides."""
    w = world(text("Hello."), text("again"))
    with from_point("before:Commit", unavailable, occurrence=2, until="after:Commit"):
        error = w.ask(KINDS[kind](), retry=AT_ONCE).raised(OutcomeUnknown)
    assert (error.kind, error.reason, error.retryable) == ("invocation", "NOT_RECORDED", False)
    assert error.id == w.invocation.id
    assert w.sent == 1
    assert w.balance()[0] == Amounts()
    w.ask(KINDS[kind](on_unknown="block")).raised(OutcomeUnknown)
    assert (w.invocation.state, w.invocation.reservation_state) == ("OUTCOME_UNKNOWN", "RECONCILE")
    assert w.balance()[2] == w.invocation.reserved


@pytest.mark.parametrize("refusal", [LedgerUnavailable, ValueError])
def test_a_response_id_that_was_not_kept_meanwhile_is_kept_at_the_end(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, refusal: type[Exception]
) -> None:
    """So the provider can be asked about a stream that broke, whatever became of keeping its id before."""

    def refuse(self: KeepResponseId, tx: object) -> None:
        raise refusal("The id was not kept.")

    w = world(stream_ends_early(text("Hello.")), stream_ends_early(text("Hello.")))
    with monkeypatch.context() as patched:
        patched.setattr(KeepResponseId, "apply", refuse)
        w.ask(stream()).raised(OutcomeUnknown)
    assert w.invocation.retrievable
    w.ask(stream()).raised(OutcomeUnknown)
    assert [one.retrievable for one in w.invocations()] == [True, True]


def test_a_tools_outcome_that_is_not_recorded_is_open(world: MakeWorld) -> None:
    """The tool ran, and nobody can tell: the next attempt asks, and does not run it."""
    bench = Bench()
    w = world(calls(call("f", {"n": 1})), text("Done."))
    with at_commit(SETTLE + 1, unavailable):
        w.ask(loop(bench.make("f"))).raised(LedgerUnavailable)
    error = w.ask(loop(bench.make("f"))).raised(OutcomeUnknown)
    assert (error.kind, error.id) == ("effect", w.effects()[0].id)
    assert (len(bench.ran), w.sent) == (1, 1)
