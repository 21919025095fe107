"""What an activity returns comes back as it was, or not at all: never as something else, never in a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from memoflow import ConfigurationError, InvalidRequest, ResultNotEncodable, ResultNotRetained, Runtime
from memoflow.testing import temporary_runtime

SECRET = "the plain text of an output"


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    """One ledger for all; each test has a run of its own."""
    with temporary_runtime() as opened:
        yield opened


def activity(runtime: Runtime, function: Callable[[], Any]) -> Callable[[str], Any]:
    """Runs a function as the activity ``a`` of a run."""
    made = runtime.activity(version="v1", name="a")(function)
    return lambda run: made.run(workflow_id="w", run_id=run)


def untyped(value: Any) -> Callable[[], Any]:
    """A function without an annotation."""

    def give():  # type: ignore[no-untyped-def]
        return value

    return give


def as_int() -> int:
    """A function that says what it returns."""
    return 7


def as_text() -> str:
    """The same for text."""
    return SECRET


def as_number() -> float:
    """A number that JSON cannot carry."""
    return math.nan


@pytest.mark.parametrize("value", [None, "text", "", 5, [1, "two"], {"a": [1]}, True])
def test_plain_outputs_come_back(runtime: Runtime, value: Any) -> None:
    """Without an annotation an output is plain JSON."""
    run = f"plain {value!r}"
    assert activity(runtime, untyped(value))(run) == value
    assert activity(runtime, untyped("never called"))(run) == value


def test_an_output_of_another_annotation_is_not_shown(runtime: Runtime) -> None:
    """The error is typed, names the digest, and holds nothing of the output, nor does its cause."""
    activity(runtime, as_text)("changed")
    with pytest.raises(ResultNotRetained, match="return annotation") as caught:
        activity(runtime, as_int)("changed")
    assert caught.value.digest is not None
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_an_annotation_may_come_and_go(runtime: Runtime) -> None:
    """The form of an output is the same with and without one."""
    activity(runtime, as_text)("gone")
    assert activity(runtime, untyped("never called"))("gone") == SECRET
    activity(runtime, untyped(7))("new")
    assert activity(runtime, as_int)("new") == 7


def test_what_could_not_be_restored_does_not_complete(runtime: Runtime) -> None:
    """JSON would have null for it, which is no number; the activity stays free to run again."""
    for _ in range(2):
        with pytest.raises(ResultNotEncodable, match="return annotation"):
            activity(runtime, as_number)("nan")


@pytest.mark.parametrize("annotated", [False, True])
def test_an_output_has_a_largest_size(
    runtime: Runtime, annotated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte more is refused with both figures."""
    monkeypatch.setattr("memoflow.activity.MAX_OUTPUT_BYTES", len(SECRET) + 1)
    function = as_text if annotated else untyped(SECRET)
    with pytest.raises(ResultNotEncodable, match=f"{len(SECRET) + 2} bytes of JSON; {len(SECRET) + 1} are"):
        activity(runtime, function)(f"large {annotated}")


def test_annotations_have_to_exist(runtime: Runtime) -> None:
    """Known when the activity is made, not when its output is read."""

    def missing() -> NoSuchName:  # type: ignore[name-defined]  # noqa: F821
        return None

    with pytest.raises(ConfigurationError, match="NoSuchName"):
        runtime.activity(version="v1")(missing)


@pytest.mark.parametrize("name", ["workflow_id", "run_id", "activity_id"])
def test_an_empty_id_is_not_taken_for_none(runtime: Runtime, name: str) -> None:
    """It would be a new run each time, in which nothing is found again and everything is paid again."""
    made = runtime.activity(version="v1")(as_int)
    with pytest.raises(InvalidRequest, match=f"{name} must have 1 to 256"):
        made.run(**{"workflow_id": "w", "run_id": "r", name: ""})
    if name != "activity_id":
        with pytest.raises(InvalidRequest, match=f"{name} must have 1 to 256"):
            runtime.run(**{"workflow_id": "w", "run_id": "r", name: ""})


@pytest.mark.parametrize(
    "options", [{"lease_seconds": 0}, {"lease_seconds": -1}, {"lease_seconds": 0.5}, {"namespace": ""}]
)
def test_a_runtime_is_not_opened_with_what_cannot_be(options: dict[str, Any]) -> None:
    """No lease that is over at once, and no tenant that falls back to the default one."""
    with pytest.raises(ConfigurationError, match=next(iter(options))), temporary_runtime(**options):
        pass


def test_a_worker_has_a_name() -> None:
    """It stands in the record of attempts."""
    with pytest.raises(InvalidRequest, match="worker"), temporary_runtime(worker="a\0b"):
        pass
