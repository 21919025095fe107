"""The exceptions: one tree, full sentences, and survival of pickling and copying."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from typing import Any

import pytest

from memoflow import errors
from memoflow.errors import (
    ActivityBusy,
    ActivityMismatch,
    BudgetDenied,
    BudgetNotConfigured,
    BudgetTooSmall,
    BudgetUnbounded,
    CallCancelled,
    ClientCallRefused,
    ConfigurationError,
    EstimateRefused,
    InvalidProviderReply,
    LeaseLost,
    MemoflowError,
    NoActivityContext,
    NotFound,
    OutcomeUnknown,
    PriceUnknown,
    ProviderFailed,
    ProviderNotReached,
    ProviderRejected,
    ReplayMismatch,
    ReservationConflict,
    ResultNotRetained,
    SchemaOutdated,
    ToolCallBudgetExceeded,
    ToolRoundLimit,
    ToolTimedOut,
    ToolVersionMismatch,
)

MOMENT = datetime(2026, 12, 1, tzinfo=UTC)
ISO = "2026-12-01T00:00:00+00:00"
DENIED: dict[str, Any] = {
    "account": "acme/support",
    "dimension": "total_tokens",
    "limit": 1000,
    "settled": 400,
    "held": 300,
    "unknown": 200,
    "requested": 150,
}

# Class, its data, and everything its sentence must hold: the figures and the next step.
SAMPLES: list[tuple[type[MemoflowError], dict[str, Any], list[str]]] = [
    (SchemaOutdated, {"found": "0001", "needed": "0002"}, ["0001", "0002", "Run `memoflow db upgrade`"]),
    (SchemaOutdated, {"found": None, "needed": "0002"}, ["revision none", "0002"]),
    (
        SchemaOutdated,
        {"found": "0003", "needed": "0002", "unknown": True},
        ["0003", "does not know", "0002", "Install the version that wrote it"],
    ),
    (
        SchemaOutdated,
        {"found": None, "needed": "0002", "missing": "/data/nope.db"},
        ["the file '/data/nope.db' does not exist", "`memoflow db upgrade`"],
    ),
    (
        NotFound,
        {"what": "invocation", "id": "id-1", "namespace": "acme"},
        ["invocation 'id-1'", "'acme'", "`memoflow invocations list`"],
    ),
    (NotFound, {"what": "effect", "id": "id-1", "namespace": "acme"}, ["`memoflow effects list`"]),
    (NotFound, {"what": "run", "id": "w/r", "namespace": "acme"}, ["run 'w/r'", "`memoflow runs list`"]),
    (
        NotFound,
        {"what": "invocation or effect", "id": "id-1", "namespace": "acme"},
        ["`memoflow invocations list` or `memoflow effects list`"],
    ),
    (
        BudgetNotConfigured,
        {"account": "acme/x", "namespace": "prod"},
        ["'acme/x'", "'prod'", "rt.budgets.put('acme/x', Budget(...))", "`memoflow budget put`"],
    ),
    (
        BudgetDenied,
        DENIED,
        [
            "'acme/support' refused 150 total_tokens: limit 1000, settled 400, held 300, unknown 200",
            "so 100 would fit",
            "`memoflow reconcile list`",
            "Raise the limit or ask for less",
        ],
    ),
    (
        BudgetDenied,
        {**DENIED, "resets_at": MOMENT, "output_cap_fits": 42},
        ["An output cap of 42 would fit, reserving no more than it needs.", f"The period resets at {ISO}."],
    ),
    (
        BudgetDenied,
        {**DENIED, "reason": "closed"},
        ["'acme/support' is closed", "rt.budgets.reopen('acme/support')"],
    ),
    (BudgetDenied, {**DENIED, "settled": 1400, "reason": "over_limit"}, ["settled 1400", "so 0 would fit"]),
    (
        BudgetTooSmall,
        {
            "dimension": "total_tokens",
            "reserved": 100,
            "needed": 250,
            "output_cap_fits": 30,
            "basis": "estimate",
        },
        [
            "reservation of 100 total_tokens",
            "needs 250",
            "'estimate'",
            "output cap of 30",
            "reserve at least 250",
        ],
    ),
    (
        BudgetUnbounded,
        {"account": "acme", "dimension": "output_tokens", "hint": "Set an output cap."},
        ["'acme'", "output_tokens", "no upper bound", "Set an output cap."],
    ),
    (EstimateRefused, {"account": "acme"}, ["'acme'", "strict_input=True", "count_input=True"]),
    (PriceUnknown, {"model": "m-1"}, ["'m-1'", "before it was sent", "PriceBook.put(...)", "allow_unpriced"]),
    (PriceUnknown, {"model": "m-1", "account": "acme"}, ["'m-1'", "account 'acme' limits cost"]),
    (
        ToolCallBudgetExceeded,
        {"asked": 5, "reserved": 2, "round": 3},
        [
            "asked for 5 tool calls",
            "round 3",
            "2 were reserved",
            "None of them ran",
            "Reserve more tool_calls",
        ],
    ),
    (
        ReservationConflict,
        {"what": "reservation", "id": "id-1", "state": "SETTLED", "asked": "RELEASED"},
        ["reservation id-1", "already SETTLED", "cannot become RELEASED"],
    ),
    (
        ActivityBusy,
        {"activity": "acme/w/r/a", "attempt": 2, "lease_expires_at": MOMENT},
        ["acme/w/r/a", "attempt 2", ISO, "Try again after that"],
    ),
    (
        ActivityMismatch,
        {"activity": "acme/w/r/a", "component": "input", "recorded": "sha256:1", "given": "sha256:2"},
        ["acme/w/r/a", "input sha256:1", "sha256:2", "Use another activity_id"],
    ),
    (
        LeaseLost,
        {"activity": "acme/w/r/a", "attempt": 1, "current": 2},
        ["Attempt 1", "acme/w/r/a", "attempt 2 has taken over", "Stop working on it"],
    ),
    (LeaseLost, {"activity": "acme/w/r/a", "attempt": 1, "current": None}, ["lost its lease. Stop"]),
    (
        ReplayMismatch,
        {"replay_key": "k", "component": "request", "recorded": "sha256:1", "given": "sha256:2"},
        ["'k'", "another request", "sha256:1", "sha256:2", "No budget was taken", "Use a new replay_key"],
    ),
    (
        ResultNotRetained,
        {"what": "reply", "digest": "sha256:1", "reason": "it was purged"},
        [
            "RESULT_NOT_RETAINED",
            "the reply",
            "sha256:1",
            "it was purged",
            "not run again",
            "use a new run_id",
        ],
    ),
    (ResultNotRetained, {"what": "reply", "digest": None, "reason": "it was purged"}, ["digest unknown"]),
    (
        OutcomeUnknown,
        {"kind": "invocation", "id": "id-1", "reason": "READ_TIMEOUT"},
        ["invocation id-1", "READ_TIMEOUT", "stays held", "`memoflow reconcile show id-1`", "`release`"],
    ),
    (
        OutcomeUnknown,
        {"kind": "effect", "id": "id-2", "reason": "ATTEMPT_LOST"},
        ["effect id-2", "ATTEMPT_LOST", "not run again", "`memoflow reconcile happened`", "`did-not-happen`"],
    ),
    (
        CallCancelled,
        {"invocation_id": "id-1", "dispatched": True},
        ["after it was sent", "id-1", "OUTCOME_UNKNOWN", "until it is reconciled"],
    ),
    (
        CallCancelled,
        {"invocation_id": None, "dispatched": False},
        ["before its next request was sent", "no budget was used for that one", "a retry"],
    ),
    (
        ProviderNotReached,
        {"invocation_id": "id-1", "cause": "ConnectTimeout"},
        ["ConnectTimeout", "nothing was sent", "id-1 was released", "try again"],
    ),
    (
        ProviderRejected,
        {"invocation_id": "id-1", "status": 429, "code": "slow_down", "retry_after": 1.5, "retryable": True},
        ["id-1", "status 429 (slow_down)", "no tokens were used", "wait 1.5 s", "may be tried again"],
    ),
    (
        ProviderRejected,
        {"invocation_id": "id-1", "status": 400, "code": None, "retry_after": None, "retryable": False},
        ["status 400; no tokens", "will not help"],
    ),
    (
        ProviderFailed,
        {"invocation_id": "id-1", "status": "failed", "code": "server_error", "retryable": True},
        ["id-1 as failed (server_error)", "further attempt may succeed"],
    ),
    (
        ProviderFailed,
        {"invocation_id": "id-1", "status": "cancelled", "code": None, "retryable": False},
        ["id-1 as cancelled.", "Change the request"],
    ),
    (
        ProviderRejected,
        {
            "invocation_id": "id-1",
            "status": 400,
            "code": "invalid_value",
            "retry_after": None,
            "retryable": False,
            "type": "invalid_request_error",
            "param": "input[0].content",
        },
        ["status 400 (invalid_value, parameter input[0].content)"],
    ),
    (
        ClientCallRefused,
        {"invocation_id": "id-1", "items": ("computer_call",)},
        ["id-1", "(computer_call)", "memoflow does not do that", "none of its tool calls ran", "run()"],
    ),
    (
        InvalidProviderReply,
        {"invocation_id": "id-1", "problem": "two calls share an id"},
        ["id-1", "two calls share an id", "none of its tool calls ran", "Report it"],
    ),
    (
        ToolVersionMismatch,
        {"tool": "pay", "recorded": "v1", "registered": "v2"},
        ["'pay'", "'v1' and is unfinished", "'v2' is registered now", "Register 'v1'"],
    ),
    (ToolRoundLimit, {"rounds": 4}, ["after 4 rounds", "none of its calls ran", "continuation_budgets"]),
    (
        ToolTimedOut,
        {"tool": "pay", "effect_id": "id-1", "seconds": 2.5},
        ["'pay'", "2.5 s", "`memoflow reconcile show id-1`", "longer timeout"],
    ),
]
samples = pytest.mark.parametrize(
    ("kind", "data", "parts"), SAMPLES, ids=[kind.__name__ for kind, _, _ in SAMPLES]
)


def defined() -> list[type[MemoflowError]]:
    """All exception classes of the module."""
    return [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == errors.__name__
    ]


def drawn() -> Iterator[tuple[str, str | None]]:
    """Pairs of class and base from the tree in the module's docstring."""
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.fullmatch(r"    ((?:│   |    )*)(?:[├└]── )?(\w+)", line)
        if match is None:
            continue
        depth = len(match[1]) // 4 + ("── " in line)
        above[depth:] = [match[2]]
        yield match[2], above[depth - 1] if depth else None


