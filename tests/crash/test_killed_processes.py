"""Workers killed by the system at every kind of point, and a second one that finishes (field case 36)."""

from __future__ import annotations

import base64
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from memoflow import Budget
from memoflow.budget import Amounts
from memoflow.ledger.verify import verify
from memoflow.openai import OpenAIResponses
from memoflow.testing import CrashPoint, ProviderProcess, agent, call, calls, hold, text, usage
from tests._databases import SqliteFiles
from tests._processes import start
from tests.crash._oracle import Expected, expected
from tests.crash._scenarios import Scenario
from tests.crash.worker import ACCOUNT, RESERVED, Job, open_runtime, read_log, record, work

TOKENS = 15
SCENARIO = Scenario("loop", rounds=(("put",), ("send",)))
SCRIPT = agent(
    calls(call("put", {"item": "0"}), usage=usage(10, 5)),
    calls(call("send", {"item": "1"}), usage=usage(10, 5)),
    final=text("Done.", usage=usage(10, 5)),
)
SPOKEN = {"Dispatch", "tool"}
COMMITS = {("commit:before", 3), ("commit:after", 2), ("commit:after", 3)}
STEPS = ["Proceed", "Compute", "Count", "Commit", "Dispatch", "Launch", "Collect"]
POINTS = [
    *[(f"{side}:{step}", 1 if step == "Compute" else 2) for step in STEPS for side in ("before", "after")],
    # Claim, reserve, settle, record and reserve, … the second round does the same …, complete.
    *[(f"commit:{side}", number) for number in (1, 2, 3, 4, 8) for side in ("before", "after")],
    *[(f"tool:{when}:{tool}", 1) for tool in ("put", "send") for when in ("entered", "done")],
]


def cases() -> Iterator[Any]:
    """Every kind of point on SQLite; on PostgreSQL, with the other driver, those next to I/O."""
    for point in POINTS:
        yield pytest.param("sqlite", "sync", point, id=f"{point[0]}-{point[1]}-sqlite")
        if point in COMMITS or SPOKEN & set(point[0].split(":")):
            name = f"{point[0]}-{point[1]}-postgresql"
            yield pytest.param("postgresql", "async", point, id=name, marks=pytest.mark.postgres)


@pytest.fixture(scope="module")
def provider() -> Iterator[ProviderProcess]:
    """A provider that outlives the workers."""
    with ProviderProcess(store_interrupted=True) as provider:
        yield provider


def new_job(url: str, provider: ProviderProcess, directory: Path) -> Job:
    """A ledger with its account, and a provider with a fresh script."""
    key = f"k1:{base64.b64encode(os.urandom(32)).decode()}"
    job = Job(url, key, provider.base_url, str(directory / "effects"))
    with open_runtime(job) as runtime:
        runtime.budgets.put(ACCOUNT, Budget(total_tokens=1_000_000))
    provider.reset([SCRIPT])
    return job


@pytest.fixture
def job(database_url: str, provider: ProviderProcess, tmp_path: Path) -> Job:
    """A fresh ledger."""
    return new_job(database_url, provider, tmp_path)


@pytest.fixture(scope="module")
def points(
    provider: ProviderProcess, sqlite_files: SqliteFiles, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], list[CrashPoint]]:
    """The points that a worker passes when it lives, by its driver and the way it measures the input."""

    @cache
    def recorded(driver: str, measure: str) -> list[CrashPoint]:
        directory = tmp_path_factory.mktemp("recorded")
        job = new_job(sqlite_files.create(directory), provider, directory)
        passed = start(record, replace(job, driver=driver, measure=measure)).result()
        return [CrashPoint(index, *point) for index, point in enumerate(passed)]

    return recorded


def check(job: Job, provider: ProviderProcess, wanted: Expected) -> None:
    """Nothing was asked, done or charged but what the death may cost, and the ledger is in order."""
    arrived = provider.wire_requests["POST /v1/responses"]
    effects = [(entry["tool"], entry["key"]) for entry in read_log(job.log)]
    assert (arrived, len(effects)) == (wanted.requests, wanted.done)
    assert len(set(effects)) == 2
    assert [tool for tool, _ in effects].count("send") == 1
    assert {b"put 0", b"send 1"} == {
        said for said in (b"put 0", b"send 1") if said in provider.requests[-1].body
    }
    with open_runtime(replace(job, later=1)) as runtime:
        account = runtime.budgets.show(ACCOUNT)
        assert runtime.ledger.database.read(verify) == []
    assert account.held == Amounts()
    assert (account.unknown.model_calls, account.unknown.total_tokens) == (
        wanted.unknown,
        wanted.unknown * RESERVED,
    )
    assert (account.settled.model_calls, account.settled.total_tokens) == (3, 3 * TOKENS)


