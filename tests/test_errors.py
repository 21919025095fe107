"""The exceptions: one tree, full sentences, and survival of pickling and copying."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from memoflow import errors
from memoflow.errors import (
    BudgetDenied,
    ConfigurationError,
    MemoflowError,
    NoActivityContext,
    ProviderNotReached,
    ProviderRejected,
    SchemaOutdated,
)
from tests._error_samples import DENIED, SAMPLES

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
        "causal.record.RecordRefused",
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
