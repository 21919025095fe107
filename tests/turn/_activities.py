"""Plain functions as activities of a world, for both kinds of adapter."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from sqlalchemy import select

from memoflow.ledger import schema as s
from tests.turn._worlds import World

__all__ = ["Counting", "attempts", "make", "start"]

RUN = {"workflow_id": "w", "run_id": "r"}


def make(w: World, function: Callable[..., Any], **options: Any) -> Any:
    """The function as an activity of a world, ``async`` where the world is."""
    given = {"version": "v1", "budget": "acme/support", "name": "a", **options}
    if not w.is_async:
        return w.rt.activity(**given)(function)

    async def made(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    made.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    made.__annotations__ = dict(function.__annotations__)
    return w.rt.activity(**given)(made)


def start(w: World, activity: Any, *args: Any, **given: Any) -> Any:
    """Run an activity to its end."""
    result = activity.run(*args, **{**RUN, **given})

    async def wait() -> Any:
        return await result

    return asyncio.run(wait()) if w.is_async else result


def attempts(w: World) -> list[tuple[int, str, str | None]]:
    """Number, state and error of every attempt."""
    query = (
        select(s.attempts)
        .join(s.activities, s.activities.c.id == s.attempts.c.activity_id)
        .where(s.activities.c.namespace == w.rt.namespace)
        .order_by(s.attempts.c.claimed_at, s.attempts.c.number)
    )
    return [(row.number, row.state, row.error_type) for row in w.read(lambda c: c.execute(query).all())]


class Counting:
    """Counts its calls; raises what it is given, then returns."""

    def __init__(self, *errors: BaseException) -> None:
        self.calls = 0
        self._errors = list(errors)

    def __call__(self) -> Any:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        return self.calls

    __annotations__: ClassVar[dict[str, Any]] = {}
    __name__ = "counting"
