"""Every exception memoflow raises.

::

    MemoflowError
    ├── ConfigurationError
    │   ├── DigestKeyMismatch
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
    │   ├── EstimateRefused
    │   ├── PriceUnknown
    │   └── ToolCallBudgetExceeded
    ├── ReservationConflict
    ├── ActivityError
    │   ├── ActivityBusy
    │   ├── ActivityMismatch
    │   └── LeaseLost
    ├── ApprovalError
    │   ├── AlreadyDecided
    │   ├── ApprovalExpired
    │   ├── ApprovalInvalid
    │   ├── ApprovalRequired
    │   ├── ApproverIsRequester
    │   └── ApproverNotAllowed
    ├── GatewayError
    │   ├── RequestNotAllowed
    │   └── VirtualKeyRefused
    ├── ReplayMismatch
    ├── ResultNotRetained
    ├── OutcomeUnknown
    ├── CallCancelled
    ├── ProviderError
    │   ├── ProviderNotReached
    │   ├── ProviderRejected
    │   ├── ProviderFailed
    │   ├── InvalidProviderReply
    │   └── ClientCallRefused
    └── ToolError
        ├── InvalidTool
        ├── ToolVersionMismatch
        ├── ToolRoundLimit
        ├── ToolTimedOut
        ├── ToolKnownFailure
        ├── ToolNotStarted
        ├── ToolNotAnswered
        └── ResultNotEncodable

What cannot be read has errors of its own, defined beside the readers: `canonical.StrictJSONError`,
`causal.record.RecordRefused`, `keyring.KeyNotFound`, `keyring.SealBroken` and
`providers.base.UnreadableReply`.

Messages are sentences: what was refused, the figures, the next step. They never hold
payload text. The figures are attributes too, and every exception survives pickling.
"""

from __future__ import annotations

from memoflow.errors._activity import (
    ActivityBusy,
    ActivityError,
    ActivityMismatch,
    CallCancelled,
    DigestKeyMismatch,
    LeaseLost,
    OutcomeUnknown,
    ReplayMismatch,
    ResultNotRetained,
)
from memoflow.errors._approval import (
    AlreadyDecided,
    ApprovalError,
    ApprovalExpired,
    ApprovalInvalid,
    ApprovalRequired,
    ApproverIsRequester,
    ApproverNotAllowed,
)
from memoflow.errors._approval import PendingApproval as PendingApproval
from memoflow.errors._base import (
    ConfigurationError,
    InvalidRequest,
    LedgerUnavailable,
    MemoflowError,
    NoActivityContext,
    NotFound,
    ReservationConflict,
    SchemaOutdated,
)
from memoflow.errors._budget import (
    BudgetDenied,
    BudgetError,
    BudgetNotConfigured,
    BudgetTooSmall,
    BudgetUnbounded,
    EstimateRefused,
    InvalidBudget,
    PriceUnknown,
    ToolCallBudgetExceeded,
)
from memoflow.errors._gateway import GatewayError, RequestNotAllowed, VirtualKeyRefused
from memoflow.errors._provider import (
    ClientCallRefused,
    InvalidProviderReply,
    ProviderError,
    ProviderFailed,
    ProviderNotReached,
    ProviderRejected,
)
from memoflow.errors._tools import (
    InvalidTool,
    ResultNotEncodable,
    ToolError,
    ToolKnownFailure,
    ToolNotAnswered,
    ToolNotStarted,
    ToolRoundLimit,
    ToolTimedOut,
    ToolVersionMismatch,
)

__all__ = [
    "ActivityBusy",
    "ActivityError",
    "ActivityMismatch",
    "AlreadyDecided",
    "ApprovalError",
    "ApprovalExpired",
    "ApprovalInvalid",
    "ApprovalRequired",
    "ApproverIsRequester",
    "ApproverNotAllowed",
    "BudgetDenied",
    "BudgetError",
    "BudgetNotConfigured",
    "BudgetTooSmall",
    "BudgetUnbounded",
    "CallCancelled",
    "ClientCallRefused",
    "ConfigurationError",
    "DigestKeyMismatch",
    "EstimateRefused",
    "GatewayError",
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
    "RequestNotAllowed",
    "ReservationConflict",
    "ResultNotEncodable",
    "ResultNotRetained",
    "SchemaOutdated",
    "ToolCallBudgetExceeded",
    "ToolError",
    "ToolKnownFailure",
    "ToolNotAnswered",
    "ToolNotStarted",
    "ToolRoundLimit",
    "ToolTimedOut",
    "ToolVersionMismatch",
    "VirtualKeyRefused",
]

for _name in __all__:
    # Tracebacks and pickles name the public module, so that the files behind it may move.
    globals()[_name].__module__ = __name__
