"""Asks a provider, through memoflow's adapter, for what each boundary is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from certification.live.provider import Provider, double
from memoflow import Budget, CancelSignal

__all__ = ["Asker"]

_CALL_S: Final = 180.0  # what any call may take


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks one model. Each call reserves ``tokens``, input and output together, and may use no more."""

    provider: Provider
    model: str
    llm: Any
    tokens: int

    def ask(self, boundary: str) -> None:
        """Make the calls of a boundary, in the running activity.

        Raises:
            MemoflowError: whatever the calls end with; a cancelled one with `CallCancelled`.
        """
        request = self.provider.request(boundary, self.model)
        match boundary:
            case "response":
                self.llm.run(request, **self._options())
            case "stream":
                with self.llm.stream(request, **self._options()) as events:
                    for _ in events:
                        pass
            case "tools":
                self._run_with_tool(request)
            case "cancellation":
                self._cancel(request)
            case _:
                raise AssertionError(boundary)

    def _run_with_tool(self, request: dict[str, Any]) -> None:
        first, then = self._budget(tool_calls=1), [self._budget()]
        self.llm.run_with_tools(
            request, [double], continuation_budgets=then, **self._options() | {"budget": first}
        )

    def _cancel(self, request: dict[str, Any]) -> None:
        signal = CancelSignal()
        with self.llm.stream(request, signal=signal, **self._options()) as events:
            for _ in events:
                # The first event proves that the request has arrived; its reply has just begun.
                signal.cancel()

    def _options(self) -> dict[str, Any]:
        return {"budget": self._budget(), "replay_key": "call", "timeout": _CALL_S}

    def _budget(self, tool_calls: int | None = None) -> Budget:
        return Budget(total_tokens=self.tokens, model_calls=1, tool_calls=tool_calls)
