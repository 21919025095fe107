"""Measuring side by side: what is compared takes turns, so that a busy machine slows all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

__all__ = ["Samples", "cpu_of", "interleave", "ratio", "seconds_of"]

Samples = dict[str, list[float]]


def interleave(runs: int, measures: Mapping[str, Callable[[], float]]) -> Samples:
    """Measure each in turn, ``runs`` times; every other turn backwards, so that nobody is always first."""
    samples: Samples = {name: [] for name in measures}
    for run in range(runs):
        for name in list(measures)[:: 1 if run % 2 == 0 else -1]:
            samples[name].append(measures[name]())
    return samples


def ratio(samples: Samples, above: str, below: str) -> float:
    """The median of the ratios of samples that were taken beside each other."""
    return median(a / b for a, b in zip(samples[above], samples[below], strict=True))


def seconds_of(work: Callable[[], object]) -> float:
    """How long something takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cpu_of(work: Callable[[], object], times: int) -> float:
    """Processor seconds of one time, over many."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times
