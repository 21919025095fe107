"""Every exception memoflow raises.

::

    MemoflowError
    ├── ConfigurationError
    │   └── SchemaOutdated
    ├── LedgerUnavailable
    ├── NoActivityContext
    ├── InvalidRequest
    ├── NotFound
    ├── BudgetError
    │   ├── InvalidBudget
    │   ├── BudgetNotConfigured
    │   ├── BudgetDenied
    │   ├── BudgetTooSmall
    │   ├── BudgetUnbounded
    │   ├── PriceUnknown
    │   └── ToolCallBudgetExceeded
    ├── ReservationConflict
    ├── ActivityError
    │   ├── ActivityBusy
    │   ├── ActivityMismatch
    │   └── LeaseLost
    ├── ReplayMismatch
    ├── ResultNotRetained
    ├── OutcomeUnknown
    ├── CallCancelled
    ├── ProviderError
    │   ├── ProviderNotReached
    │   ├── ProviderRejected
    │   ├── ProviderFailed
    │   └── InvalidProviderReply
    └── ToolError
        ├── InvalidTool
        ├── ToolVersionMismatch
        ├── ToolRoundLimit
        ├── ToolTimedOut
        ├── ToolKnownFailure
        └── ResultNotEncodable

What cannot be read has errors of its own, defined beside the readers: `canonical.StrictJSONError`,
`keyring.KeyNotFound`, `keyring.SealBroken` and `providers.base.UnreadableReply`.

Messages are sentences: what was refused, the figures, the next step. They never hold
payload text. The figures are attributes too, and every exception survives pickling.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

__all__ = [
    "ActivityBusy",
    "ActivityError",
    "ActivityMismatch",
    "BudgetDenied",
    "BudgetError",
    "BudgetNotConfigured",
    "BudgetTooSmall",
    "BudgetUnbounded",
    "CallCancelled",
    "ConfigurationError",
    "InvalidBudget",
    "InvalidProviderReply",
    "InvalidRequest",
    "InvalidTool",
    "LeaseLost",
    "LedgerUnavailable",
    "MemoflowError",
    "NoActivityContext",
    "NotFound",
    "OutcomeUnknown",
    "PriceUnknown",
    "ProviderError",
    "ProviderFailed",
    "ProviderNotReached",
    "ProviderRejected",
    "ReplayMismatch",
    "ReservationConflict",
    "ResultNotEncodable",
    "ResultNotRetained",
    "SchemaOutdated",
    "ToolCallBudgetExceeded",
    "ToolError",
    "ToolKnownFailure",
    "ToolRoundLimit",
    "ToolTimedOut",
    "ToolVersionMismatch",
]


def _rebuild(cls: type[MemoflowError], args: tuple[Any, ...], data: dict[str, Any]) -> Any:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(data)
    return error


class MemoflowError(Exception):
    """Base of all memoflow exceptions.

    Attributes:
        retryable: whether trying the same thing again is known to be safe: nothing was
            left open and nothing is done or paid twice by a further attempt.
    """

    retryable: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call __init__ with the message, which keyword-only
        # constructors cannot take.
        return _rebuild, (type(self), self.args, self.__dict__)


class ConfigurationError(MemoflowError):
    """The runtime, a database or a key is set up in a way that cannot work."""


class SchemaOutdated(ConfigurationError):
    """The database schema is not the one this version needs."""

    def __init__(self, *, found: str | None, needed: str) -> None:
        self.found, self.needed = found, needed
        super().__init__(
            f"The ledger schema is at revision {found or 'none'}, this version of memoflow needs "
            f"{needed}. Run `memoflow db upgrade` with a role that may change the schema."
        )


class LedgerUnavailable(MemoflowError):
    """The ledger could not be reached or written in time; nothing was dispatched because of it."""

    retryable = True


class NoActivityContext(MemoflowError):
    """An adapter was called outside an activity."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was called outside an activity, so there is no identity to record it under. "
            "Put the call into a function decorated with @rt.activity(...) and start it with .run(...)."
        )


class InvalidRequest(MemoflowError):
    """A request cannot be encoded, measured or sent as it is; nothing was reserved or sent."""


