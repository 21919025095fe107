"""The ledger is the causal log: what was done, by whom, what permitted it, and what it descends from."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from memoflow import ApprovalRequired, Budget, NotFound, tool
from memoflow.causal.adapters import (
    anthropic_messages,
    call_envelope,
    correlate,
    openai_chat,
    openai_responses,
)
from memoflow.causal.ledger import records_of
from memoflow.ledger.causes import cause_rows
from memoflow.testing import call, calls, read_timeout, text
from tests._apis import APIS
from tests.causal._runs import breaks, clean, exported, look, pay, shape
from tests.turn import _worlds
from tests.turn._activities import make, start
from tests.turn._asks import loop, run
from tests.turn._worlds import MakeWorld

ledger, make_world, mode, world = _worlds.ledger, _worlds.make_world, _worlds.mode, _worlds.world


@pytest.mark.parametrize("api", APIS, ids=str)
def test_a_loop_is_a_line_of_records(world: MakeWorld, api: Any) -> None:
    """An activity starts, asks, looks, and asks again because of what it saw; all of it was permitted."""
    w = world(call("look", {"n": 1}), text("done"), api=api)
    w.ask(loop(look), complete=True)
    records = exported(w)
    assert shape(records) == [
        ("start", "root_event", ()),
        ("ask_model", "budget", ("0",)),
        ("read", "tool", ("1",)),
        ("ask_model", "budget", ("2",)),
    ]
    (effect,) = w.effects()
    payload: Any = records[2].object
    assert (payload["tool"], payload["evidence_bundle"]["result_digest"]) == ("look", effect.result_digest)
    assert payload["provider_envelope"]["api"].startswith(api.name.split("_")[0][:4])
    clean(w)


READ = {
    "responses": lambda body: openai_responses.read(body["input"]),
    "chat": lambda body: openai_chat.read(body["messages"]),
    "messages": lambda body: anthropic_messages.read(
        block
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ),
}


@pytest.mark.parametrize("api", APIS, ids=str)
def test_an_envelope_is_the_one_that_its_messages_have(world: MakeWorld, api: Any) -> None:
    """From the ledger as from what went to and fro: what is found by one is found by the other."""
    w = world(call("look", {"n": 1}), text("done"), api=api)
    w.ask(loop(look), complete=True)
    payload: Any = exported(w)[2].to_dict()["object"]
    evidence = payload["evidence_bundle"]
    ((pair,), _) = correlate(READ[api.name](w.provider.requests[-1].json))
    digests = (evidence["request_digest"], evidence["result_digest"])
    assert payload["provider_envelope"] == call_envelope(pair.call, pair.result, *digests)


def test_parallel_calls_come_together(world: MakeWorld) -> None:
    """The next request descends from all of them: one is its parent, and it joins the others."""
    w = world(calls(call("look", {"n": 1}), call("look", {"n": 2})), text("done"))
    w.ask(loop(look), complete=True)
    assert shape(exported(w))[2:] == [
        ("read", "tool", ("1",)),
        ("read", "tool", ("1",)),
        ("ask_model", "budget", ("3", "2")),
    ]
    clean(w)


def test_a_request_that_was_made_again_descends_from_the_same_calls(world: MakeWorld) -> None:
    """A round whose outcome is unknown and its repetition have one cause."""
    w = world(call("look", {"n": 1}), read_timeout(), text("done"))
    w.ask(loop(look))
    w.ask(loop(look), complete=True)
    assert shape(exported(w))[2:] == [
        ("read", "tool", ("1",)),
        ("ask_model", "budget", ("2",)),
        ("ask_model", "budget", ("2",)),
    ]
    clean(w)


def test_a_decision_descends_from_what_it_is_about(world: MakeWorld) -> None:
    """An operator who says what an unknown effect did is named, and so is an invocation's."""
    w = world(call("breaks", {}), text("done"))
    w.ask(loop(breaks))
    (effect,) = w.effects()
    w.rt.reconcile.happened(effect.id, actor="op", reason="seen in the log")
    records = exported(w)
    assert shape(records)[2:] == [("write", "tool", ("1",)), ("happened", "operator", ("2",))]
    assert records[3].actor.key == "human:op"
    clean(w)


def test_work_of_a_tool_in_another_run_is_followed_to_its_root(world: MakeWorld) -> None:
    """What began elsewhere is in the log too, as far as it is a cause of something here."""
    w = world(call("delegate", {}), text("done"))
    inner = w.rt.activity(version="v1", name="inner")(lambda: 1)

    @tool(version="v1", effect="read_only")
    def delegate() -> int:
        """Hand work on."""
        return int(inner.run(workflow_id="other", run_id="o"))

    w.ask(loop(delegate), complete=True)
    assert shape(exported(w, workflow_id="other", run_id="o")) == [
        ("start", "root_event", ()),
        ("ask_model", "budget", ("0",)),
        ("read", "tool", ("1",)),
        ("start", "task", ("2",)),
    ]
    clean(w, workflow_id="other", run_id="o")


