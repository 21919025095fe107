"""Audit claims in calls: asked for with the arguments, taken out, kept by digest, and never trusted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import select

from memoflow import ApprovalRequired, tool
from memoflow.ledger import schema as s
from memoflow.testing import call, text
from memoflow.tools import RESERVED
from tests._apis import APIS
from tests.turn._activities import make, start
from tests.turn._asks import loop
from tests.turn._worlds import MakeWorld, World

CLAIM: dict[str, Any] = {
    "intent": "Look for the parcel PAYLOAD.",
    "parent_record": None,
    "risk_level": "low",
    "approval_needed": False,
    "evidence": [],
}
DISAGREES = "MEMOFLOW-CAUSAL-CLAIM_DISAGREES"


class Looking:
    """A tool that asks for claims, and what it was called with."""

    def __init__(self, **options: Any) -> None:
        self.seen: list[int] = []

        @tool(version="v1", effect="read_only", claims=True, **options)
        def look(n: int) -> int:
            """Look."""
            self.seen.append(n)
            return n

        self.tool = look


def claims(w: World) -> list[dict[str, Any] | None]:
    """What is kept of the claim of each effect."""
    query = select(s.effects.c.claim).where(s.effects.c.namespace == w.rt.namespace).order_by(s.effects.c.id)
    return [None if one is None else json.loads(one) for one in w.read(lambda c: c.execute(query).scalars())]


@pytest.mark.parametrize("api", APIS, ids=str)
def test_a_claim_is_asked_for_and_taken_out(world: MakeWorld, api: Any) -> None:
    """The schema has the reserved member, the tool is called without it, and only its digest is kept."""
    looking = Looking()
    w = world(call("look", {"n": 1, RESERVED: CLAIM}), text("done"), api=api)
    w.ask(loop(looking.tool), complete=True).result  # noqa: B018 - raises what was raised
    assert RESERVED in json.dumps(w.provider.requests[0].json)
    assert looking.seen == [1]
    (kept,) = claims(w)
    assert kept == {"digest": w.rt.digester.json(CLAIM), "disagrees": [], "malformed": False}
    assert w.rt.audit.check(workflow_id="w", run_id="r").findings == ()


def test_the_digest_of_a_call_is_that_of_its_arguments(world: MakeWorld) -> None:
    """What is claimed beside them changes neither the digest nor the idempotency key."""
    plain, claiming = (
        world(call("look", {"n": 1}), text("done")),
        world(call("look", {"n": 1, RESERVED: CLAIM}), text("done")),
    )
    for w in (plain, claiming):
        w.ask(loop(Looking().tool), complete=True)
    assert [w.effects()[0].arguments_digest for w in (plain, claiming)] == [
        plain.effects()[0].arguments_digest
    ] * 2
    assert claims(plain) == [None]


@pytest.mark.parametrize(
    ("changed", "disagrees"),
    [
        ({"parent_record": "invented"}, ["parent"]),
        ({"approval_needed": True}, ["approval"]),
        ({"parent_record": "x", "approval_needed": True}, ["approval", "parent"]),
    ],
)
def test_a_claim_that_is_not_so_is_a_finding(
    world: MakeWorld, changed: dict[str, Any], disagrees: list[str]
) -> None:
    """The call runs all the same: a claim permits nothing, and forbids nothing."""
    looking = Looking()
    w = world(call("look", {"n": 1, RESERVED: {**CLAIM, **changed}}), text("done"))
    w.ask(loop(looking.tool), complete=True)
    (kept,) = claims(w)
    assert kept is not None
    assert (looking.seen, kept["disagrees"]) == ([1], disagrees)
    result = w.rt.audit.check(workflow_id="w", run_id="r")
    assert [finding.code for finding in result.findings] == [DISAGREES]
    assert result.passed


def test_the_cause_that_the_host_gave_is_no_lie(world: MakeWorld) -> None:
    """A model that repeats the record it was told about agrees with its host."""
    looking, w = Looking(), world()
    claim = {**CLAIM, "parent_record": "ticket-42"}
    w = world(call("look", {"n": 1, RESERVED: claim}), text("done"))
    scope = w.rt.run(workflow_id="w", run_id="r", cause="root_event:x")

    def body(llm: Any) -> Any:
        w.rt.current().cause = "ticket-42"
        return llm.run_with_tools(
            w.api.spoken({"model": "gpt-test", "input": "Hello"}),
            [looking.tool],
            budget=loop(looking.tool).options["budget"],
            continuation_budgets=[loop(looking.tool).options["budget"]],
            replay_key="k",
        )

    assert scope.workflow_id == "w"
    w.within(body)
    assert claims(w)[0] == {"digest": w.rt.digester.json(claim), "disagrees": [], "malformed": False}


@pytest.mark.parametrize("bad", ["text", 7, {**CLAIM, "risk_level": "none"}, {"intent": "x"}, [CLAIM]])
def test_what_is_no_claim_does_not_harm_the_call(world: MakeWorld, bad: Any) -> None:
    """It is noted as malformed, by digest; the tool runs with its arguments."""
    looking = Looking()
    w = world(call("look", {"n": 1, RESERVED: bad}), text("done"))
    w.ask(loop(looking.tool), complete=True)
    assert (looking.seen, claims(w)) == (
        [1],
        [{"digest": w.rt.digester.json(bad), "disagrees": [], "malformed": True}],
    )


def test_a_call_that_waits_shows_its_arguments_without_the_claim(world: MakeWorld) -> None:
    """An approval is bound to what the tool gets; a claim of low risk beside it is not so."""
    looking = Looking(approval="human")
    w = world(call("look", {"n": 1, RESERVED: CLAIM}), text("done"))
    error = w.ask(loop(looking.tool)).raised(ApprovalRequired)
    shown = w.rt.approvals.show(error.requests[0].id)
    assert json.loads(shown.arguments or "") == {"n": 1}
    w.rt.approvals.approve(error.requests[0].id, approver="ann", reason="fine")
    w.ask(loop(looking.tool), complete=True)
    (kept,) = claims(w)
    assert kept is not None
    assert (looking.seen, kept["disagrees"]) == ([1], ["approval", "risk"])


def test_a_plain_tool_does_not_take_the_reserved_member(world: MakeWorld) -> None:
    """Where no claim was asked for it is an unknown argument like any other."""
    seen: list[int] = []

    @tool(version="v1", effect="read_only")
    def look(n: int) -> int:
        """Look."""
        seen.append(n)
        return n

    w = world(call("look", {"n": 1, RESERVED: CLAIM}), text("done"))
    got = w.ask(loop(look), complete=True)
    assert (seen, [one.state for one in got.result.tool_results]) == ([], ["REFUSED"])
    start(w, make(w, lambda: None), activity_id="after")
