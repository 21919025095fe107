"""Keeping the leases of running attempts alive, from one thread for all of them."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from concurrent.futures import Future
from typing import Any

from memoflow.context import Current
from memoflow.errors import LeaseLost
from memoflow.ledger.activities import ExtendLease
from memoflow.ledger.writer import MAX_BATCH, Writer

__all__ = ["LeaseKeeper"]

log = logging.getLogger("memoflow.leases")

# Two heartbeats may fail before the lease runs out.
BEATS_PER_LEASE = 3


class LeaseKeeper:
    """Extends the lease of every watched attempt three times per lease, and tells those that lost it."""

    def __init__(self, writer: Writer, lease_us: int) -> None:
        self._writer = writer
        self._lease_us = lease_us
        self._interval = lease_us / 1_000_000 / BEATS_PER_LEASE
        self.after_fork()
        _live.add(self)

    def after_fork(self) -> None:
        """Start anew: in a forked child the parent's thread is gone, and its attempts are the parent's."""
        self._lock = threading.Lock()
        self._watched: set[Current] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, attempt: Current) -> None:
        """Start keeping an attempt's lease."""
        with self._lock:
            self._watched.add(attempt)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._beat_until_stopped, name="memoflow-leases", daemon=True
                )
                self._thread.start()

    def forget(self, attempt: Current) -> None:
        """Stop keeping an attempt's lease."""
        with self._lock:
            self._watched.discard(attempt)

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()

    def _beat_until_stopped(self) -> None:
        while not self._stop.wait(self._interval):
            with self._lock:
                self._watched -= {attempt for attempt in self._watched if attempt.abandoned()}
                watched = list(self._watched)
            if watched and not self._beat(watched):
                return

    def _beat(self, watched: list[Current]) -> bool:
        extensions = [ExtendLease(attempt.record.fence, self._lease_us) for attempt in watched]
        futures: list[Future[Any]] = []
        try:
            for start in range(0, len(extensions), MAX_BATCH):
                # Before all that is queued: a lease that is extended too late is lost.
                futures += self._writer.submit(*extensions[start : start + MAX_BATCH], urgent=True)
        except Exception:
            return False  # The runtime is closed.
        for attempt, future in zip(watched, futures, strict=True):
            self._hear(attempt, future)
        return True

    def _hear(self, attempt: Current, future: Future[Any]) -> None:
        error = future.exception()
        if isinstance(error, LeaseLost) and attempt in self._watched:
            # Told once: an attempt that takes long to end must not be cancelled again at every beat.
            self.forget(attempt)
            attempt.lost = error
            log.warning("attempt %d of %s lost its lease", attempt.attempt, attempt.identity)
            if attempt.on_lost is not None:
                attempt.on_lost()
        elif error is not None and not isinstance(error, LeaseLost):
            log.warning("a heartbeat could not be written (%s)", type(error).__name__)


_live: weakref.WeakSet[LeaseKeeper] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for keeper in list(_live):
        keeper.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