def same(one: BaseException, other: BaseException) -> bool:
    """Whether two exceptions are alike in all that a handler can see."""
    return (type(one), str(one), one.args, vars(one)) == (type(other), str(other), other.args, vars(other))


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """Every class stands once in the drawing, under its base."""
    tree = list(drawn())
    assert sorted(name for name, _ in tree) == sorted(kind.__name__ for kind in defined())
    assert dict(tree) == {
        kind.__name__: None if kind is MemoflowError else kind.__base__.__name__  # type: ignore[union-attr]
        for kind in defined()
    }


def test_all_is_the_tree() -> None:
    """``__all__`` is sorted and names exactly the classes."""
    assert errors.__all__ == sorted(kind.__name__ for kind in defined())


@pytest.mark.parametrize(
    "path",
    [
        "canonical.StrictJSONError",
        "keyring.KeyNotFound",
        "keyring.SealBroken",
        "providers.base.UnreadableReply",
    ],
)
def test_errors_of_readers_are_in_the_family(path: str) -> None:
    """Errors defined beside their readers are named in the docstring and caught with all others."""
    module, name = path.rsplit(".", 1)
    kind = getattr(importlib.import_module(f"memoflow.{module}"), name)
    assert issubclass(kind, MemoflowError)
    assert f"`{path}`" in (errors.__doc__ or "")


