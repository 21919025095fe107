"""The options all calls share, checked and turned into the protocol's terms."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypedDict

from memoflow.budget import MAX_AMOUNT, Budget, check_amount
from memoflow.context import Current
from memoflow.errors import ConfigurationError, InvalidBudget, InvalidRequest, InvalidTool
from memoflow.identity import check_name
from memoflow.ledger.accounts import check_path
from memoflow.providers.base import Codec
from memoflow.tools import Tool, Toolset
from memoflow.turn import Call, CancelSignal, Terms

__all__ = ["CallOptions", "make_call"]

MAX_METADATA: Final = 16
MAX_METADATA_TEXT: Final = 512
MAX_SECONDS: Final = 7 * 86_400  # a socket cannot wait for more than 24 days


class CallOptions(TypedDict, total=False):
    """Keyword arguments of every call.

    Attributes:
        budget: what to reserve; left out, it is derived from the request.
        account: charge this account instead of the activity's; those of the run are charged anyway.
        replay_key: names the call among those of its activity; a retry then restores what is recorded.
            Without one a retry sends and pays it again.
        input_tokens: declares the input's size, where it cannot be measured.
        count_input: ask the provider to count the input.
        strict_input: reserve a true upper bound of the input instead of an estimate.
        output_cap: ``reserve`` sends the cap that fits the reservation, ``caller`` leaves the request alone.
        timeout: seconds for the whole request, and as many for a count of its input.
        idle_timeout: seconds between two events of a stream.
        signal: ends the call when it is cancelled.
        on_unknown: ``block`` raises while an earlier attempt's request is unresolved.
        strict_outcomes: count every exception of the SDK as an unknown outcome.
        metadata: small scalars kept with the invocations, in the clear.
        tool_concurrency: tools of one reply that may run side by side.
        max_result_bytes: largest tool result given to the model.
    """

    budget: Budget | None
    account: str | None
    replay_key: str | None
    input_tokens: int | None
    count_input: bool
    strict_input: bool
    output_cap: Literal["reserve", "caller"]
    timeout: float | None
    idle_timeout: float | None
    signal: CancelSignal | None
    on_unknown: Literal["retry", "block"]
    strict_outcomes: bool
    metadata: Mapping[str, str | int | float | bool | None] | None
    tool_concurrency: int
    max_result_bytes: int


_KNOWN: Final = frozenset(CallOptions.__annotations__)
_TERMS: Final = (
    "count_input",
    "strict_input",
    "output_cap",
    "on_unknown",
    "strict_outcomes",
    "max_result_bytes",
)


def make_call(
    attempt: Current,
    codec: Codec,
    request: Mapping[str, Any],
    options: CallOptions,
    *,
    tools: Iterable[Tool[..., Any]] | None,
    continuation: Sequence[Budget] | None,
    streaming: bool,
) -> Call:
    """Check the options of a call and bind them to the running attempt.

    Raises:
        ConfigurationError: an option is not known or has no possible value.
        InvalidBudget, InvalidRequest, InvalidTool: as their documentation says.
    """
    _check(options)
    key = options.get("replay_key")
    budget, account = options.get("budget"), options.get("account")
    if isinstance(continuation, Budget):
        raise InvalidBudget(
            "continuation_budgets takes one Budget for each further round, in a list: [Budget(…)] * 3."
        )
    for given in (budget, *(continuation or ())):
        if given is not None and not isinstance(given, Budget):
            raise InvalidBudget(
                f"A call reserves a Budget, for example Budget(total_tokens=4_000); {type(given).__name__} "
                "is none."
            )
    if isinstance(tools, Tool):
        raise InvalidTool("A call takes its tools in a list: tools=[…].")
    if tools is not None and key is None:
        raise ConfigurationError(
            "A call with tools needs replay_key=…, a name that is stable and unique in its activity: "
            "without it a retry could not tell which tools have run."
        )
    toolset = None if tools is None else Toolset(tools)
    if toolset is not None and (budget is None or (len(toolset) and budget.tool_calls is None)):
        raise InvalidBudget(
            "A call with tools needs budget=Budget(…, tool_calls=…), which bounds what may run: without "
            "it the model's first call would be refused after its reply was paid."
        )
    return Call(
        attempt=attempt.record,
        codec=codec,
        request=request,
        accounts=attempt.charged(None if account is None else check_path(account)),
        budgets=(budget, *(continuation or ())),
        toolset=toolset,
        continues=continuation is not None,
        replay_key=None if key is None else check_name("replay_key", key),
        terms=_terms(options, streaming=streaming),
        cause=None if (cause := attempt.cause) == attempt.record.fence.activity_id else cause,
    )


def _terms(options: CallOptions, *, streaming: bool) -> Terms:
    given: dict[str, Any] = {name: options[name] for name in _TERMS if name in options}
    declared = options.get("input_tokens")
    return Terms(
        streaming=streaming,
        input_tokens=None if declared is None else check_amount("input_tokens", declared),
        timeout=_seconds("timeout", options.get("timeout")),
        idle_timeout=_seconds("idle_timeout", options.get("idle_timeout")),
        metadata=_metadata(options.get("metadata")),
        **given,
    )


def _check(options: CallOptions) -> None:
    unknown = sorted(options.keys() - _KNOWN)
    if unknown:
        raise ConfigurationError(
            f"{unknown[0]!r} is not an option of a call. Options are {', '.join(sorted(_KNOWN))}."
        )
    for name, allowed in (("output_cap", ("reserve", "caller")), ("on_unknown", ("retry", "block"))):
        if (value := options.get(name, allowed[0])) not in allowed:
            raise ConfigurationError(f"{name} must be {allowed[0]!r} or {allowed[1]!r}, not {value!r}.")
    for name in ("tool_concurrency", "max_result_bytes"):
        if type(value := options.get(name, 1)) is not int or value < 1:
            raise ConfigurationError(f"{name} must be a whole number of at least 1, not {value!r}.")
    signal = options.get("signal")
    if not (signal is None or isinstance(signal, CancelSignal)):
        raise ConfigurationError(f"signal must be a CancelSignal, not {type(signal).__name__}.")
    if options.get("on_unknown") == "block" and options.get("replay_key") is None:
        raise ConfigurationError(
            "on_unknown='block' needs replay_key=…: without it an earlier request at this place is not found."
        )


def _seconds(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_SECONDS:
        raise ConfigurationError(
            f"{name} must be a number of seconds above 0 and at most {MAX_SECONDS}, or None for no limit."
        )
    return float(value)


def _metadata(given: Mapping[str, Any] | None) -> str | None:
    """Small scalars as JSON. They are stored in the clear, so they are kept small enough to look at."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise InvalidRequest(f"metadata must be a mapping of names to scalars, not {type(given).__name__}.")
    if not given:
        return None
    if len(given) > MAX_METADATA:
        raise InvalidRequest(f"metadata may have {MAX_METADATA} entries, not {len(given)}.")
    for name, value in given.items():
        check_name("a metadata name", name, limit=64)
        scalar = value is None or isinstance(value, (str, int, bool, float))
        if isinstance(value, int) and abs(value) > MAX_AMOUNT:
            raise InvalidRequest(f"metadata[{name!r}] must be a number of at most {MAX_AMOUNT}.")
        if not scalar or (isinstance(value, float) and not math.isfinite(value)):
            raise InvalidRequest(f"metadata[{name!r}] must be text, a finite number, a bool or None.")
        if isinstance(value, str) and (
            len(value) > MAX_METADATA_TEXT or "\0" in value or not _encodes(value)
        ):
            raise InvalidRequest(
                f"metadata[{name!r}] must be text of at most {MAX_METADATA_TEXT} plain characters."
            )
    return json.dumps(dict(given), sort_keys=True)


def _encodes(text: str) -> bool:
    return not any(0xD800 <= ord(c) <= 0xDFFF for c in text)
