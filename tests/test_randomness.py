"""Random bytes that are drawn for many uses at a time."""

from __future__ import annotations

import os
import threading

from memoflow.randomness import Drawn


def test_bytes_are_given_out_once() -> None:
    """Whoever asks at the same time, nobody gets what somebody else got."""
    pool, got = Drawn(12), [[] for _ in range(8)]  # type: list[list[bytes]]

    def take(mine: list[bytes]) -> None:
        mine.extend(pool.take() for _ in range(500))

    threads = [threading.Thread(target=take, args=(mine,)) for mine in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [one for mine in got for one in mine]
    assert len(set(everything)) == len(everything) == 4_000
    assert {len(one) for one in everything} == {12}


def test_a_forked_child_draws_its_own() -> None:
    """What is ready in the parent is not given out in the child."""
    pool = Drawn(16)
    pool.take()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"".join(pool.take() for _ in range(63)))
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        theirs = pipe.read()
    ours = b"".join(pool.take() for _ in range(63))
    assert len(theirs) == len(ours)
    assert not {theirs[at : at + 16] for at in range(0, 1008, 16)} & {
        ours[at : at + 16] for at in range(0, 1008, 16)
    }
