"""The life of an activity, and what is restored in it."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from memoflow.errors._base import ConfigurationError, MemoflowError

__all__ = [
    "ActivityBusy",
    "ActivityError",
    "ActivityMismatch",
    "CallCancelled",
    "DigestKeyMismatch",
    "LeaseLost",
    "OutcomeUnknown",
    "ReplayMismatch",
    "ResultNotRetained",
]


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
        keyed = component == "input" and given.startswith("hmac-")
        key = " (Or is MEMOFLOW_DIGEST_KEY another key of the same id?)" if keyed else ""
        super().__init__(
            f"Activity {activity} was recorded with {component} {recorded} and is now called with {given}. "
            f"Use another activity_id for other work, or another run_id for a new run.{key}"
        )


class DigestKeyMismatch(ConfigurationError):
    """What is recorded was digested under another key than the runtime's, so it cannot be recognised.

    Attributes:
        recorded: the id of the key then, or None for plain digests.
        given: the id of the key now, or None.
    """

    def __init__(self, *, activity: str, recorded: str | None, given: str | None) -> None:
        self.activity, self.recorded, self.given = activity, recorded, given
        then, now = (
            "plain digests" if key is None else f"digests under key {key!r}" for key in (recorded, given)
        )
        back = "Unset MEMOFLOW_DIGEST_KEY"
        if recorded is not None:
            back = f"Set MEMOFLOW_DIGEST_KEY to key {recorded!r}"
        super().__init__(
            f"Activity {activity} was recorded with {then} and this runtime makes {now}, so nobody can tell "
            f"whether its input is the same. {back} to go on with it, or use another run_id for a new run."
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


# Of the tools of a call only a digest is recorded, so they cannot be named here.
_TOOLS: Final = (
    "Compare the names and versions of its tools with the code that ran first (`memoflow effects list` shows "
    "those that ran). "
)


class ReplayMismatch(MemoflowError):
    """Another request was made under a replay key that is already bound."""

    def __init__(self, *, replay_key: str, component: str, recorded: str, given: str) -> None:
        self.replay_key, self.component, self.recorded, self.given = replay_key, component, recorded, given
        bound, compare = f"is bound to another {component}", ""
        if component == "executors":
            bound, compare = "was recorded with other tools than the call has now", _TOOLS
        super().__init__(
            f"Replay key {replay_key!r} {bound} (recorded {recorded}, given {given}). {compare}No budget was "
            "taken. Use a new replay_key, or a new run_id, for a changed call."
        )


class ResultNotRetained(MemoflowError):
    """The result exists in the ledger, but its protected copy was purged or its key is gone.

    ``key_id`` is the key that is missing, if that is the reason.
    """

    code = "RESULT_NOT_RETAINED"

    def __init__(self, *, what: str, digest: str | None, reason: str, key_id: str | None = None) -> None:
        self.what, self.digest, self.reason, self.key_id = what, digest, reason, key_id
        advice = "use a new run_id for new work."
        if key_id is not None:
            advice = f"add key {key_id!r} to MEMOFLOW_OUTPUT_KEYS, after the current one, and try again."
        super().__init__(
            f"RESULT_NOT_RETAINED: the {what} was recorded (digest {digest or 'unknown'}), but its protected "
            f"copy cannot be read: {reason}. It is not run again; {advice}"
        )

    def with_digest(self, digest: str | None) -> ResultNotRetained:
        """The same about what is recorded under a digest."""
        return ResultNotRetained(what=self.what, digest=digest, reason=self.reason, key_id=self.key_id)


class OutcomeUnknown(MemoflowError):
    """Something was sent or started and it cannot be proven what happened.

    Attributes:
        kind: ``invocation`` or ``effect``.
        id: its id in the ledger.
        reason: a code, for example ``READ_TIMEOUT`` or ``ATTEMPT_LOST``.
    """

    def __init__(self, *, kind: str, id: str, reason: str) -> None:
        self.kind, self.id, self.reason = kind, id, reason
        held, yes, no = " Its budget stays held.", "settle", "release"
        if kind == "effect":
            held, yes, no = " It is not run again until somebody decides.", "happened", "did-not-happen"
        super().__init__(
            f"The outcome of {kind} {id} is unknown ({reason}); it may have happened.{held} "
            f"Look with `memoflow reconcile show {id}`, then decide with "
            f"`memoflow reconcile {yes}` or `{no}`."
        )


class CallCancelled(MemoflowError):
    """The caller's cancel signal ended the call. What the ledger says about it is in ``invocation_id``."""

    def __init__(self, *, invocation_id: str | None, dispatched: bool) -> None:
        self.invocation_id, self.dispatched = invocation_id, dispatched
        super().__init__(
            f"The call was cancelled after it was sent; invocation {invocation_id} is OUTCOME_UNKNOWN and "
            "its budget stays held until it is reconciled."
            if dispatched
            else "The call was cancelled before its next request was sent; no budget was used for that one. "
            "What earlier rounds used stays charged and recorded: a retry under the same replay_key goes on "
            "from there."
        )
