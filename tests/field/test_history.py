"""Cases about what goes back to the provider."""

from __future__ import annotations

from memoflow import Budget, ProviderRejected, tool
from memoflow.testing import call, calls, text
from tests.field.conftest import REQUEST, Field


@tool(version="v1", effect="read_only")
def lookup(n: int) -> int:
    """Look up."""
    return n


def test_case_18_reasoning_goes_back_with_its_call(case: Field) -> None:
    """Every output item goes back verbatim and in order, live and after a restore."""
    script = [calls(call("lookup", {"n": 1}), thought="Think."), text("ok")]
    request = {**REQUEST, "store": False, "include": ["reasoning.encrypted_content"]}
    played = case.play(script, [lookup], request=request)
    assert played.error is None
    kinds = [item["type"] for item in played.sent[1]["input"][1:]]
    assert kinds == ["reasoning", "function_call", "function_call_output"]


def test_case_18_a_pairing_the_provider_refuses(case: Field) -> None:
    """Its 400 is known and unbilled: released of its tokens, and not tried again."""
    broken = {
        **REQUEST,
        "input": [{"type": "function_call_output", "call_id": "call_unknown", "output": "1"}],
    }
    played = case.play([text("never")], request=broken)
    assert isinstance(played.error, ProviderRejected)
    assert (played.error.status, played.error.retryable, played.wire) == (400, False, 1)
    assert case.account.settled.total_tokens == 0
    assert case.account.settled.model_calls == 1


def test_case_20_results_and_arguments_that_are_too_large(case: Field) -> None:
    """A result over the limit is DONE with digest and size, told, and never a reason to run again."""
    ran: list[int] = []

    @tool(version="v1", effect="at_most_once")
    def dump(pad: str = "") -> str:
        """Dump everything."""
        ran.append(len(pad))
        return "x" * (11 * 1024 * 1024)

    played = case.play([calls(call("dump")), text("ok")], [dump])
    assert played.error is None
    assert ran == [0]
    (done,) = case.effects
    assert (done.state, done.reason, done.result_bytes) == ("DONE", "RESULT_TOO_LARGE", 11 * 1024 * 1024)
    assert len(played.outputs[0]) < 1_000


def test_case_20_arguments_that_the_provider_will_not_take_back(case: Field) -> None:
    """Arguments over the limit are refused, and the provider's refusal of their history is final."""
    ran: list[str] = []

    @tool(version="v1", effect="at_most_once")
    def keep(pad: str) -> str:
        """Keep something."""
        ran.append(pad)
        return "kept"

    script = [calls(call("keep", {"pad": "y" * 1_200_000})), text("never")]
    played = case.play(script, [keep], budget=Budget(total_tokens=900_000, tool_calls=2))
    assert isinstance(played.error, ProviderRejected)
    assert not played.error.retryable
    assert ran == []
    assert [(effect.state, effect.reason) for effect in case.effects] == [("REFUSED", "INVALID_ARGUMENTS")]
