"""Tools a model may call: their identity and schema, how arguments are checked, how results are written.

Nothing here runs a tool by itself or touches a ledger; these are the rules around a call.
"""

from __future__ import annotations

from memoflow.tools._arguments import (
    MAX_ARGUMENTS_BYTES,
    BoundArguments,
    Check,
    Problem,
    Refusal,
    digest_source,
)
from memoflow.tools._call import ToolCall
from memoflow.tools._checks import ApprovalMode, EffectClass
from memoflow.tools._claims import (
    RESERVED,
    Claim,
    TakenClaim,
    read_claim,
    take_claim,
    with_claim,
    without_claim,
)
from memoflow.tools._foreign import schema_tool
from memoflow.tools._results import (
    MAX_RESULT_BYTES,
    PROVIDER_MAX_BYTES,
    EncodedResult,
    encode_result,
)
from memoflow.tools._texts import (
    approval_text,
    known_failure_text,
    not_encodable_text,
    refusal_text,
    review_required_text,
    too_large_text,
)
from memoflow.tools._tool import Tool, Toolset, tool

__all__ = [
    "MAX_ARGUMENTS_BYTES",
    "MAX_RESULT_BYTES",
    "PROVIDER_MAX_BYTES",
    "RESERVED",
    "ApprovalMode",
    "BoundArguments",
    "Check",
    "Claim",
    "EffectClass",
    "EncodedResult",
    "Problem",
    "Refusal",
    "TakenClaim",
    "Tool",
    "ToolCall",
    "Toolset",
    "approval_text",
    "digest_source",
    "encode_result",
    "known_failure_text",
    "not_encodable_text",
    "read_claim",
    "refusal_text",
    "review_required_text",
    "schema_tool",
    "take_claim",
    "too_large_text",
    "tool",
    "with_claim",
    "without_claim",
]
