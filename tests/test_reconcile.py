"""The queue of unknowns and decisions on it, with real activities and a simulated provider."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memoflow import Budget, KeyRing, Money, Price, PriceBook, Runtime
from memoflow.canonical import Digester
from memoflow.errors import (
    ActivityBusy,
    ConfigurationError,
    InvalidBudget,
    InvalidRequest,
    MemoflowError,
    NotFound,
    OutcomeUnknown,
)
from memoflow.ledger.database import Database
from memoflow.ledger.invocations import KeepResponseId
from memoflow.ledger.outputs import Vault, read_output
from memoflow.ledger.places import response_id_place
from memoflow.ledger.verify import verify
from memoflow.openai import OpenAIResponses
from memoflow.reconcile import Reconciler
from memoflow.testing import SimulatedProvider, closed_before_reply, stream_ends_early, text
from tests.ledger._calls import LEASE, ask, bound, identity, open_ledger

WHO: dict[str, str] = {"actor": "ann", "reason": "asked the provider"}
DIGESTER = Digester(b"k" * 32, "d1")


@pytest.fixture
def rt(database_url: str) -> Iterator[Runtime]:
    """A runtime with one account; when the test is over, every fact of the ledger must hold."""
    prices = PriceBook({"gpt-test": Price(input=1, output=2)})
    with Runtime.open(database_url, keys=KeyRing.generate(), digester=DIGESTER, prices=prices) as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=10_000, cost=Money.of(5)))
        yield runtime
        assert runtime.ledger.database.read(verify) == []


class World:
    """An activity that streams one reply, and the provider it talks to."""

    def __init__(self, rt: Runtime, *script: Any, **options: Any) -> None:
        self.rt = rt
        self.provider = SimulatedProvider(list(script), **options)
        self.llm = OpenAIResponses(self.provider.client())

        @rt.activity(version="v1", budget="acme", name="answer")
        def answer(question: str) -> str:
            request = {"model": "gpt-test", "input": question, "max_output_tokens": 64, "store": True}
            with self.llm.stream(request, replay_key="turn") as stream:
                for _ in stream:
                    pass
                return stream.result.response.output_text

        self.answer = answer

    def ask(self) -> str:
        """Run the activity; the same identity every time."""
        return self.answer.run("Why?", workflow_id="w", run_id="r")

    def lose(self) -> str:
        """Run it into an unknown outcome; returns the invocation's id."""
        with pytest.raises(OutcomeUnknown) as unknown:
            self.ask()
        return unknown.value.id


def used(rt: Runtime) -> tuple[int, int]:
    """Settled and unknown total tokens of the account."""
    info = rt.budgets.show("acme")
    return info.settled.total_tokens, info.unknown.total_tokens


# The queue


def test_an_unknown_waits_in_the_queue_with_its_exposure(rt: Runtime) -> None:
    """What is held, on which account, why, and whether the provider can be asked."""
    id = World(rt, stream_ends_early(text("Because."))).lose()
    queue = rt.reconcile.list()
    (invocation,), (exposure,) = queue.invocations, queue.exposures
    assert (invocation.id, invocation.state, invocation.reservation_state) == (
        id,
        "OUTCOME_UNKNOWN",
        "RECONCILE",
    )
    assert (invocation.workflow_id, invocation.run_id, invocation.accounts) == ("w", "r", ("acme",))
    assert invocation.retrievable
    assert (exposure.account, exposure.invocations) == ("acme", 1)
    assert exposure.amounts == rt.budgets.show("acme").unknown
    assert queue.effects == ()


def test_a_case_has_the_decisions_made_on_it(rt: Runtime) -> None:
    """Before and after: the row is found by its id, also when it has left the queue."""
    id = World(rt, closed_before_reply()).lose()
    case = rt.reconcile.show(id)
    assert case.invocation is not None
    assert (case.invocation.id, case.effect, case.decisions, case.evidence) == (id, None, (), ())
    decision = rt.reconcile.settle(id, **WHO)
    assert rt.reconcile.show(id).decisions == (decision,)
    assert rt.reconcile.list().invocations == ()


