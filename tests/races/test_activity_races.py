"""Many processes on one activity."""

from __future__ import annotations

import signal
from dataclasses import replace

from memoflow.ledger.verify import verify
from tests._processes import start, together
from tests.races.racers import Place, claim, die_in_activity, notes

RACERS = 8


def run_and_compare(place: Place) -> None:
    """Start one activity from eight processes: one runs it, and all get its output in the end."""
    outcomes = together(claim, RACERS, place)
    (run_by,) = [index for index, (first, _) in enumerate(outcomes) if first != "busy"]
    assert notes(place) == [f"run by {run_by}"]
    assert outcomes[run_by][0] == f"output of {run_by}"
    assert {second for _, second in outcomes} == {f"output of {run_by}"}
    with place.open() as runtime:
        assert runtime.ledger.database.read(verify) == []


def test_one_process_runs_an_activity(place: Place) -> None:
    """Of eight that start it at once one runs it; the others are told so, and get its output in the end."""
    run_and_compare(place)


def test_one_process_takes_over_from_a_dead_worker(place: Place) -> None:
    """When a lease has run out, of eight that would take over one does."""
    assert start(die_in_activity, place).exit_code() == -signal.SIGKILL
    run_and_compare(replace(place, later=True))
