"""What tests let other processes do: fork in the middle of things, and claim at the same moment."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from memoflow.errors import ActivityBusy, ConfigurationError
from memoflow.ledger.database import Database
from memoflow.ledger.migrate import upgrade
from tests.ledger._calls import identity, open_ledger
from tests.ledger._notes import Hold, Note, Queue, errors, open_queue

__all__ = [
    "claim_at_once",
    "fork_after_close",
    "fork_in_a_batch",
    "fork_in_threads",
    "fork_without_the_file",
    "meet",
    "outlive_the_parent",
]

_barrier: Barrier | None = None


def meet(barrier: Barrier) -> None:
    """Remember where the processes of a pool meet."""
    global _barrier
    _barrier = barrier


def in_child(action: Callable[[], object]) -> Callable[[], bool]:
    """Run something in a forked child; the result waits for the child, and says whether all went well."""
    pid = os.fork()
    if pid == 0:
        try:
            good = bool(action())
        except BaseException:
            good = False
        os._exit(0 if good else 1)
    return lambda: os.waitpid(pid, 0)[1] == 0


def fork_in_a_batch(url: str) -> dict[str, Any]:
    """Fork while the writer is in the middle of a batch and more is queued behind it."""
    with open_queue(url, patience=10) as queue:
        hold = Hold("held")
        futures = queue.submit(hold)
        hold.inside.wait(30)
        futures += queue.submit(Note("queued"))
        # Whoever forks may have to wait for the batch.
        threading.Timer(0.2, hold.go_on.set).start()
        child = in_child(lambda: queue.do(Note("child")) == ["child"])
        return {
            "child": child(),
            "errors": errors(futures),
            "after": queue.do(Note("after")),
            "notes": queue.notes(),
            "batches": queue.batches(),
        }


def outlive_the_parent(url: str) -> dict[str, Any]:
    """Fork, close everything in the parent, and go on writing in the child."""
    with open_queue(url) as queue:
        queue.do(Note("first"))
        told, tell = os.pipe()
        child = in_child(lambda: _write_around(queue, told))
        queue.do(Note("parent"))
    with open_queue(url) as again:
        again.do(Note("again"))
    os.write(tell, b"x")
    good = child()
    with open_queue(url) as last:
        return {"child": good, "notes": last.notes()}


def _write_around(queue: Queue, told: int) -> bool:
    before = queue.do(Note("child-1"))
    os.read(told, 1)
    return before + queue.do(Note("child-2")) == ["child-1", "child-2"]


def fork_after_close(url: str) -> bool:
    """Fork with a writer that is closed; whether the child finds it closed."""
    with open_queue(url) as queue:
        queue.writer.close()
        return in_child(lambda: _is_closed(queue))()


def _is_closed(queue: Queue) -> bool:
    try:
        queue.submit(Note("a"))
    except ConfigurationError:
        return True
    return False


def fork_without_the_file(url: str) -> list[str]:
    """Fork while an open ledger's file cannot be opened any more; what Python could not tell its caller."""
    unheard: list[str] = []
    sys.unraisablehook = lambda what: unheard.append(repr(what.exc_value))
    path = Path(make_url(url).database or "")
    path.parent.mkdir()
    upgrade(url)
    database = Database(url)
    shutil.rmtree(path.parent)
    in_child(lambda: True)()
    database.close()
    return unheard


def fork_in_threads(url: str) -> dict[str, Any]:
    """Fork from several threads at once while others write."""
    with open_queue(url) as queue:
        good: list[bool] = []
        start = threading.Barrier(5)

        def forking(i: int) -> None:
            start.wait()
            good.append(in_child(lambda: queue.do(Note(f"child-{i}")) == [f"child-{i}"])())

        threads = [threading.Thread(target=forking, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        start.wait()
        written = [queue.do(Note(f"parent-{i}")) for i in range(5)]
        for thread in threads:
            thread.join()
        return {"children": good, "written": len(written), "notes": sorted(queue.notes())}


def claim_at_once(url: str, count: int) -> list[str]:
    """Claim activities at the same moment as other processes; what became of each claim."""
    with open_ledger(url) as ledger:
        return [_claim(ledger.claim, f"activity-{i}") for i in range(count)]


def _claim(claim: Callable[..., Any], activity_id: str) -> str:
    assert _barrier is not None
    _barrier.wait(60)
    try:
        claim(identity(activity_id))
    except ActivityBusy:
        return "busy"
    except Exception as error:
        return type(error).__name__
    return "claimed"
