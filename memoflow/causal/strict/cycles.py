"""Cycles: records that are each other's causes, which only a later record can close."""

from __future__ import annotations

from collections.abc import Iterator

from memoflow.causal.strict.index import NOWHERE, Index

__all__ = ["cycles"]


def cycles(index: Index) -> list[list[int]]:
    """The positions of the records of each cycle, in the order of the log. Takes time like the log is long.

    Tarjan's algorithm, without recursion: a log can be one cycle of a million records.
    """
    if not any(index.find(name) != NOWHERE for names in index.missing.values() for name in names):
        return []
    return sorted(sorted(part) for part in _components(index) if len(part) > 1)


def _causes(index: Index, position: int) -> Iterator[int]:
    if index.parents[position] != NOWHERE:
        yield index.parents[position]
    yield from index.joins.get(position, ())
    for name in index.missing.get(position, ()):
        if (later := index.find(name)) != NOWHERE:
            yield later


def _components(index: Index) -> Iterator[list[int]]:
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    waiting: set[int] = set()
    # Every cycle goes through a cause that came later, so it is enough to begin there.
    for start in index.missing:
        work = [] if start in order else [(start, _causes(index, start))]
        while work:
            node, causes = work[-1]
            if node not in order:
                order[node] = low[node] = len(order)
                stack.append(node)
                waiting.add(node)
            for cause in causes:
                if cause not in order:
                    work.append((cause, _causes(index, cause)))
                    break
                if cause in waiting:
                    low[node] = min(low[node], order[cause])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    yield _popped(node, stack, waiting)


def _popped(node: int, stack: list[int], waiting: set[int]) -> list[int]:
    part: list[int] = []
    while not part or part[-1] != node:
        part.append(stack.pop())
        waiting.discard(part[-1])
    return part
