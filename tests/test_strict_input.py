"""An account may take only true upper bounds of the input."""

from __future__ import annotations

from memoflow import Budget, EstimateRefused, KeyRing, Runtime
from memoflow.ledger.queries import Filter, list_invocations
from memoflow.openai import OpenAIResponses
from memoflow.testing import SimulatedProvider, text

# Long enough for the bound to take much of the reservation, so that it would be estimated.
REQUEST = {"model": "gpt-5-mini", "input": "word " * 200}


def test_a_call_on_such_an_account_reserves_the_bound(database_url: str) -> None:
    """The same call is estimated elsewhere; an ancestor's rule counts."""
    llm = OpenAIResponses(SimulatedProvider(default=text("ok")).client())
    with Runtime.open(database_url, keys=KeyRing.generate()) as runtime:
        runtime.budgets.put("free", Budget(total_tokens=100_000))
        runtime.budgets.put("strict", Budget(total_tokens=100_000), strict_input=True)
        runtime.budgets.put("strict/team", Budget())

        @runtime.activity(version="v1", budget="free")
        def work() -> None:
            for account in ("free", "strict", "strict/team"):
                llm.run(REQUEST, budget=Budget(total_tokens=4_000), account=account)

        work.run()
        page = runtime.ledger.database.read(lambda c: list_invocations(c, "default", Filter()))
        assert [item.input_basis for item in reversed(page.items)] == ["estimate", "bound", "bound"]
        assert runtime.budgets.show("strict").held.total_tokens == 0


def test_the_rule_is_part_of_the_policy(database_url: str) -> None:
    """It is versioned with the limits, survives closing, and putting the limits without it takes it away."""
    with Runtime.open(database_url, keys=KeyRing.generate()) as runtime:
        first = runtime.budgets.put("a", Budget(model_calls=1), strict_input=True)
        same = runtime.budgets.put("a", Budget(model_calls=1), strict_input=True)
        runtime.budgets.close("a")
        reopened = runtime.budgets.reopen("a")
        gone = runtime.budgets.put("a", Budget(model_calls=1))
        assert (first.policy_version, same.policy_version, gone.policy_version) == (1, 1, 4)
        assert (first.strict_input, reopened.strict_input, gone.strict_input) == (True, True, False)


def test_a_refused_estimate_says_what_to_do() -> None:
    """The sentence names the account and the ways out."""
    error = EstimateRefused(account="strict")
    assert "'strict'" in str(error)
    assert all(way in str(error) for way in ("strict_input=True", "count_input=True", "input_tokens="))