class NotFound(MemoflowError):
    """The ledger has no such row in this namespace.

    Attributes:
        what: for example ``invocation``, ``effect`` or ``activity``.
    """

    def __init__(self, *, what: str, id: str, namespace: str) -> None:
        self.what, self.id, self.namespace = what, id, namespace
        super().__init__(
            f"There is no {what} {id!r} in namespace {namespace!r}. Check the id and the namespace; "
            f"`memoflow reconcile list` and `memoflow invocations list` show what there is."
        )


class BudgetError(MemoflowError):
    """Base of refusals that concern a budget."""


class InvalidBudget(BudgetError):
    """An amount, limit, period or account name is not valid."""


class BudgetNotConfigured(BudgetError):
    """No such account (or an ancestor of it) exists. A missing account is a refusal, never "unlimited"."""

    def __init__(self, *, account: str, namespace: str) -> None:
        self.account, self.namespace = account, namespace
        super().__init__(
            f"Budget account {account!r} does not exist in namespace {namespace!r}, so nothing may be spent "
            f"on it. Create it with rt.budgets.put({account!r}, Budget(...)) or `memoflow budget put`."
        )


class BudgetDenied(BudgetError):
    """A reservation does not fit on an account.

    Attributes:
        account: the account that refused.
        dimension: the dimension that did not fit, for example ``total_tokens``.
        limit: the hard limit; settled, held, unknown, requested: the figures it was compared with.
        fits: the largest amount of this dimension that would be admitted now.
        output_cap_fits: the largest output cap that would fit, when it can be told.
        resets_at: when the period of the balance ends (UTC), or None if it never does.
        reason: ``limit``, ``closed`` or ``over_limit``.
    """

    def __init__(
        self,
        *,
        account: str,
        dimension: str,
        limit: int,
        settled: int,
        held: int,
        unknown: int,
        requested: int,
        resets_at: datetime | None = None,
        output_cap_fits: int | None = None,
        reason: str = "limit",
    ) -> None:
        self.account, self.dimension, self.reason = account, dimension, reason
        self.limit, self.settled, self.held, self.unknown = limit, settled, held, unknown
        self.requested, self.resets_at, self.output_cap_fits = requested, resets_at, output_cap_fits
        self.fits = max(0, limit - settled - held - unknown)
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        if self.reason == "closed":
            return (
                f"Budget account {self.account!r} is closed and takes no new reservations. Open it with "
                f"rt.budgets.reopen({self.account!r}), or reserve on another account."
            )
        cap = "" if self.output_cap_fits is None else f" An output cap of {self.output_cap_fits} would fit."
        reset = "" if self.resets_at is None else f" The period resets at {self.resets_at.isoformat()}."
        unknown = " Resolve unknowns with `memoflow reconcile list`." if self.unknown else ""
        return (
            f"Budget account {self.account!r} refused {self.requested} {self.dimension}: limit {self.limit}, "
            f"settled {self.settled}, held {self.held}, unknown {self.unknown}, so {self.fits} would fit."
            f"{cap}{reset}{unknown} Raise the limit or ask for less."
        )


class BudgetTooSmall(BudgetError):
    """The request's own output cap, or its input alone, does not fit the reservation."""

    def __init__(
        self, *, dimension: str, reserved: int, needed: int, output_cap_fits: int, basis: str
    ) -> None:
        self.dimension, self.reserved, self.needed = dimension, reserved, needed
        self.output_cap_fits, self.basis = output_cap_fits, basis
        super().__init__(
            f"The reservation of {reserved} {dimension} is too small: the call needs {needed} "
            f"(input measured as {basis!r}). An output cap of {output_cap_fits} would fit; "
            f"lower the cap or reserve at least {needed}."
        )


class BudgetUnbounded(BudgetError):
    """An account limits a dimension in which this call has no upper bound."""

    def __init__(self, *, account: str, dimension: str, hint: str) -> None:
        self.account, self.dimension, self.hint = account, dimension, hint
        super().__init__(
            f"Budget account {account!r} limits {dimension}, but this call has no upper bound in it. {hint}"
        )


class PriceUnknown(BudgetError):
    """An account has a money limit and the model has no price."""

    def __init__(self, *, model: str, account: str | None = None) -> None:
        self.model, self.account = model, account
        where = "" if account is None else f" and account {account!r} limits cost"
        super().__init__(
            f"No price is known for model {model!r}{where}, so the call was refused before it was sent. "
            "Add one with PriceBook.put(...), or allow it with an audited override: "
            "rt.budgets.allow_unpriced(model, actor=..., reason=...)."
        )


