"""One sample or more of every exception that writes its own sentence."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from memoflow.errors import (
    ActivityBusy,
    ActivityMismatch,
    AlreadyDecided,
    ApprovalExpired,
    ApprovalInvalid,
    ApprovalRequired,
    ApproverIsRequester,
    ApproverNotAllowed,
    BudgetDenied,
    BudgetNotConfigured,
    BudgetTooSmall,
    BudgetUnbounded,
    CallCancelled,
    ClientCallRefused,
    DigestKeyMismatch,
    EstimateRefused,
    InvalidProviderReply,
    LeaseLost,
    MemoflowError,
    NotFound,
    OutcomeUnknown,
    PendingApproval,
    PriceUnknown,
    ProviderFailed,
    ProviderNotReached,
    ProviderRejected,
    ReplayMismatch,
    RequestNotAllowed,
    ReservationConflict,
    ResultNotRetained,
    SchemaOutdated,
    ToolCallBudgetExceeded,
    ToolNotAnswered,
    ToolRoundLimit,
    ToolTimedOut,
    ToolVersionMismatch,
    VirtualKeyRefused,
)

__all__ = ["DENIED", "ISO", "MOMENT", "SAMPLES"]

MOMENT = datetime(2026, 12, 1, tzinfo=UTC)
ISO = "2026-12-01T00:00:00+00:00"
DENIED: dict[str, Any] = {
    "account": "acme/support",
    "dimension": "total_tokens",
    "limit": 1000,
    "settled": 400,
    "held": 300,
    "unknown": 200,
    "requested": 150,
}

# Class, its data, and everything its sentence must hold: the figures and the next step.
SAMPLES: list[tuple[type[MemoflowError], dict[str, Any], list[str]]] = [
    (SchemaOutdated, {"found": "0001", "needed": "0002"}, ["0001", "0002", "Run `memoflow db upgrade`"]),
    (SchemaOutdated, {"found": None, "needed": "0002"}, ["revision none", "0002"]),
    (
        SchemaOutdated,
        {"found": "0003", "needed": "0002", "unknown": True},
        ["0003", "does not know", "0002", "Install the version that wrote it"],
    ),
    (
        SchemaOutdated,
        {"found": None, "needed": "0002", "missing": "/data/nope.db"},
        ["the file '/data/nope.db' does not exist", "`memoflow db upgrade`"],
    ),
    (
        NotFound,
        {"what": "invocation", "id": "id-1", "namespace": "acme"},
        ["invocation 'id-1'", "'acme'", "`memoflow invocations list`"],
    ),
    (NotFound, {"what": "effect", "id": "id-1", "namespace": "acme"}, ["`memoflow effects list`"]),
    (
        NotFound,
        {"what": "approval request", "id": "id-1", "namespace": "acme"},
        ["`memoflow approvals list --state any`"],
    ),
    (NotFound, {"what": "run", "id": "w/r", "namespace": "acme"}, ["run 'w/r'", "`memoflow runs list`"]),
    (
        NotFound,
        {"what": "invocation or effect", "id": "id-1", "namespace": "acme"},
        ["`memoflow invocations list` or `memoflow effects list`"],
    ),
    (
        BudgetNotConfigured,
        {"account": "acme/x", "namespace": "prod"},
        ["'acme/x'", "'prod'", "rt.budgets.put('acme/x', Budget(...))", "`memoflow budget put`"],
    ),
    (
        BudgetDenied,
        DENIED,
        [
            "'acme/support' refused 150 total_tokens: limit 1000, settled 400, held 300, unknown 200",
            "so 100 would fit on this account.",
            "`memoflow reconcile list`",
            "Raise the limit or ask for less",
        ],
    ),
    (
        BudgetDenied,
        {**DENIED, "resets_at": MOMENT, "output_cap_fits": 42},
        ["An output cap of 42 would fit, reserving no more than it needs.", f"The period resets at {ISO}."],
    ),
    (
        BudgetDenied,
        {**DENIED, "reason": "closed"},
        ["'acme/support' is closed", "rt.budgets.reopen('acme/support')"],
    ),
    (
        BudgetDenied,
        {**DENIED, "settled": 1400, "reason": "over_limit"},
        ["settled 1400", "so 0 would fit on this account."],
    ),
    (
        BudgetTooSmall,
        {
            "dimension": "total_tokens",
            "reserved": 100,
            "needed": 250,
            "output_cap_fits": 30,
            "basis": "estimate",
        },
        [
            "reservation of 100 total_tokens",
            "needs 250",
            "'estimate'",
            "output cap of 30",
            "reserve at least 250",
        ],
    ),
    (
        BudgetUnbounded,
        {"account": "acme", "dimension": "output_tokens", "hint": "Set an output cap."},
        ["'acme'", "output_tokens", "no upper bound", "Set an output cap."],
    ),
    (EstimateRefused, {"account": "acme"}, ["'acme'", "strict_input=True", "count_input=True"]),
    (PriceUnknown, {"model": "m-1"}, ["'m-1'", "before it was sent", "PriceBook.put(...)", "allow_unpriced"]),
    (PriceUnknown, {"model": "m-1", "account": "acme"}, ["'m-1'", "account 'acme' limits cost"]),
    (
        ToolCallBudgetExceeded,
        {"asked": 5, "reserved": 2, "round": 3},
        [
            "asked for 5 tool calls",
            "round 3",
            "2 were reserved",
            "None of them ran",
            "Reserve more tool_calls",
        ],
    ),
    (
        ReservationConflict,
        {"what": "reservation", "id": "id-1", "state": "SETTLED", "asked": "RELEASED"},
        ["reservation id-1", "already SETTLED", "cannot become RELEASED"],
    ),
    (
        ReservationConflict,
        {"what": "invocation", "id": "id-1", "state": "SETTLED", "asked": "RELEASED"},
        ["a different one is refused.", "`memoflow reconcile show id-1`"],
    ),
    (
        ActivityBusy,
        {"activity": "acme/w/r/a", "attempt": 2, "lease_expires_at": MOMENT},
        ["acme/w/r/a", "attempt 2", ISO, "Try again after that"],
    ),
    (
        ActivityMismatch,
        {"activity": "acme/w/r/a", "component": "input", "recorded": "sha256:1", "given": "sha256:2"},
        ["acme/w/r/a", "input sha256:1", "sha256:2", "Use another activity_id"],
    ),
    (
        DigestKeyMismatch,
        {"activity": "acme/w/r/a", "recorded": None, "given": "d1"},
        ["acme/w/r/a", "plain digests", "under key 'd1'", "Unset MEMOFLOW_DIGEST_KEY", "another run_id"],
    ),
    (
        DigestKeyMismatch,
        {"activity": "acme/w/r/a", "recorded": "d1", "given": None},
        ["digests under key 'd1'", "makes plain digests", "Set MEMOFLOW_DIGEST_KEY to key 'd1'"],
    ),
    (
        LeaseLost,
        {"activity": "acme/w/r/a", "attempt": 1, "current": 2},
        ["Attempt 1", "acme/w/r/a", "attempt 2 has taken over", "Stop working on it"],
    ),
    (LeaseLost, {"activity": "acme/w/r/a", "attempt": 1, "current": None}, ["lost its lease. Stop"]),
    (
        ReplayMismatch,
        {"replay_key": "k", "component": "request", "recorded": "sha256:1", "given": "sha256:2"},
        ["'k'", "another request", "sha256:1", "sha256:2", "No budget was taken", "Use a new replay_key"],
    ),
    (
        ReplayMismatch,
        {"replay_key": "k", "component": "executors", "recorded": "sha256:1", "given": "sha256:2"},
        ["'k' was recorded with other tools", "sha256:1", "names and versions", "`memoflow effects list`"],
    ),
    (
        ResultNotRetained,
        {"what": "reply", "digest": "sha256:1", "reason": "it was purged"},
        [
            "RESULT_NOT_RETAINED",
            "the reply",
            "sha256:1",
            "it was purged",
            "not run again",
            "use a new run_id",
        ],
    ),
    (VirtualKeyRefused, {"reason": "missing"}, ["no virtual key", "Authorization: Bearer", "x-api-key"]),
    (VirtualKeyRefused, {"reason": "unknown"}, ["not known", "copied whole"]),
    (VirtualKeyRefused, {"reason": "revoked", "id": "key-7"}, ["key-7", "revoked", "keys create"]),
    (VirtualKeyRefused, {"reason": "expired", "id": "key-7"}, ["key-7", "expired", "keys create"]),
    (
        RequestNotAllowed,
        {"what": "model", "name": "gpt-9", "allowed": ("gpt-5*", "claude-*")},
        ["model 'gpt-9'", "gpt-5*, claude-*", "use a key that is for it"],
    ),
    (ResultNotRetained, {"what": "reply", "digest": None, "reason": "it was purged"}, ["digest unknown"]),
    (
        OutcomeUnknown,
        {"kind": "invocation", "id": "id-1", "reason": "READ_TIMEOUT"},
        ["invocation id-1", "READ_TIMEOUT", "stays held", "`memoflow reconcile show id-1`", "`release`"],
    ),
    (
        OutcomeUnknown,
        {"kind": "effect", "id": "id-2", "reason": "ATTEMPT_LOST"},
        [
            "effect id-2",
            "ATTEMPT_LOST",
            "not run again until somebody decides",
            "`memoflow reconcile happened`",
            "`did-not-happen`",
        ],
    ),
    (
        CallCancelled,
        {"invocation_id": "id-1", "dispatched": True},
        ["after it was sent", "id-1", "OUTCOME_UNKNOWN", "until it is reconciled"],
    ),
    (
        CallCancelled,
        {"invocation_id": None, "dispatched": False},
        ["before its next request was sent", "no budget was used for that one", "a retry"],
    ),
    (
        ProviderNotReached,
        {"invocation_id": "id-1", "cause": "ConnectTimeout"},
        ["ConnectTimeout", "nothing was sent", "id-1 was released", "try again"],
    ),
    (
        ProviderRejected,
        {"invocation_id": "id-1", "status": 429, "code": "slow_down", "retry_after": 1.5, "retryable": True},
        ["id-1", "status 429 (slow_down)", "no tokens were used", "wait 1.5 s", "may be tried again"],
    ),
    (
        ProviderRejected,
        {"invocation_id": "id-1", "status": 400, "code": None, "retry_after": None, "retryable": False},
        ["status 400; no tokens", "will not help"],
    ),
    *[
        (
            ProviderRejected,
            {"invocation_id": "id-1", "status": code, "code": None, "retry_after": None, "retryable": False},
            [advice],
        )
        for code, advice in (
            (401, "Check the API key and what it may do, then run the same call again"),
            (403, "Check the API key"),
            (404, "Check the model name"),
        )
    ],
    (
        ProviderFailed,
        {"invocation_id": "id-1", "status": "failed", "code": "server_error", "retryable": True},
        ["id-1 as failed (server_error)", "further attempt may succeed"],
    ),
    (
        ProviderFailed,
        {"invocation_id": "id-1", "status": "cancelled", "code": None, "retryable": False},
        ["id-1 as cancelled.", "Change the request"],
    ),
    (
        ProviderRejected,
        {
            "invocation_id": "id-1",
            "status": 400,
            "code": "invalid_value",
            "retry_after": None,
            "retryable": False,
            "type": "invalid_request_error",
            "param": "input[0].content",
        },
        ["status 400 (invalid_value, parameter input[0].content)"],
    ),
    (
        ClientCallRefused,
        {"invocation_id": "id-1", "items": ("computer_call",)},
        ["id-1", "(computer_call)", "memoflow does not do that", "none of its tool calls ran", "run()"],
    ),
    (
        InvalidProviderReply,
        {"invocation_id": "id-1", "problem": "two calls share an id"},
        ["id-1", "two calls share an id", "none of its tool calls ran", "Report it"],
    ),
    (
        ToolVersionMismatch,
        {"tool": "pay", "recorded": "v1", "registered": "v2"},
        ["'pay'", "'v1' and is unfinished", "'v2' is registered now", "Register 'v1'"],
    ),
    (
        ApprovalRequired,
        {"requests": (PendingApproval("id-1", "pay", "v1", "sha256:82", MOMENT),)},
        [
            *("A tool call waits", "pay v1", "id-1", "sha256:82", ISO, "`memoflow approvals show ID`"),
            *("`memoflow approvals approve ID`", "run the activity again", "costs nothing"),
        ],
    ),
    (
        ApprovalRequired,
        {"requests": tuple(PendingApproval(f"id-{n}", "pay", "v1", "sha256:82", MOMENT) for n in (1, 2))},
        ["Tool calls (2) wait", "id-1", "id-2"],
    ),
    (
        AlreadyDecided,
        {"id": "id-1", "state": "approved", "approver": "ann", "asked": "denied"},
        ["id-1", "already approved by 'ann'", "cannot be denied", "`memoflow approvals show id-1`"],
    ),
    (
        AlreadyDecided,
        {"id": "id-1", "state": "withdrawn", "approver": None, "asked": "approved"},
        ["id-1", "already withdrawn;"],
    ),
    (
        ApprovalExpired,
        {"id": "id-1", "expires_at": MOMENT, "now": MOMENT},
        ["id-1", ISO, "cannot be decided any more", "new run_id"],
    ),
    (
        ApproverIsRequester,
        {"id": "id-1", "requester": "agent:answer"},
        ["id-1", "'agent:answer'", "Somebody else"],
    ),
    (
        ApproverNotAllowed,
        {"id": "id-1", "approver": "eve"},
        ["id-1", "'eve'", "Nothing was recorded", "has to decide"],
    ),
    (
        ApprovalInvalid,
        {"id": "id-1", "component": "arguments_digest"},
        ["id-1", "(arguments_digest differs)", "Nothing was run", "`memoflow verify`"],
    ),
    (ToolRoundLimit, {"rounds": 4}, ["after 4 rounds", "none of its calls ran", "continuation_budgets"]),
    (
        ToolTimedOut,
        {"tool": "pay", "effect_id": "id-1", "seconds": 2.5},
        ["'pay'", "2.5 s", "`memoflow reconcile show id-1`", "longer timeout"],
    ),
    (
        ToolNotAnswered,
        {"tool": "pay", "problem": "its session answered with an error", "code": -32001},
        ["'pay'", "its session answered", "(JSON-RPC error -32001)", "`memoflow effects list`"],
    ),
]
