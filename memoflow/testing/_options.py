"""How a simulated provider behaves beyond its script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from memoflow.testing._wire import Split

__all__ = ["OptionArguments", "ProviderOptions"]


class OptionArguments(TypedDict, total=False):
    """`ProviderOptions` as keyword arguments."""

    seed: int
    api_key: str | None
    split: Split
    finish_abandoned: bool
    store_interrupted: bool
    background_polls: int | None
    cancelled_usage: bool
    min_output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderOptions:
    """Behaviour of a simulated provider.

    Attributes:
        seed: source of its ids; the same seed and requests give the same ids.
        api_key: the only key it accepts; None accepts any.
        split: sizes in bytes of the pieces a body is delivered in, used in turn; None is one piece an event.
        finish_abandoned: a generation whose client goes away is finished and billed all the same, which
            is what most field reports see. False: it stops and nothing is billed.
        store_interrupted: a stream that was interrupted can be retrieved later. The real API answers 404.
        background_polls: how many retrievals a background response takes to be terminal; None leaves
            that to `SimulatedProvider.advance`.
        cancelled_usage: a cancelled response reports, and bills, its input.
        min_output_tokens: the smallest ``max_output_tokens`` that is not refused; 16 in the real API.
    """

    seed: int = 0
    api_key: str | None = None
    split: Split = None
    finish_abandoned: bool = True
    store_interrupted: bool = False
    background_polls: int | None = 2
    cancelled_usage: bool = False
    min_output_tokens: int = 16
