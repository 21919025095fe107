"""What is recorded in any API is restored in it: for nothing, whole or streamed, and as nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from memoflow import Budget, InvalidProviderReply, OutcomeUnknown, ReplayMismatch
from memoflow.budget import Amounts
from memoflow.ledger.verify import verify
from memoflow.testing import (
    CrashPoint,
    ManualClock,
    SimulatedProvider,
    agent,
    call,
    calls,
    crash_points,
    incomplete,
    raw,
    snapshot_differs,
    status,
    temporary_runtime,
    text,
    usage,
)
from tests.providers._accumulated import accumulated, same
from tests.providers.conformance import API, OnApi, everywhere
from tests.turn._asks import Ask, ends, loop, run, stream
from tests.turn._tools import Bench
from tests.turn._worlds import KEYS, play

KINDS = {"whole": run, "streamed": stream}
LOOPS = {"whole": loop, "streamed": stream}
NEXT = {"responses": "chat", "chat": "messages", "messages": "responses"}


@everywhere
@pytest.mark.parametrize(("first", "second"), [(run, run), (stream, stream), (run, stream), (stream, run)])
def test_a_restored_call_equals_the_live_one_and_is_free(api_world: OnApi, first: Any, second: Any) -> None:
    """The same object of the SDK's own type, streamed or not; nothing reserved, sent, charged or written."""
    w = api_world(text("Hello.", thought="Hm.", usage=usage(10, 7, reasoning=2)))
    live = w.ask(first()).result
    before, batches = w.balance(), w.batches()
    restored = w.ask(second()).result
    assert restored.response.model_dump(warnings=False) == live.response.model_dump(warnings=False)
    assert type(restored.response) is type(live.response)
    assert restored.response is not live.response
    assert (live.restored, restored.restored) == (False, True)
    assert (restored.finish_reason, restored.invocations[0].id) == (
        live.finish_reason,
        live.invocations[0].id,
    )
    assert (w.sent, w.balance(), len(w.invocations())) == (1, before, 1)
    assert w.batches() == batches + 2  # the attempt's own claim and end


@everywhere
@pytest.mark.parametrize("kind", LOOPS)
def test_a_retry_goes_on_where_the_record_ends(api_world: OnApi, kind: str) -> None:
    """Rounds that finished are restored, tools that ran do not run again, and the model is told the same."""
    bench, results = Bench(), {1: "plain ✓", 2: {"z": 1, "a": [0.1, None]}}
    script = [calls(call("f", {"n": 1}), call("f", "bad")), calls(call("f", {"n": 2})), status(503)]
    w = api_world(*script, text("Done."))
    tool = bench.make("f", results.__getitem__)
    w.ask(LOOPS[kind](tool)).raised(OutcomeUnknown)
    got = w.ask(LOOPS[kind](tool))
    assert w.text(got) == "Done."
    assert [i.restored for i in got.result.invocations] == [True, True, False]
    assert [(r.restored, r.state) for r in got.result.tool_results] == [
        (True, "DONE"),
        (True, "REFUSED"),
        (True, "DONE"),
    ]
    assert (bench.ran, w.sent) == ([("f", 1), ("f", 2)], 4)
    assert w.provider.requests[3].json == w.provider.requests[2].json


def rounds(events: list[Any]) -> Iterator[list[Any]]:
    """The events of a loop, by the round they belong to."""
    round: list[Any] = []
    for event in events:
        round.append(event)
        if ends(event):
            yield round
            round = []
    assert round == []


@everywhere
def test_a_loop_is_restored_as_the_streams_it_was(api_world: OnApi) -> None:
    """The SDK's accumulator puts the same replies together, round by round, live and restored."""
    bench = Bench()
    w = api_world(calls(call("f", {"n": 1}), thought="Hm."), calls(call("f", {"n": 2})), text("Done."))
    live, restored = (w.ask(stream(bench.make("f"))) for _ in range(2))
    first, second = ([accumulated(w.api.name, one) for one in rounds(got.events)] for got in (live, restored))
    assert len(first) == 3
    assert first == second
    assert first[-1] == same(live.result.response)
    assert (w.sent, len(bench.ran)) == (3, 2)


@everywhere
def test_a_reply_that_was_cut_off_is_a_record_too(api_world: OnApi) -> None:
    """It is a success and paid for: it is never asked for again by a retry."""
    w = api_world(incomplete("Hel"))
    assert [w.ask(run()).result.finish_reason for _ in range(2)] == ["length"] * 2
    assert w.sent == 1


@everywhere
@pytest.mark.parametrize("change", [{"input": "Bye"}, {"model": "other"}, {"max_output_tokens": 50}])
def test_another_request_under_a_key_is_refused(api_world: OnApi, change: dict[str, Any]) -> None:
    """Before anything is reserved, whatever part of the request it is."""
    w = api_world(text("Hello."))
    w.ask(run())
    w.ask(run(request=change)).raised(ReplayMismatch)
    assert (w.sent, len(w.invocations())) == (1, 1)


