"""Runs against a simulated provider: what they leave, and what ends them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from certification import live
from certification.live.boundaries import ACCOUNT, BOUNDARIES, CALLS
from certification.live.evidence import Evidence, hashed
from certification.live.inputs import Inputs
from certification.live.live_openai import OPENAI
from certification.live.provider import Provider
from certification.live.refused import NotCertified, Refused
from certification.live.runner import certify
from certification.live.verifier import evidence_findings, live_findings
from memoflow.testing import (
    ScriptEntry,
    SimulatedProvider,
    call,
    calls,
    error_event,
    missing_usage,
    refusal,
    status,
    text,
)
from tests.certification.live._runs import MODEL, SOURCE, script, simulate, simulated

STATES = [
    ("SUCCEEDED", "SETTLED", None),
    ("SUCCEEDED", "SETTLED", None),
    ("SUCCEEDED", "SETTLED", None),
    ("SUCCEEDED", "SETTLED", None),
    ("OUTCOME_UNKNOWN", "RECONCILE", "CANCELLED"),
]


def calls_of(evidence: Evidence) -> list[Any]:
    """All calls, in order."""
    return [one for case in evidence.cases for one in case.calls]


def test_a_run_is_five_calls(evidence: Evidence) -> None:
    """Two plain ones, two of a tool loop, and one that stays unknown; each is one request, never repeated."""
    made = calls_of(evidence)
    assert [(one.state, one.reservation, one.reason) for one in made] == STATES
    assert [one.wire.retry_count for one in made] == [0] * 5
    assert CALLS == 5
    assert evidence_findings(evidence) == []


def test_the_cancelled_call_keeps_its_budget(evidence: Evidence) -> None:
    """Its whole reservation is held as unknown, in its account and in the run's; all else is settled."""
    balances = {balance.account: balance for balance in evidence.balances}
    left = calls_of(evidence)[-1].reserved
    assert balances[ACCOUNT].unknown == balances["live/cancellation"].unknown == left
    assert not any(balances["live/cancellation"].settled.plain())
    assert balances[ACCOUNT].settled.model_calls == 4
    assert balances[ACCOUNT].limits.model_calls == 5


def test_a_run_elsewhere_is_simulated(evidence: Evidence) -> None:
    """Every request went to loopback, and the evidence says so without being told."""
    assert evidence.simulated
    assert {one.wire.host for one in calls_of(evidence)} == {"elsewhere"}
    assert len(live_findings(evidence)) == 1


def test_the_provider_saw_what_the_evidence_says(provider: Provider) -> None:
    """Requests, tokens and ids, as the provider itself counted them."""
    with simulated(script()) as (server, base_url):
        made = simulate(provider, base_url)
    assert len(server.requests) == 5
    assert all(request.headers["x-stainless-retry-count"] == "0" for request in server.requests)
    assert {request.headers["accept-encoding"] for request in server.requests} == {"identity"}
    settled = made.balances[0].settled
    billed = [request.billed for request in server.requests[:4]]
    assert settled.input_tokens == sum(one.input_tokens for one in billed if one)
    assert settled.output_tokens == sum(one.output_tokens for one in billed if one)
    assert calls_of(made)[0].usage.cached_input_tokens == 3


def test_a_retry_of_the_sdk_is_not_made(provider: Provider) -> None:
    """The SDK's client keeps its default of two repetitions, and a failure is one request all the same."""
    with simulated(script(response=status(500))) as (server, base_url), pytest.raises(NotCertified) as failed:
        simulate(provider, base_url)
    assert len(server.requests) == 1
    assert failed.value.findings[0].startswith("response: OutcomeUnknown: ")


@pytest.mark.parametrize(
    ("replaced", "requests", "says"),
    [
        ({"response": status(429)}, 1, "response: ProviderRejected: "),
        ({"response": refusal("No.")}, 1, "response: evidence has no words for how this ended; the ledger "),
        ({"response": missing_usage(text("ready"))}, 1, "response: evidence has no words for how this ended"),
        ({"stream": error_event()}, 2, "stream: OutcomeUnknown: "),
        ({"tools": text("6")}, 3, "tools: the calls made are 1, those of the boundary 2."),
        ({"continuation": calls(call("double", {"n": 6}))}, 4, "tools: "),
        ({"cancellation": status(400)}, 5, "cancellation: ProviderRejected: "),
    ],
    ids=["rejected", "refused", "no usage", "broken", "no call", "a call again", "not begun"],
)
def test_the_first_boundary_that_does_not_hold_ends_the_run(
    provider: Provider, replaced: dict[str, ScriptEntry], requests: int, says: str
) -> None:
    """There is no evidence, what was wrong is said, and nothing more is asked or paid."""
    with simulated(script(**replaced)) as (server, base_url), pytest.raises(NotCertified) as failed:
        simulate(provider, base_url)
    assert len(server.requests) == requests
    assert failed.value.findings[0].startswith(says)