class ToolCallBudgetExceeded(BudgetError):
    """One reply asked for more tool calls than its round reserved; none of them ran."""

    def __init__(self, *, asked: int, reserved: int, round: int) -> None:
        self.asked, self.reserved, self.round = asked, reserved, round
        super().__init__(
            f"The model asked for {asked} tool calls in round {round}, but {reserved} were reserved. "
            "None of them ran and the reply was settled. Reserve more tool_calls for that round."
        )


class ReservationConflict(MemoflowError):
    """A reservation or decision was already resolved in another way."""

    def __init__(self, *, what: str, id: str, state: str, asked: str) -> None:
        self.what, self.id, self.state, self.asked = what, id, state, asked
        super().__init__(
            f"The {what} {id} is already {state}; it cannot become {asked}. "
            "Repeating the same resolution is harmless, a different one is refused."
        )


class ActivityError(MemoflowError):
    """Base of errors about the life of an activity."""


class ActivityBusy(ActivityError):
    """Another attempt of the activity is running."""

    def __init__(self, *, activity: str, attempt: int, lease_expires_at: datetime) -> None:
        self.activity, self.attempt, self.lease_expires_at = activity, attempt, lease_expires_at
        super().__init__(
            f"Activity {activity} is running as attempt {attempt}; its lease ends at "
            f"{lease_expires_at.isoformat()}. Try again after that, or wait for its result."
        )


class ActivityMismatch(ActivityError):
    """The same activity identity was called with another input, type or version."""

    def __init__(self, *, activity: str, component: str, recorded: str, given: str) -> None:
        self.activity, self.component, self.recorded, self.given = activity, component, recorded, given
        super().__init__(
            f"Activity {activity} was recorded with {component} {recorded} and is now called with {given}. "
            "Use another activity_id for other work, or another run_id for a new run."
        )


class LeaseLost(ActivityError):
    """This attempt no longer owns its activity; what it wanted to write was refused and kept as evidence."""

    def __init__(self, *, activity: str, attempt: int, current: int | None = None) -> None:
        self.activity, self.attempt, self.current = activity, attempt, current
        now = "" if current is None else f"; attempt {current} has taken over"
        super().__init__(
            f"Attempt {attempt} of activity {activity} lost its lease{now}. Stop working on it: "
            "nothing it writes is accepted any more."
        )


class ReplayMismatch(MemoflowError):
    """Another request was made under a replay key that is already bound."""

    def __init__(self, *, replay_key: str, component: str, recorded: str, given: str) -> None:
        self.replay_key, self.component, self.recorded, self.given = replay_key, component, recorded, given
        super().__init__(
            f"Replay key {replay_key!r} is bound to another {component} (recorded {recorded}, given "
            f"{given}). No budget was taken. Use a new replay_key, or a new run_id, for a changed call."
        )


class ResultNotRetained(MemoflowError):
    """The result exists in the ledger, but its protected copy was purged or its key is gone."""

    code = "RESULT_NOT_RETAINED"

    def __init__(self, *, what: str, digest: str | None, reason: str) -> None:
        self.what, self.digest, self.reason = what, digest, reason
        super().__init__(
            f"RESULT_NOT_RETAINED: the {what} was recorded (digest {digest or 'unknown'}), but its protected "
            f"copy cannot be read: {reason}. It is not run again; use a new run_id for new work."
        )


class OutcomeUnknown(MemoflowError):
    """Something was sent or started and it cannot be proven what happened; its budget stays held.

    Attributes:
        kind: ``invocation`` or ``effect``.
        id: its id in the ledger.
        reason: a code, for example ``READ_TIMEOUT`` or ``ATTEMPT_LOST``.
    """

    def __init__(self, *, kind: str, id: str, reason: str) -> None:
        self.kind, self.id, self.reason = kind, id, reason
        super().__init__(
            f"The outcome of {kind} {id} is unknown ({reason}); it may have happened. Its budget stays held. "
            f"Look with `memoflow reconcile show {id}`, then decide with `memoflow reconcile settle` or "
            "`release`."
        )


class CallCancelled(MemoflowError):
    """The caller's cancel signal ended the call. What the ledger says about it is in ``invocation_id``."""

    def __init__(self, *, invocation_id: str | None, dispatched: bool) -> None:
        self.invocation_id, self.dispatched = invocation_id, dispatched
        super().__init__(
            f"The call was cancelled after it was sent; invocation {invocation_id} is OUTCOME_UNKNOWN and "
            "its budget stays held until it is reconciled."
            if dispatched
            else "The call was cancelled before it was sent; no budget was used."
        )


