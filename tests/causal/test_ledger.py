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
from memoflow.causal.jsonl import read_jsonl
from memoflow.causal.ledger import records_of
from memoflow.causal.record import CausalRecord
from memoflow.ledger.causes import cause_rows
from memoflow.testing import call, calls, read_timeout, text
from tests._apis import APIS
from tests.turn import _worlds
from tests.turn._activities import make, start
from tests.turn._asks import loop, run
from tests.turn._worlds import MakeWorld, World

ledger, make_world, mode, world = _worlds.ledger, _worlds.make_world, _worlds.mode, _worlds.world


@tool(version="v1", effect="read_only")
def look(n: int) -> int:
    """Look."""
    return n


@tool(version="v3", effect="idempotent", approval="human")
def pay(n: int) -> int:
    """Pay."""
    return n


@tool(version="v1", effect="at_most_once")
def breaks() -> None:
    """Break."""
    raise ValueError


def exported(w: World, **run: Any) -> list[CausalRecord]:
    """What an export of the run holds, read back by the strict loader."""
    file = io.BytesIO()
    written = w.rt.audit.export(file, **{"workflow_id": "w", "run_id": "r", **run})
    file.seek(0)
    records = list(read_jsonl(file))
    assert len(records) == written
    return records


def clean(w: World, **run: Any) -> None:
    """The strict audit finds nothing."""
    result = w.rt.audit.check(**{"workflow_id": "w", "run_id": "r", **run})
    assert (result.findings, result.passed, result.total) == ((), True, len(exported(w, **run)))


def shape(records: list[CausalRecord]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Action, permission and causes of each, with the places of causes in the log instead of their ids."""
    places = {record.id: str(place) for place, record in enumerate(records)}
    return [
        (
            record.action,
            str(record.permitted_by).split(":")[0],
            tuple(places.get(id, id) for id in (record.parent_cause, *record.joins) if id is not None),
        )
        for record in records
    ]


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


def test_an_approved_call_descends_from_its_approval(world: MakeWorld) -> None:
    """Asked for, given by a person, used by the very call: the audit follows it, and finds nothing."""
    w = world(call("pay", {"n": 82}), text("done"))
    error = w.ask(loop(pay)).raised(ApprovalRequired)
    clean(w)
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    clean(w)
    w.ask(loop(pay), complete=True)
    records = exported(w)
    assert shape(records) == [
        ("start", "root_event", ()),
        ("ask_model", "budget", ("0",)),
        ("request_approval", "tool", ("1",)),
        ("approve", "human_approval", ("2",)),
        ("write", "human_approval", ("3",)),
        ("ask_model", "budget", ("4",)),
    ]
    assert [record.actor.key for record in records[2:5]] == ["agent:answer", "human:ann", "agent:answer"]
    clean(w)


def test_who_asks_is_one_actor(world: MakeWorld) -> None:
    """A person on whose behalf a run asks is a person in the request and in what is decided about it."""
    w = world(call("pay", {"n": 82}), text("done"))
    scope = w.rt.run(workflow_id="w", run_id="r", requester="bob")
    error = w.ask(loop(pay), within=scope).raised(ApprovalRequired)
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    request, approval = exported(w)[2:]
    terms: Any = approval.object
    assert (request.actor.key, terms["approval"]["requested_by"]) == ("human:bob", "human:bob")


def test_a_further_execution_of_an_approved_effect_is_the_same_effect(world: MakeWorld) -> None:
    """What its class lets run again under its idempotency key has used its approval once."""
    ran: list[int] = []

    @tool(version="v1", effect="idempotent", approval="human")
    def unsure(n: int) -> int:
        """Break once."""
        ran.append(n)
        if len(ran) == 1:
            raise ValueError
        return n

    w = world(call("unsure", {"n": 82}), text("done"))
    error = w.ask(loop(unsure)).raised(ApprovalRequired)
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    w.ask(loop(unsure)).raised(ValueError)
    w.ask(loop(unsure), complete=True)
    assert (len(ran), [part[1] for part in shape(exported(w))][4:6]) == (2, ["human_approval"] * 2)
    clean(w)


def test_an_execution_before_the_approval_was_not_permitted_by_it(world: MakeWorld) -> None:
    """A tool that asks for approvals since it broke: what had run was permitted as it was then."""
    ran: list[int] = []

    def unsure(n: int) -> int:
        """Break once."""
        ran.append(n)
        if len(ran) == 1:
            raise ValueError
        return n

    w = world(call("unsure", {"n": 82}), text("done"))
    w.ask(loop(tool(version="v1", effect="read_only")(unsure))).raised(ValueError)
    asking = loop(tool(version="v1", effect="read_only", approval="human")(unsure))
    error = w.ask(asking).raised(ApprovalRequired)
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    w.ask(asking, complete=True)
    reads = [record for record in exported(w) if record.action == "read"]
    assert [str(record.permitted_by).split(":")[0] for record in reads] == ["tool", "human_approval"]
    assert len(ran) == 2
    clean(w)


def test_what_runs_again_uses_its_approval_once(world: MakeWorld) -> None:
    """Under one idempotency key it is the effect that was allowed, however often it has to be run."""
    broken = [ValueError()]

    @tool(version="v3", effect="idempotent", approval="human")
    def pay(n: int) -> int:
        """Pay."""
        if broken:
            raise broken.pop()
        return n

    w = world(call("pay", {"n": 82}), text("done"))
    error = w.ask(loop(pay)).raised(ApprovalRequired)
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    w.ask(loop(pay)).raised(ValueError)
    w.ask(loop(pay), complete=True)
    assert [permission for _, permission, _ in shape(exported(w))[4:6]] == ["human_approval"] * 2
    clean(w)
    assert_own_approvals(w.read(lambda c: list(cause_rows(c, w.rt.namespace, "w", "r"))))


def assert_own_approvals(rows: list[Any]) -> None:
    """A third execution that was allowed anew descends from that, those before it from the first approval."""
    *before, second, last = rows
    request, approval = before[2], before[3]
    first = approval.id
    third = replace(second, id="third", execution=3, request_id="third")
    anew = [replace(request, id="third"), replace(approval, id="third")]
    records = records_of([*before[:4], *anew, *before[4:], second, third, last])
    used = [record.permitted_by for record in records if record.action == "write"]
    assert used == [f"human_approval:{id}" for id in (first, first, "third")]


def test_a_denied_call_is_no_action(world: MakeWorld) -> None:
    """There is the request and the denial, and the model goes on because of that."""
    w = world(call("pay", {"n": 82}), text("done"))
    error = w.ask(loop(pay)).raised(ApprovalRequired)
    w.rt.approvals.deny(error.requests[0].id, approver="ann", reason="no")
    w.ask(loop(pay), complete=True)
    assert shape(exported(w))[2:] == [
        ("request_approval", "tool", ("1",)),
        ("deny", "human_approval", ("2",)),
        ("ask_model", "budget", ("3",)),
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