def test_a_stream_that_ends_before_it_is_cancelled_certifies_nothing(provider: Provider) -> None:
    """A reply that was complete by then is settled, which proves nothing of cancellation."""
    # In one piece: with the first event all the others are there.
    whole = SimulatedProvider(script(cancellation=text("x")), split=10**6)
    with whole.serve() as base_url, pytest.raises(NotCertified) as failed:
        simulate(provider, base_url)
    assert failed.value.findings[0].startswith(
        "cancellation, call 1: it is SUCCEEDED / SETTLED, and must be OUTCOME_UNKNOWN / RECONCILE (CANCELLED"
    )


def test_the_budget_is_hard(provider: Provider) -> None:
    """With fewer tokens than a request needs nothing is sent."""
    with simulated(script()) as (server, base_url), pytest.raises(NotCertified) as failed:
        simulate(provider, base_url, tokens=100)
    assert server.requests == []
    assert failed.value.findings[0].startswith("response: BudgetTooSmall: ")


def test_each_account_admits_its_calls_and_no_other(evidence: Evidence) -> None:
    """The limits are what the calls of a boundary reserve together."""
    limits = {b.account: (b.limits.model_calls, b.limits.total_tokens) for b in evidence.balances}
    assert limits[ACCOUNT] == (5, 20_000)
    for boundary in BOUNDARIES:
        number = len(boundary.endings)
        assert limits[boundary.account] == (number, number * 4_000)


def test_a_run_tells_of_each_boundary(provider: Provider) -> None:
    """A line when it has been crossed."""
    told: list[str] = []
    with simulated(script()) as (_, base_url):
        simulate(provider, base_url, tell=told.append)
    assert [line.split()[0] for line in told] == [boundary.name for boundary in BOUNDARIES]


def test_ids_of_the_provider_are_there_as_digests_alone(provider: Provider) -> None:
    """Of each reply the SHA-256 of its id, which the provider's own log can be compared with."""
    with simulated(script()) as (server, base_url):
        made = simulate(provider, base_url)
    response = server.requests[0].response_id
    assert response is not None
    assert calls_of(made)[0].wire.response_id == hashed(response.encode())
    assert len({one.wire.response_id for one in calls_of(made)}) == 5


def test_a_live_run_goes_nowhere_else() -> None:
    """A client that would send elsewhere is refused before anything is sent."""
    with simulated(script()) as (server, base_url), pytest.raises(Refused) as refused:
        certify(OPENAI, Inputs(MODEL, "sk-key", base_url, simulated=False), SOURCE)
    assert server.requests == []
    assert "to a host that is not https://api.openai.com" in str(refused.value)


def test_a_ledger_of_ones_own(provider: Provider, database_url: str) -> None:
    """Any migrated database will do, which is named by its kind and version."""
    with simulated(script()) as (_, base_url):
        made = simulate(provider, base_url, database_url=database_url)
    assert made.database.kind == database_url.partition(":")[0].partition("+")[0]
    assert evidence_findings(made) == []


def test_a_ledger_that_cannot_be_used(provider: Provider, empty_sqlite_url: str) -> None:
    """It is refused in words before anything is sent."""
    url = empty_sqlite_url.replace("sqlite", "mysql")
    with simulated(script()) as (server, base_url), pytest.raises(Refused, match=r"^The ledger cannot be "):
        simulate(provider, base_url, database_url=url)
    assert server.requests == []


def test_two_runs_on_one_ledger(provider: Provider, sqlite_url: str) -> None:
    """Each is in a namespace of its own, so neither finds what the other recorded."""
    ids = set()
    for _ in range(2):
        with simulated(script()) as (server, base_url):
            made = simulate(provider, base_url, database_url=sqlite_url)
        assert len(server.requests) == 5
        ids |= {one.id for one in calls_of(made)}
    assert len(ids) == 10


def test_the_server_that_is_shown_does_its_part() -> None:
    """The documentation's own simulated provider, asked as it says, leaves evidence that verifies."""
    page = (Path(live.__file__).parent / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    made: list[Evidence] = []

    def run(prompt: str) -> None:
        assert "live-openai --simulated" in prompt
        made.append(simulate(OPENAI, prompt.split()[-1]))

    exec(block, {"input": run})
    (evidence,) = made
    assert (evidence.simulated, evidence_findings(evidence)) == (True, [])