class ProviderError(MemoflowError):
    """Base of what a provider said or did. The ledger holds the outcome under ``invocation_id``."""


class ProviderNotReached(ProviderError):
    """No connection could be made, so nothing was sent and the hold was released."""

    retryable = True

    def __init__(self, *, invocation_id: str, cause: str) -> None:
        self.invocation_id, self.cause = invocation_id, cause
        super().__init__(
            f"The provider could not be reached ({cause}); nothing was sent, and the budget of invocation "
            f"{invocation_id} was released. Check the address and the network, then try again."
        )


class ProviderRejected(ProviderError):
    """The provider refused the request with a definite status; it counts as one model call and no tokens.

    Attributes:
        status: HTTP status.
        code: the provider's structured error code, or None.
        retry_after: seconds the provider asked to wait, or None.
    """

    def __init__(
        self, *, invocation_id: str, status: int, code: str | None, retry_after: float | None, retryable: bool
    ) -> None:
        self.invocation_id, self.status, self.code = invocation_id, status, code
        self.retry_after, self.retryable = retry_after, retryable
        wait = "" if retry_after is None else f" It asks to wait {retry_after:g} s."
        super().__init__(
            f"The provider refused invocation {invocation_id} with status {status}"
            f"{'' if code is None else f' ({code})'}; no tokens were used.{wait} "
            f"{'It may be tried again.' if retryable else 'Trying the same request again will not help.'}"
        )


class ProviderFailed(ProviderError):
    """The provider's terminal reply says that the response failed or was cancelled; its usage was settled."""

    def __init__(self, *, invocation_id: str, status: str, code: str | None, retryable: bool) -> None:
        self.invocation_id, self.status, self.code, self.retryable = invocation_id, status, code, retryable
        detail = "" if code is None else f" ({code})"
        super().__init__(
            f"The provider ended invocation {invocation_id} as {status}{detail}. "
            f"{'A further attempt may succeed.' if retryable else 'Change the request before trying again.'}"
        )


class InvalidProviderReply(ProviderError):
    """A terminal reply contradicts itself; it was settled, and none of its tool calls ran."""

    def __init__(self, *, invocation_id: str, problem: str) -> None:
        self.invocation_id, self.problem = invocation_id, problem
        super().__init__(
            f"The reply of invocation {invocation_id} is not usable: {problem}. It was settled and recorded; "
            "none of its tool calls ran. Report it to the provider."
        )


class ToolError(MemoflowError):
    """Base of errors about tools."""


class InvalidTool(ToolError):
    """A tool cannot be registered or offered as it is."""


class ToolVersionMismatch(ToolError):
    """An unfinished recorded call names another version of the tool than the one registered now."""

    def __init__(self, *, tool: str, recorded: str, registered: str) -> None:
        self.tool, self.recorded, self.registered = tool, recorded, registered
        super().__init__(
            f"A call of tool {tool!r} was recorded under version {recorded!r} and is unfinished; version "
            f"{registered!r} is registered now and will not run it. Register {recorded!r} to finish it."
        )


class ToolRoundLimit(ToolError):
    """The model still asks for tools, and every admitted round was used."""

    def __init__(self, *, rounds: int) -> None:
        self.rounds = rounds
        super().__init__(
            f"The model still asks for tools after {rounds} rounds, which is all that were admitted. The "
            "last reply was settled and none of its calls ran. Pass more continuation_budgets (at most 32 "
            "rounds)."
        )


class ToolTimedOut(ToolError):
    """A tool took longer than its timeout. It may still be running; its effect is recorded accordingly."""

    def __init__(self, *, tool: str, effect_id: str, seconds: float) -> None:
        self.tool, self.effect_id, self.seconds = tool, effect_id, seconds
        super().__init__(
            f"Tool {tool!r} did not return within {seconds:g} s; what it did is not known. "
            f"Look with `memoflow reconcile show {effect_id}`, or give the tool a longer timeout."
        )


class ToolKnownFailure(ToolError):
    """Raise this from a tool when it failed and nothing happened outside.

    The text is given to the model as the call's output, so that it can react.
    """


class ResultNotEncodable(ToolError):
    """A value cannot be written as exact JSON, or is too large."""
