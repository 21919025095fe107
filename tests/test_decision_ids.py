"""Ids of decisions are shared by all namespaces, and tell nothing across them."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from memoflow import Budget, KeyRing, OutcomeUnknown, ReservationConflict, Runtime
from memoflow.openai import OpenAIResponses
from memoflow.testing import SimulatedProvider, read_timeout


def unknown(runtime: Runtime) -> str:
    """Makes an invocation whose outcome is unknown; returns its id."""
    runtime.budgets.put("a", Budget())
    llm = OpenAIResponses(SimulatedProvider([read_timeout()]).client())

    @runtime.activity(version="v1", budget="a")
    def ask() -> None:
        llm.run({"model": "gpt-test", "input": "Hello"}, budget=Budget(total_tokens=2_000))

    with pytest.raises(OutcomeUnknown) as error:
        ask.run(workflow_id="w", run_id="r")
    found: str = error.value.id
    return found


def test_a_conflict_does_not_say_what_another_namespace_decided(tmp_path: Path) -> None:
    """The id is taken, and that is all."""
    url, keys, id = f"sqlite:///{tmp_path}/m.db", KeyRing.generate(), str(uuid.uuid4())
    with (
        Runtime.open(url, keys=keys, namespace="one") as one,
        Runtime.open(url, keys=keys, namespace="two") as two,
    ):
        theirs, ours = unknown(one), unknown(two)
        one.reconcile.settle(theirs, actor="ann", reason="billed", decision_id=id)
        with pytest.raises(ReservationConflict) as error:
            two.reconcile.settle(ours, actor="bob", reason="billed", decision_id=id)
        assert theirs not in f"{error.value} {vars(error.value)}"
        with pytest.raises(ReservationConflict, match=theirs):
            one.reconcile.release(theirs, actor="ann", reason="not billed", evidence="x", decision_id=id)
