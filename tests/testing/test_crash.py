"""Dying at every point: what is recorded about the points, and what a dead program can still do."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from memoflow import Budget, Runtime, faults
from memoflow.openai import OpenAIResponses
from memoflow.testing import CrashPoint, ManualClock, SimulatedProvider, crash_points, text


def work() -> None:
    """Pass three points, one of them twice."""
    for name in ("first", "again", "again"):
        faults.point(name)


POINTS = crash_points(work)


def test_points_come_in_order_and_are_told_apart() -> None:
    """Every point is recorded, those of one name by their number."""
    assert [str(point) for point in POINTS] == ["first #1", "again #1", "again #2"]
    assert [point.index for point in POINTS] == [0, 1, 2]


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_the_work_ends_exactly_at_its_point(point: CrashPoint) -> None:
    """What comes before the point is done, what comes after it is not."""
    passed = []
    before = faults.install(passed.append)
    try:
        with point.crash():
            work()
            passed.append("alive")
    finally:
        faults.install(before)
    assert passed == [name.name for name in POINTS[: point.index + 1]]


def test_the_dead_stay_dead() -> None:
    """After its death a program passes no point, on no thread, and its own exceptions are not heard."""
    heard = []

    def stopped() -> bool:
        try:
            faults.point("later")
        except faults.Stop:
            return True
        return False

    with POINTS[0].crash():
        try:
            work()
        finally:
            thread = threading.Thread(target=lambda: heard.append(stopped()))
            thread.start()
            thread.join()
            heard.append(stopped())
            raise ValueError("on the way down")
    assert heard == [True, True]
    faults.point("alive again")


def test_a_cancelled_task_dies_like_any_other() -> None:
    """A cancellation that reaches a dead program is not heard either."""

    async def program() -> None:
        try:
            work()
        finally:
            raise asyncio.CancelledError

    with POINTS[0].crash():
        asyncio.run(program())


def test_work_that_ends_before_its_point_is_reported() -> None:
    """A test that stops nowhere would prove nothing."""
    with (
        pytest.raises(AssertionError, match=r"did not pass again #2 as point 2; it ended before"),
        POINTS[2].crash(),
    ):
        faults.point("first")


def test_work_that_takes_another_way_is_reported() -> None:
    """So would one that stops elsewhere than it says."""
    with pytest.raises(AssertionError, match=r"it passed 'other' there"), POINTS[0].crash():
        faults.point("other")


def test_an_error_before_the_point_is_the_work_s_own() -> None:
    """What goes wrong while the program is alive is not hidden."""
    with pytest.raises(ValueError, match="mine"), POINTS[2].crash():
        raise ValueError("mine")
    with pytest.raises(faults.Stop), POINTS[2].crash():
        raise faults.Stop


def test_an_activity_is_finished_after_a_death_at_any_of_its_points(tmp_path: Path) -> None:
    """The example of the module: one recorded call, killed everywhere, is asked at most once more."""

    def attempt(name: str, provider: SimulatedProvider, clock: ManualClock) -> str:
        llm = OpenAIResponses(provider.client())
        with Runtime.open(f"sqlite:///{tmp_path / name}.db", clock=clock) as rt:
            rt.budgets.put("acme", Budget(total_tokens=10_000))

            @rt.activity(version="v1", budget="acme")
            def answer(question: str) -> str:
                request = {"model": "gpt-5-mini", "input": question}
                return llm.run(
                    request, budget=Budget(total_tokens=1_000), replay_key="k"
                ).response.output_text

            return answer.run("Where is my order?", workflow_id="w", run_id="1")

    def provider() -> SimulatedProvider:
        return SimulatedProvider(default=text("It is on its way."))

    points = crash_points(lambda: attempt("recorded", provider(), ManualClock()))
    assert {"commit:before", "commit:after", "before:Dispatch", "after:Commit"} <= {
        point.name for point in points
    }
    for point in points[:: len(points) // 4]:
        asked, clock = provider(), ManualClock()
        with point.crash():
            attempt(f"{point.index}", asked, clock)
        clock.advance(61)
        assert attempt(f"{point.index}", asked, clock) == "It is on its way."
        assert asked.wire_requests.total() <= 2
