"""How often an activity is tried, and how long to wait in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memoflow.errors import ConfigurationError, MemoflowError

if TYPE_CHECKING:
    # Loaded where something is tried again: importing memoflow is to be cheap.
    import tenacity

__all__ = ["Retry"]


def _jittered(state: tenacity.RetryCallState) -> float:
    from tenacity import wait_exponential_jitter

    return wait_exponential_jitter(initial=1, max=60)(state)


@dataclass(frozen=True, slots=True)
class Retry:
    """How often an activity is tried, and how long to wait in between.

    Only failures known to be safe are retried (`MemoflowError.retryable`): nothing was left open by
    them. Each try is a new attempt. A provider's ``retry_after`` is honoured when it is longer.

    Args:
        attempts: tries in all, at least 1.
        wait: a tenacity wait strategy; exponential with jitter by default, up to 60 s.
    """

    attempts: int = 3
    wait: Callable[[tenacity.RetryCallState], float] = _jittered

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int) or self.attempts < 1:
            raise ConfigurationError("Retry(attempts=…) must be an integer of at least 1.")

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """What the function returns, tried as often as it may be."""
        if self.attempts == 1:
            return function(*args)
        from tenacity import Retrying

        return Retrying(**self.options())(function, *args)

    async def acall(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """`call` for an ``async def`` function."""
        if self.attempts == 1:
            return await function(*args)
        from tenacity import AsyncRetrying

        return await AsyncRetrying(**self.options())(function, *args)

    def options(self) -> dict[str, Any]:
        """The arguments of tenacity's controller."""
        from tenacity import retry_if_exception, stop_after_attempt

        return {
            "stop": stop_after_attempt(self.attempts),
            "wait": self._pause,
            "retry": retry_if_exception(_is_safe),
            "reraise": True,
        }

    def _pause(self, state: tenacity.RetryCallState) -> float:
        error = None if state.outcome is None else state.outcome.exception()
        return max(self.wait(state), getattr(error, "retry_after", None) or 0.0)


def _is_safe(error: BaseException) -> bool:
    return isinstance(error, MemoflowError) and error.retryable