def test_what_is_not_there_is_said_to_be_missing(rt: Runtime) -> None:
    """Every method says so, for invocations and effects."""
    for look in (
        lambda: rt.reconcile.show("nothing"),
        lambda: rt.reconcile.settle("nothing", **WHO),
        lambda: rt.reconcile.release("nothing", evidence="e", **WHO),
        lambda: rt.reconcile.happened("nothing", **WHO),
        lambda: rt.reconcile.did_not_happen("nothing", evidence="x", **WHO),
    ):
        with pytest.raises(NotFound):
            look()


# Settling and releasing


def test_settling_without_figures_spends_the_whole_hold(rt: Runtime) -> None:
    """Nothing that may have been spent is given back for want of figures."""
    id = World(rt, closed_before_reply()).lose()
    held = rt.budgets.show("acme").unknown
    decision = rt.reconcile.settle(id, **WHO)
    info = rt.budgets.show("acme")
    assert decision.actual == held == info.settled
    assert info.unknown.total_tokens == 0


def test_settling_with_figures_spends_those(rt: Runtime) -> None:
    """And repeating the same decision id is harmless."""
    id = World(rt, closed_before_reply()).lose()
    decision_id = str(uuid.uuid4())
    usage = Budget(input_tokens=5, output_tokens=7, cost=Money.of("0.01"))
    first = rt.reconcile.settle(id, usage, decision_id=decision_id, **WHO)
    assert rt.reconcile.settle(id, usage, decision_id=decision_id, **WHO) == first
    assert (first.id, used(rt)) == (decision_id, (12, 0))
    assert rt.budgets.show("acme").settled.cost == 10_000_000


def test_a_cost_in_another_currency_is_refused(rt: Runtime) -> None:
    """Nano-euros must not be added to nano-dollars."""
    id = World(rt, closed_before_reply()).lose()
    with pytest.raises(InvalidBudget, match="reserved in USD"):
        rt.reconcile.settle(id, Budget(cost=Money.of(1, "EUR")), **WHO)
    assert used(rt)[0] == 0


@pytest.mark.parametrize("evidence", ["ticket 7: never received", b"\x00\xff", "\ud800"])
def test_evidence_is_kept_as_a_keyed_digest_only(rt: Runtime, evidence: str | bytes) -> None:
    """What it says stays with whoever has it; anybody can check it against the digest."""
    id = World(rt, closed_before_reply()).lose()
    decision = rt.reconcile.release(id, evidence=evidence, **WHO)
    data = evidence if isinstance(evidence, bytes) else evidence.encode("utf-8", "surrogatepass")
    assert decision.evidence_digest == DIGESTER.bytes(data)
    assert decision.evidence_digest.startswith("hmac-sha256:d1:")
    assert used(rt) == (0, 0)


def test_a_decided_unknown_does_not_block_a_retry(rt: Runtime) -> None:
    """The next attempt asks anew and is charged beside the decision."""
    world = World(rt, closed_before_reply(), text("Because."))
    rt.reconcile.settle(world.lose(), Budget(total_tokens=9), **WHO)
    assert world.ask() == "Because."
    assert used(rt)[0] > 9


# Writing off


def test_writing_off_takes_what_is_old_enough_as_spent(rt: Runtime, database_url: str) -> None:
    """By the database's clock, from when the call started; never as free."""
    id = World(rt, closed_before_reply()).lose()
    held = used(rt)[1]
    assert rt.reconcile.write_off(timedelta(hours=1)) == ()
    later = Database(
        database_url, clock=lambda connection: rt.ledger.database.clock(connection) + 3_600_000_001
    )
    old = Reconciler(later, rt.ledger.writer, rt.namespace)
    (decision,) = old.write_off(timedelta(hours=1))
    later.close()
    assert (decision.target_id, decision.verdict, decision.actor) == (id, "settle", "policy")
    assert used(rt) == (held, 0)


def test_an_age_is_not_negative(rt: Runtime) -> None:
    """The future has nothing to write off."""
    with pytest.raises(InvalidRequest):
        rt.reconcile.write_off(timedelta(seconds=-1))


# Asking the provider