def test_every_class_has_a_docstring_and_a_sample() -> None:
    """No class that writes its own sentence is left out of the tests below."""
    assert all(inspect.getdoc(kind) for kind in defined())
    own = {kind for kind in defined() if "__init__" in vars(kind)}
    assert own == {kind for kind, _, _ in SAMPLES} | {NoActivityContext}


@samples
def test_messages_say_figures_and_next_step(
    kind: type[MemoflowError], data: dict[str, Any], parts: list[str]
) -> None:
    """The sentence holds what was refused, the figures, and what to do next."""
    message = str(kind(**data))
    assert [part for part in parts if part not in message] == []
    assert message.endswith(".")
    assert re.match(r"[A-Z]", message)
    assert "  " not in message
    assert "None " not in message.replace("None of them", "")


@samples
def test_data_are_attributes(kind: type[MemoflowError], data: dict[str, Any], parts: list[str]) -> None:
    """Nobody has to read figures out of the text."""
    error = kind(**data)
    assert {name: getattr(error, name) for name in data} == data


@samples
def test_errors_survive_pickling_and_copying(
    kind: type[MemoflowError], data: dict[str, Any], parts: list[str]
) -> None:
    """Type, message, attributes and notes are the same after every pickle protocol and both copies."""
    error = kind(**data)
    error.add_note("seen by the worker")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert same(pickle.loads(pickle.dumps(error, protocol)), error)
    assert same(copy.copy(error), error)
    assert same(copy.deepcopy(error), error)