@pytest.mark.parametrize(("database_url", "driver", "point"), list(cases()), indirect=["database_url"])
def test_a_killed_worker_costs_nothing_but_what_is_in_doubt(
    job: Job,
    provider: ProviderProcess,
    points: Callable[[str, str], list[CrashPoint]],
    driver: str,
    point: tuple[str, int],
) -> None:
    """What a worker killed at a point leaves, the next process finishes: no recorded reply is asked for
    again, no effect is brought about twice that may not be, and every hold is resolved or kept."""
    measure = {"Compute": "estimate", "Count": "counted"}.get(point[0].partition(":")[2], "bound")
    passed = points(driver, measure)
    (at,) = [one.index for one in passed if (one.name, one.occurrence) == point]
    provider.reset([SCRIPT])
    job = replace(job, driver=driver, measure=measure)
    assert start(work, replace(job, kill_at=point)).exit_code() == -signal.SIGKILL
    assert start(work, replace(job, later=1)).result() == "Done."
    check(job, provider, expected(SCENARIO, passed, at))


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_worker_killed_while_it_looks_for_what_is_recorded(
    side: str,
    job: Job,
    provider: ProviderProcess,
    points: Callable[[str, str], list[CrashPoint]],
) -> None:
    """Reading changes nothing: the third worker finds what the first one left."""
    passed, left = points("sync", "bound"), ("after:Dispatch", 2)
    (at,) = [one.index for one in passed if (one.name, one.occurrence) == left]
    provider.reset([SCRIPT])
    assert start(work, replace(job, kill_at=left)).exit_code() == -signal.SIGKILL
    again = replace(job, later=1, kill_at=(f"{side}:Read", 1))
    assert start(work, again).exit_code() == -signal.SIGKILL
    assert start(work, replace(job, later=2)).result() == "Done."
    check(job, provider, expected(SCENARIO, passed, at))


def test_a_worker_killed_while_it_waits_for_the_reply(job: Job, provider: ProviderProcess) -> None:
    """The reply of a request under way is lost with its worker: asked again, beside the hold of the first."""
    held = hold(text("Too late.", usage=usage(10, 5)), name="reply")
    provider.reset([held, SCRIPT])
    worker = start(work, job)
    assert provider.wait_entered("reply")
    worker.kill()
    assert worker.exit_code() == -signal.SIGKILL
    assert provider.wait_abandoned("reply")
    provider.release("reply")
    assert start(work, replace(job, later=1)).result() == "Done."
    check(job, provider, Expected(requests=4, replies=3, rejections=0, unknown=1, done=2))


def test_a_stream_whose_reader_was_killed_is_retrieved_and_restored(
    job: Job, provider: ProviderProcess
) -> None:
    """The id of a reply is kept as soon as its first event names it, so that what the killed worker did not
    hear is asked for, paid once, and carried on from."""
    first = calls(call("put", {"item": "0"}), usage=usage(10, 5))
    provider.reset([hold(first, name="stream", after=2), SCRIPT])
    # The third commit, after claim and reservation, is the one that keeps the id.
    worker = start(work, replace(job, streamed=True, kill_at=("commit:after", 3)))
    assert worker.exit_code() == -signal.SIGKILL
    assert provider.wait_abandoned("stream")
    provider.release("stream")
    with provider.client() as client, open_runtime(replace(job, later=1)) as runtime:
        llm = OpenAIResponses(client)
        (attempted,) = runtime.reconcile.auto(llm.retrieve, llm.codec)
        assert attempted.decision is not None, attempted.left
    assert start(work, replace(job, later=1, streamed=True)).result() == "Done."
    check(job, provider, Expected(requests=3, replies=3, rejections=0, unknown=0, done=2))