def test_a_retrieved_reply_is_settled_and_restored_by_the_next_attempt(rt: Runtime) -> None:
    """The provider had finished after all: its figures are charged, and a retry sends nothing."""
    world = World(rt, stream_ends_early(text("Because.")), store_interrupted=True)
    id = world.lose()
    (attempted,) = rt.reconcile.auto(world.llm.retrieve)
    assert (attempted.invocation_id, attempted.left) == (id, None)
    assert attempted.decision is not None
    assert (attempted.decision.actor, attempted.decision.verdict) == ("memoflow", "settle")
    assert attempted.decision.evidence_digest is not None
    billed = world.provider.billed
    assert used(rt) == (billed.total, 0)
    assert rt.budgets.show("acme").settled.cost == rt.prices.cost(
        "gpt-test", input_tokens=billed.input_tokens, output_tokens=billed.output_tokens
    )
    before = world.provider.wire_requests["POST /v1/responses"]
    assert world.ask() == "Because."
    assert world.provider.wire_requests["POST /v1/responses"] == before
    row = rt.reconcile.show(id).invocation
    assert row is not None
    assert (row.state, row.reason, row.finish_reason) == ("SUCCEEDED", "RETRIEVED", "stop")
    assert row.response_digest == attempted.decision.evidence_digest


def test_what_the_provider_does_not_have_stays_in_the_queue(rt: Runtime) -> None:
    """404 proves nothing: the real API does not store interrupted streams."""
    world = World(rt, stream_ends_early(text("Because.")))
    id = world.lose()
    (attempted,) = rt.reconcile.auto(world.llm.retrieve)
    assert (attempted.decision, attempted.left) == (None, "NOT_FOUND")
    assert [one.id for one in rt.reconcile.list().invocations] == [id]


def body(response_id: str, **changes: Any) -> bytes:
    """A response as the API stores it."""
    whole: dict[str, Any] = {
        "id": response_id,
        "object": "response",
        "status": "completed",
        "model": "gpt-test",
        "output": [],
        "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
    }
    return json.dumps(whole | changes).encode()


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (lambda id: body(id, status="in_progress", usage=None), "PENDING"),
        (lambda id: body(id, usage=None), "USAGE_MISSING"),
        (lambda id: body(id, usage=None, status="failed", error={"code": "server_error"}), "USAGE_MISSING"),
        (lambda id: body(f"{id}0"), "WRONG_REPLY"),
        (lambda id: b"<html>", "NOT_JSON"),
        (lambda id: None, "NOT_FOUND"),
    ],
)
def test_without_proof_nothing_is_decided(
    rt: Runtime, answer: Callable[[str], bytes | None], left: str
) -> None:
    """Not finished, no usage, another reply, not readable, not there: the hold stays."""
    World(rt, stream_ends_early(text("Because."))).lose()
    held = used(rt)
    (attempted,) = rt.reconcile.auto(answer)
    assert (attempted.decision, attempted.left) == (None, left)
    assert used(rt) == held


