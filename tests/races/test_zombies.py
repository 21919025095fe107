"""A worker that lost its lease and does not know it yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from memoflow import Budget, LeaseLost
from memoflow.budget import Amounts
from memoflow.ledger.verify import verify
from memoflow.testing import ProviderProcess, agent, call, calls, hold, text, usage
from tests._processes import start
from tests.crash.worker import ACCOUNT, Job, open_runtime, read_log, work
from tests.races.racers import Place

SCRIPT = agent(
    calls(call("put", {"item": "0"}), usage=usage(10, 5)),
    calls(call("send", {"item": "1"}), usage=usage(10, 5)),
    final=text("Done.", usage=usage(10, 5)),
)


@pytest.fixture
def provider() -> Iterator[ProviderProcess]:
    """A provider that all workers share."""
    with ProviderProcess() as provider:
        yield provider


@pytest.mark.parametrize("driver", ["sync", "async"])
def test_what_a_zombie_hears_is_evidence_and_changes_nothing(
    place: Place, provider: ProviderProcess, driver: str
) -> None:
    """While a worker waits for a reply its lease runs out, and another finishes the work. The first one's
    reply is refused and kept as evidence with its usage; its hold stays unknown, and it runs no tool."""
    late = calls(call("put", {"item": "0"}), usage=usage(10, 5))
    provider.reset([hold(late, name="reply"), SCRIPT])
    job = Job(place.url, place.key, provider.base_url, place.log, driver=driver)
    with open_runtime(job) as runtime:
        runtime.budgets.put(ACCOUNT, Budget(total_tokens=1_000_000))
    zombie = start(work, job)
    assert provider.wait_entered("reply")
    assert start(work, replace(job, later=True)).result() == "Done."
    provider.release("reply")
    with pytest.raises(LeaseLost) as lost:
        zombie.result()
    assert (lost.value.attempt, lost.value.current) == (1, 2)
    assert [entry["tool"] for entry in read_log(job.log)] == ["put", "send"]
    with open_runtime(replace(job, later=True)) as runtime:
        (unknown,) = runtime.reconcile.list().invocations
        (evidence,) = runtime.reconcile.show(unknown.id).evidence
        assert (evidence.event, evidence.state) == ("settle", "SUCCEEDED")
        assert (evidence.input_tokens, evidence.output_tokens) == (10, 5)
        account = runtime.budgets.show(ACCOUNT)
        assert (account.unknown.model_calls, account.settled.model_calls) == (1, 3)
        assert account.held == Amounts()
        assert runtime.ledger.database.read(verify) == []