def raise_sample(index: int) -> None:
    """Raise one of the samples, in another process."""
    kind, data, _ = SAMPLES[index]
    raise kind(**data)


def test_errors_cross_processes() -> None:
    """A pool hands each error of its worker to the caller as it was raised."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for index, (kind, data, _) in enumerate(SAMPLES):
            error = pool.submit(raise_sample, index).exception()
            assert error is not None
            error.__dict__.pop("__notes__", None)
            assert same(error, kind(**data))


@pytest.mark.parametrize("kind", [kind for kind in defined() if "__init__" not in vars(kind)])
def test_plain_errors_take_a_sentence(kind: type[MemoflowError]) -> None:
    """Classes without data of their own carry the text they were given, also after pickling."""
    if kind.__init__ is not MemoflowError.__init__:
        pytest.skip("inherits a constructor")
    error = kind("What happened. What to do.")
    assert same(pickle.loads(pickle.dumps(error)), error)
    assert str(error) == "What happened. What to do."


def test_no_activity_says_how_to_make_one() -> None:
    """The first error a new user meets shows the way."""
    error = NoActivityContext("OpenAIResponses.run")
    assert str(error).startswith("OpenAIResponses.run was called outside an activity")
    assert "@rt.activity(...)" in str(error)
    assert same(pickle.loads(pickle.dumps(error)), error)


def test_what_fits_is_never_negative() -> None:
    """On an account over its limit nothing fits; otherwise the rest does."""
    assert BudgetDenied(**{**DENIED, "settled": 5000}).fits == 0
    assert BudgetDenied(**DENIED).fits == 100


def test_unknowns_are_mentioned_only_where_there_are_some() -> None:
    """The advice to reconcile is given when it can help."""
    assert "reconcile" not in str(BudgetDenied(**{**DENIED, "unknown": 0}))


def test_only_what_is_safe_is_retryable() -> None:
    """By default nothing is; a ledger or provider that was not reached is; rejections say it themselves."""
    assert {kind for kind in defined() if kind.retryable} == {ProviderNotReached}
    rejected = [
        ProviderRejected(invocation_id="i", status=429, code=None, retry_after=None, retryable=value)
        for value in (True, False)
    ]
    assert [error.retryable for error in rejected] == [True, False]
    assert pickle.loads(pickle.dumps(rejected[0])).retryable is True
    assert ProviderRejected.retryable is False


def test_one_handler_catches_everything() -> None:
    """All are `MemoflowError`, and none is caught by a handler for ordinary errors of Python."""
    assert all(issubclass(kind, MemoflowError) for kind in defined())
    assert not any(issubclass(kind, ValueError | TypeError | OSError | RuntimeError) for kind in defined())
    assert issubclass(SchemaOutdated, ConfigurationError)