def test_a_failing_client_leaves_the_rest_to_be_asked(rt: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    """One reply that cannot be fetched does not hide the next; the log has no text of the error."""
    world = World(rt, stream_ends_early(text("a")), stream_ends_early(text("b")))
    world.lose()
    world.lose()
    errors = [OSError("the secret prompt")]

    def retrieve(response_id: str) -> bytes:
        if errors:
            raise errors.pop()
        return body(response_id)

    first, second = rt.reconcile.auto(retrieve)
    assert (first.left, second.left) == ("RETRIEVE_FAILED", None)
    assert "OSError" in caplog.text
    assert "secret" not in caplog.text


def test_a_retrieved_failure_is_charged_and_asked_again(rt: Runtime) -> None:
    """A reply that failed and says its usage is proof of what was spent, and no record to restore."""
    world = World(rt, stream_ends_early(text("a")), text("Because."))
    id = world.lose()
    error = {"code": "server_error", "message": "no"}
    (attempted,) = rt.reconcile.auto(lambda response_id: body(response_id, status="failed", error=error))
    assert attempted.left is None
    assert used(rt) == (7, 0)
    row = rt.reconcile.show(id).invocation
    assert row is not None
    assert (row.state, row.error_code) == ("FAILED", "server_error")
    assert rt.ledger.database.read(lambda connection: read_output(connection, id, "reply")) is None
    assert world.ask() == "Because."


@pytest.mark.parametrize(("asked", "charged"), [(2, 2), (3, 0)])
def test_the_calls_of_a_retrieved_reply_are_charged_if_they_can_run(
    rt: Runtime, asked: int, charged: int
) -> None:
    """A batch with more calls than the round reserved is refused as a whole, so none of it is spent."""
    item = {"type": "function_call", "name": "refund", "arguments": "{}", "status": "completed"}
    output = [{**item, "id": f"fc_{n}", "call_id": f"call_{n}"} for n in range(asked)]
    url = rt.ledger.database.url.render_as_string(hide_password=False)
    who = identity(namespace=rt.namespace)
    with open_ledger(url) as ledger:
        fence = ledger.claim(who)
        id = ledger.start(fence, ask(total_tokens=50, tool_calls=2), "acme", binding=bound())
        place = response_id_place(id)
        sealed = rt.vault.seal(
            who, id, "response_id", place=place.place, binding=place.binding, value=b"resp_1"
        )
        ledger.do(KeepResponseId(fence, sealed))
        ledger.lose_reply(fence, id)
        ledger.end(fence)
    (attempted,) = rt.reconcile.auto(lambda response_id: body(response_id, output=output))
    assert attempted.decision is not None
    assert attempted.decision.actual is not None
    assert attempted.decision.actual.tool_calls == charged


def test_the_provider_is_asked_for_what_it_can_know_only(rt: Runtime) -> None:
    """An invocation without a response id is not asked for."""
    World(rt, closed_before_reply()).lose()
    assert rt.reconcile.auto(lambda response_id: pytest.fail("asked")) == ()


def test_a_response_id_that_cannot_be_opened_is_left(rt: Runtime) -> None:
    """Another key ring cannot ask; it says so and decides nothing."""
    World(rt, stream_ends_early(text("a"))).lose()
    other = Reconciler(
        rt.ledger.database,
        rt.ledger.writer,
        rt.namespace,
        Vault(KeyRing.generate(), retention_days=None),
    )
    (attempted,) = other.auto(lambda response_id: pytest.fail("asked"))
    assert attempted.left == "RESPONSE_ID_NOT_RETAINED"


def test_without_keys_asking_is_refused(rt: Runtime) -> None:
    """It says which setting is missing."""
    World(rt, stream_ends_early(text("a"))).lose()
    keyless = Reconciler(rt.ledger.database, rt.ledger.writer, rt.namespace)
    with pytest.raises(ConfigurationError, match="MEMOFLOW_OUTPUT_KEYS"):
        keyless.auto(lambda response_id: b"")


def test_a_running_attempt_is_not_overtaken(rt: Runtime) -> None:
    """While an attempt runs, a reply for its turn is left; afterwards it is taken."""
    world = World(rt, stream_ends_early(text("a")))
    world.lose()
    seen = []

    @rt.activity(version="v1", budget="acme", name="answer")
    def answer(question: str) -> str:
        seen.extend(rt.reconcile.auto(body))
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        answer.run("Why?", workflow_id="w", run_id="r")
    assert [one.left for one in seen] == ["ACTIVITY_RUNNING"]
    (attempted,) = rt.reconcile.auto(body)
    assert attempted.decision is not None


# Lost attempts


def test_what_a_dead_worker_left_open_can_be_decided(rt: Runtime, database_url: str, tmp_path: Path) -> None:
    """Its lease ran out and nobody came: the queue shows it, and a decision ends the attempt first."""
    with open_ledger(database_url) as ledger:
        fence = ledger.claim(identity(namespace="default"))
        id = ledger.start(fence, ask(total_tokens=50), "acme")
        own = Reconciler(ledger.database, ledger.writer, "default")
        assert own.list().invocations == ()
        with pytest.raises(ActivityBusy):
            own.settle(id, **WHO)
        ledger.now += LEASE
        assert [one.id for one in own.list().invocations] == [id]
        (exposure,) = own.list().exposures
        assert exposure.amounts.total_tokens == 50
        own.release(id, evidence="the request log has no such call", **WHO)
        with pytest.raises(MemoflowError):
            ledger.settle(fence, id, 1, 1)
        case = own.show(id)
    assert [late.event for late in case.evidence] == ["settle"]
    assert case.evidence[0].output_tokens == 1