def test_the_rounds_before_a_cause_are_followed_too(world: MakeWorld) -> None:
    """What began elsewhere descends from all that its model had seen by then, and from nothing later."""
    w = world(call("look", {"n": 1}), calls(call("delegate", {}), call("look", {"n": 2})), text("done"))
    inner = w.rt.activity(version="v1", name="inner")(lambda: 1)

    @tool(version="v1", effect="read_only")
    def delegate() -> int:
        """Hand work on."""
        return int(inner.run(workflow_id="other", run_id="o"))

    w.ask(loop(look, delegate), complete=True)
    assert shape(exported(w, workflow_id="other", run_id="o")) == [
        ("start", "root_event", ()),
        ("ask_model", "budget", ("0",)),
        ("read", "tool", ("1",)),
        ("ask_model", "budget", ("2",)),
        ("read", "tool", ("3",)),
        ("start", "task", ("4",)),
    ]


@pytest.mark.parametrize("kind", ["", "approval:", "request:"])
def test_every_record_of_another_run_can_be_a_cause(world: MakeWorld, kind: str) -> None:
    """A tool call, its approval and the request for it, by the ids that they have in the log."""
    w = world(call("pay", {"n": 82}), text("done"))
    error = w.ask(loop(pay)).raised(ApprovalRequired)
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    w.ask(loop(pay), complete=True)
    cause = f"{kind}{error.requests[0].id}"
    w.ask(within=w.rt.run(workflow_id="other", run_id="o", cause=cause), complete=True)
    *_, last = exported(w, workflow_id="other", run_id="o")
    assert last.parent_cause == cause
    clean(w, workflow_id="other", run_id="o")


def test_what_is_exported_can_be_read(world: MakeWorld) -> None:
    """Also with the longest name that an account can have."""
    w, path = world(text("done")), "acme"
    for _ in range(7):
        path += "/" + "x" * 200
        w.rt.budgets.put(path, Budget())
    w.ask(run(), budget=path, complete=True)
    assert exported(w)[1].permitted_by == f"budget:{path}"


def test_a_root_may_be_named(world: MakeWorld) -> None:
    """What begins because of something outside of every log says so."""
    w = world()
    with w.rt.run(workflow_id="w", run_id="r", cause="root_event:ticket-42"):
        start(w, make(w, lambda: None))
    assert [record.permitted_by for record in exported(w)] == ["root_event:ticket-42"]
    clean(w)


def test_a_cause_that_nobody_knows_is_found(world: MakeWorld) -> None:
    """An id that is in no log cannot be followed, and what descends from it fails too."""
    w = world(text("hi"))
    scope = w.rt.run(workflow_id="w", run_id="r", cause="nowhere")
    w.ask(run(), within=scope, complete=True)
    result = w.rt.audit.check(workflow_id="w", run_id="r")
    assert [finding.code for finding in result.findings] == [
        "MEMOFLOW-CAUSAL-CAUSE_NOT_BEFORE",
        "MEMOFLOW-CAUSAL-INVALID_ANCESTOR",
    ]
    assert not result.passed


def test_a_run_that_is_not_there_is_not_found(world: MakeWorld) -> None:
    """Neither audit nor export takes nothing for all right."""
    w = world()
    with pytest.raises(NotFound, match="run 'w/none'"):
        w.rt.audit.check(workflow_id="w", run_id="none")
    with pytest.raises(NotFound, match="run 'w'"):
        w.rt.audit.export(io.BytesIO(), workflow_id="w")


def test_all_runs_of_a_workflow_are_one_log(world: MakeWorld) -> None:
    """Without a run_id the audit is of the whole workflow, and of no other."""
    w = world(text("1"), text("2"), text("3"))
    for name in ("r", "s"):
        w.ask(run(), run=name, complete=True)
    scope = w.rt.run(workflow_id="v", run_id="r")
    w.ask(run(), within=scope, complete=True)
    assert len(exported(w, run_id=None)) == 4
    clean(w, run_id=None)


def test_a_clock_that_was_set_back_does_not_change_the_order(world: MakeWorld) -> None:
    """Causes stand before effects, and no effect is earlier than its cause, whatever the rows say."""
    w = world(call("look", {"n": 1}), call("look", {"n": 2}), text("done"))
    w.ask(loop(look), complete=True)
    rows = w.read(lambda c: list(cause_rows(c, w.rt.namespace, "w", "r")))
    turned = [replace(row, at=1_000 - place) for place, row in enumerate(rows)]
    records = list(records_of(turned))
    assert [record.id for record in records] == [row.id for row in rows]
    assert [record.timestamp for record in records] == [1_000_000] * len(rows)


def test_rows_of_a_run_are_read_as_a_stream(world: MakeWorld) -> None:
    """Nothing is held back that has its causes, so a long run needs no memory for its records."""
    w = world(call("look", {"n": 1}), text("done"))
    w.ask(loop(look), complete=True)
    rows = w.read(lambda c: list(cause_rows(c, w.rt.namespace, "w", "r")))
    given = 0

    def counted() -> Iterator[Any]:
        nonlocal given
        for row in rows:
            given += 1
            yield row

    for taken, _ in enumerate(records_of(counted()), start=1):
        assert given == taken
