"""What was made of a text is kept while there is room, so that a history which is sent again costs little."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from memoflow.inspection.remembering import KEPT_BYTES, Remembered
from tests.inspection._events import KEY


class Kept:
    """Notes which texts had to be made."""

    def __init__(self) -> None:
        self.values: Remembered[int] = Remembered(KEY)
        self.made: list[bytes] = []

    def __call__(self, text: bytes) -> int:
        return self.values.of(text, lambda: self._make(text))

    def _make(self, text: bytes) -> int:
        self.made.append(text)
        return len(text)


def test_a_long_history_of_short_texts_is_made_once() -> None:
    """However many texts it has, since each would else drive out the next."""
    kept, history = Kept(), [b"%d" % number for number in range(5_000)]
    assert [kept(text) for text in history * 3] == [len(text) for text in history] * 3
    assert kept.made == history


def test_the_oldest_go_when_there_is_no_room() -> None:
    """By the bytes of the texts; what alone is too long is made each time."""
    kept, half = Kept(), KEPT_BYTES // 2 - 1_000
    first, second, third = (letter * half for letter in (b"a", b"b", b"c"))
    for text in (first, second, first, third, second, first):
        kept(text)
    assert kept.made == [first, second, third, first]
    long = b"d" * (KEPT_BYTES + 1)
    assert [kept(long), kept(long), kept(b"x")] == [len(long), len(long), 1]
    assert kept.made[4:] == [long, long, b"x"]


def test_threads_share_what_is_kept() -> None:
    """Whatever they make at once, all get its value, and there is room for the rest."""
    kept, texts = Kept(), [b"%d" % (number % 7) * (KEPT_BYTES // 9) for number in range(70)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(kept, texts)) == [len(text) for text in texts]
    # A thread does not wait to keep what it made while another one keeps something.
    for _ in range(2):
        kept.made.clear()
        assert [kept(text) for text in texts[:7]] == [len(text) for text in texts[:7]]
    assert kept.made == []