@everywhere
def test_another_api_under_a_key_is_refused(api_world: OnApi) -> None:
    """A key stands for a request to one API of one provider, and the message says which."""
    w = api_world(text("Hello."), text("never"))
    w.ask(run())
    error = w.again(api=API[NEXT[w.api.name]]).ask(run()).raised(ReplayMismatch)
    assert error.component == "api"
    codecs = [
        API[name].adapters[0](API[name].client(w.provider)).codec for name in (w.api.name, NEXT[w.api.name])
    ]
    assert [error.recorded, error.given] == [f"{codec.provider}/{codec.api}" for codec in codecs]
    assert len(w.invocations()) == 1


# Streams that contradict themselves


def told_twice(api: str) -> Any:
    """A stream whose call cannot be trusted: the API's own way of saying two things at once."""
    if api == "responses":
        return snapshot_differs(calls(call("f", {"n": 1}), usage=usage(10, 5)))
    sent = _stream_of(api)
    if api == "chat":
        # After the choice has ended it goes on.
        end = sent.index(b"data: ", sent.index(b'"finish_reason":"tool_calls"'))
        late = sent[: sent.index(b"\n\n") + 2].replace(b'"content":null', b'"content":"late"')
        sent = sent[:end] + late + sent[end:]
    else:
        # The message begins once more.
        first = sent[: sent.index(b"\n\n") + 2]
        sent = first + sent
    return raw(sent, content_type="text/event-stream", then=text("x", usage=usage(10, 5)))


def _stream_of(api: str) -> bytes:
    provider, wanted = SimulatedProvider([calls(call("f", {"n": 1}), usage=usage(10, 5))]), API[api]
    adapter = wanted.adapters[0](wanted.client(provider))
    body = wanted.spoken({"model": "m", "input": "Hello", "max_output_tokens": 100})
    headers, path = {"X-Stainless-Raw-Response": "stream"}, adapter._api.path
    with adapter._port.client as client:
        options = {"headers": headers}
        reply = client.post(path, body=adapter.codec.streamed(body), cast_to=object, options=options)
        return b"".join(reply.http_response.iter_bytes())


@everywhere
def test_a_contradictory_stream_is_refused_also_from_its_record(api_world: OnApi) -> None:
    """Nothing runs, the reply is settled, and a retry is refused for the same reason, for nothing."""
    bench = Bench()
    w = api_world()
    w.provider.push(told_twice(w.api.name), text("never"))
    live = w.ask(stream(bench.make("f")))
    restored = w.ask(stream(bench.make("f")))
    whole = w.ask(loop(bench.make("f")))
    problems = {got.raised(InvalidProviderReply).problem for got in (live, restored, whole)}
    assert len(problems) == 1
    assert (bench.ran, w.sent, w.effects()) == ([], 1, [])
    assert w.balance() == (Amounts(15, 10, 5, 1), Amounts(), Amounts())
    assert w.invocation.reason == "INVALID_REPLY"
    assert live.events
    # What memoflow noted is nothing that a consumer is shown.
    assert not any("memoflow" in event.model_dump_json(warnings=False) for event in restored.events)


# Deaths


TELLING = ("commit:before", "commit:after", "after:Dispatch", "after:Collect")
LEASE_S = 60


class Site:
    """A database and a provider that outlive the program."""

    def __init__(self, url: str, api: str) -> None:
        self.url, self.api, self.clock = url, API[api], ManualClock()
        said = calls(call("f", {"n": 1}), usage=usage(10, 5))
        self.provider = SimulatedProvider(agent(said, final=text("Done.", usage=usage(10, 5))))
        self.bench = Bench()

    def live(self, run_id: str) -> str:
        """The program: a loop with one tool."""
        # Not streamed: the commit that keeps an id would pass its points at any moment.
        ask: Ask = loop(self.bench.make("f", effect="idempotent"))
        spoken = replace(ask, request=self.api.spoken(ask.request))
        with (
            temporary_runtime(self.url, keys=KEYS, clock=self.clock, lease_seconds=LEASE_S) as rt,
            self.api.client(self.provider) as client,
        ):
            rt.budgets.put("acme", Budget(total_tokens=10_000_000))
            llm = self.api.adapters[0](client)

            @rt.activity(version="v1", budget="acme", name="answer")
            def answer() -> str:
                return self.api.said(play(llm, spoken, []).response)

            output: str = answer.run(workflow_id="w", run_id=run_id)
            assert rt.ledger.database.read(verify) == []
            return output


@pytest.mark.parametrize("api", ["chat", "messages"])
def test_a_program_that_dies_is_carried_on(sqlite_url: str, api: str) -> None:
    """After a reply, after a tool, around every commit: nothing is lost, done twice, or charged to nobody."""
    site = Site(sqlite_url, api)
    points = crash_points(lambda: site.live("alive"))
    for point in points:
        if point.name in TELLING:
            _die_and_carry_on(site, point)


def _die_and_carry_on(site: Site, point: CrashPoint) -> None:
    site.bench.log.clear()
    before = site.provider.performed
    with point.crash():
        site.live(str(point))
    site.clock.advance(LEASE_S + 1)
    assert site.live(str(point)) == "Done."
    assert len(set(site.bench.keys)) == 1
    # A round whose reply was recorded is not asked for again.
    assert 2 <= site.provider.performed - before <= 3
