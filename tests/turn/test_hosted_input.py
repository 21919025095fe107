"""Requests with hosted tools, whose input nobody can measure locally."""

from __future__ import annotations

from memoflow import Budget, tool
from memoflow.ledger.queries import Filter, list_invocations
from memoflow.openai import OpenAIResponses
from memoflow.testing import SimulatedProvider, call, calls, temporary_runtime, text


@tool(version="v1", effect="read_only")
def lookup(n: int) -> int:
    """Look up."""
    return n


FUNCTION = {"type": "function", "name": "lookup", "parameters": lookup.schema, "strict": True}
REQUEST = {"model": "gpt-5-mini", "input": "Look up.", "tools": [{"type": "web_search"}, FUNCTION]}


def test_what_was_declared_holds_in_every_round() -> None:
    """A hosted tool can add input in later rounds too, so each reserves at least what was declared."""
    provider = SimulatedProvider([calls(call("lookup", {"n": 1})), text("ok")])
    llm = OpenAIResponses(provider.client())
    budget = Budget(total_tokens=8_000, tool_calls=1)
    with temporary_runtime() as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=100_000))

        @runtime.activity(version="v1", budget="acme")
        def work() -> None:
            options = {"budget": budget, "continuation_budgets": [budget], "replay_key": "k"}
            llm.run_with_tools(REQUEST, [lookup], input_tokens=5_000, **options)  # type: ignore[arg-type]

        work.run()
        page = runtime.ledger.database.read(lambda c: list_invocations(c, "default", Filter()))
        rounds = [(item.input_basis, item.input_measured, item.output_cap) for item in page.items]
        assert rounds == [("declared", 5_000, 3_000)] * 2
