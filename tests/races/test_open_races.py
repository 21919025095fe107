"""Many processes that open a ledger nobody has opened before (field case 45)."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from memoflow import KeyRing, Runtime
from memoflow.ledger.verify import verify
from tests._processes import together
from tests.races.racers import first_open

RACERS = 8


def check_outputs(runtime: Runtime) -> None:
    """What each process kept is read with one and the same key."""
    for index in range(RACERS):

        @runtime.activity(version="v1")
        def activity() -> str:
            raise AssertionError("It is recorded, so it does not run.")

        assert activity.run(workflow_id="race", run_id=str(index)) == f"output of {index}"
    assert runtime.ledger.database.read(verify) == []


def test_a_fresh_file_is_opened_by_all_with_one_key(empty_sqlite_url: str) -> None:
    """Eight processes find no file, no schema and no key: each gets a ledger, and all the same key."""
    outcomes = together(first_open, RACERS, empty_sqlite_url, None)
    assert outcomes == [f"output of {index}" for index in range(RACERS)]
    (key_file,) = Path(empty_sqlite_url.removeprefix("sqlite:///")).parent.glob("*.key")
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    with Runtime.open(empty_sqlite_url) as runtime:
        check_outputs(runtime)


@pytest.mark.postgres
def test_a_fresh_server_is_migrated_and_opened_by_all(empty_postgres_url: str, key: str) -> None:
    """Eight processes migrate one empty database and go on at once."""
    outcomes = together(first_open, RACERS, empty_postgres_url, key)
    assert outcomes == [f"output of {index}" for index in range(RACERS)]
    with Runtime.open(empty_postgres_url, keys=KeyRing.parse(key)) as runtime:
        check_outputs(runtime)
