"""Evidence of a run: the one form in which it is written, and in which nothing else can be.

Every field is a number, a truth value, a word of a closed list, or text of a form that holds an id of
memoflow's, a digest, a version or the name of a model, and nothing more. The schema that is published beside
this module is made from these classes.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from memoflow import budget
from memoflow.canonical import sha256_hex

__all__ = [
    "FORMAT",
    "MODEL",
    "Amounts",
    "Balance",
    "Call",
    "Case",
    "Changes",
    "Database",
    "Effect",
    "Entry",
    "Evidence",
    "Limits",
    "Source",
    "Usage",
    "Versions",
    "Wire",
    "digest_of",
    "hashed",
    "render",
    "schema",
    "seal",
]

FORMAT: Final = "memoflow-live-1"
MODEL: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$"
"""What the name of a model looks like."""

_MOST: Final = budget.MAX_AMOUNT
_MOST_TOKENS: Final = 1_000_000
_VERSION: Final = r"^[0-9]{1,9}(\.[0-9]{1,9}){0,3}((a|b|rc)[0-9]{1,3})?(\.post[0-9]{1,3})?(\.dev[0-9]{1,9})?$"
_UUID: Final = r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"

Amount = Annotated[int, Field(ge=0, le=_MOST)]
Change = Annotated[int, Field(ge=-_MOST, le=_MOST)]
Tokens = Annotated[int, Field(ge=0, le=_MOST_TOKENS)]
Positive = Annotated[int, Field(ge=1, le=_MOST)]
Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", max_length=64)]
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$", max_length=71)]
ObjectName = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$", max_length=64)]
Uuid = Annotated[str, StringConstraints(pattern=_UUID, max_length=36)]
Version = Annotated[str, StringConstraints(pattern=_VERSION, max_length=40)]
Model = Annotated[str, StringConstraints(pattern=MODEL, max_length=128)]
BoundaryName = Literal["response", "stream", "tools", "cancellation"]


class _Closed(BaseModel):
    """No field beside the named ones, no value of another type, no change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _PerDimension(_Closed):
    def plain(self) -> budget.Amounts:
        """The same, to reckon with."""
        return budget.Amounts(**self.model_dump())


class Amounts(_PerDimension):
    """One figure for each dimension of a budget; cost in nano-units."""

    total_tokens: Amount
    input_tokens: Amount
    output_tokens: Amount
    model_calls: Amount
    tool_calls: Amount
    cost: Amount
    wall_clock_ms: Amount


class Changes(_PerDimension):
    """Signed differences of each dimension."""

    total_tokens: Change
    input_tokens: Change
    output_tokens: Change
    model_calls: Change
    tool_calls: Change
    cost: Change
    wall_clock_ms: Change


class Entry(_Closed):
    """A row of a balance's journal: everything that its hash covers.

    Attributes:
        at: UTC microseconds.
        policy_version: of the limits that admitted a reservation; 0 for what comes after it.
    """

    seq: Positive
    at: Annotated[int, Field(ge=0, le=2**62)]
    event: Literal["reserve", "settle", "release", "unknown"]
    reservation: Uuid
    policy_version: Amount
    settled: Changes
    held: Changes
    unknown: Changes


class Limits(_Closed):
    """The hard limits of an account."""

    total_tokens: Positive
    model_calls: Positive


class Balance(_Closed):
    """An account after the run, with its whole journal and the head of the journal's hash chain."""

    account: Literal["live", "live/response", "live/stream", "live/tools", "live/cancellation"]
    id: Positive
    limits: Limits
    settled: Amounts
    held: Amounts
    unknown: Amounts
    head: Hex
    journal: Annotated[tuple[Entry, ...], Field(max_length=40)]


class Usage(_Closed):
    """Tokens of one reply: cached and newly cached ones are part of the input, reasoning of the output."""

    input_tokens: Tokens
    cached_input_tokens: Tokens
    cache_write_tokens: Tokens
    output_tokens: Tokens
    reasoning_tokens: Tokens


class Wire(_Closed):
    """What a witness between the SDK and the network saw of one request.

    Attributes:
        host: where it went; anything that is not exactly a provider's own host is ``elsewhere``.
        retry_count: what the SDK told the provider about repetitions of its own; null if it told nothing.
        certificate: digest of the server's certificate (DER); null without TLS.
        ended: whether a whole reply, or the last event of a stream, arrived.
        response_id: digest of the provider's id of the reply, as UTF-8.
        usage: what the reply said, read without memoflow; null where it did not end.
    """

    host: Literal["api.openai.com", "api.anthropic.com", "elsewhere"]
    retry_count: Annotated[int, Field(ge=0, le=100)] | None
    status: Annotated[int, Field(ge=100, le=599)]
    streamed: bool
    output_cap: Tokens
    certificate: Digest | None
    ended: bool
    response_id: Digest
    usage: Usage | None


class Call(_Closed):
    """One provider request: its invocation in the ledger, and what went over the wire."""

    id: Uuid
    state: Literal["SUCCEEDED", "FAILED", "CANCELLED", "OUTCOME_UNKNOWN"]
    reservation: Literal["SETTLED", "RELEASED", "RECONCILE"]
    reason: Literal["CANCELLED"] | None
    finish: Literal["stop", "length", "tool_calls", "cancelled"]
    reserved: Amounts
    usage: Usage | None
    wire: Wire


class Effect(_Closed):
    """One execution of a tool call."""

    state: Literal["DONE"]
    effect_class: Literal["read_only"]
    execution: Annotated[int, Field(ge=1, le=100)]


class Case(_Closed):
    """A boundary that was crossed; ``duration_ms`` by a clock that does not step."""

    boundary: BoundaryName
    duration_ms: Amount
    calls: Annotated[tuple[Call, ...], Field(max_length=5)]
    effects: Annotated[tuple[Effect, ...], Field(max_length=5)]


class Source(_Closed):
    """What was run: a commit, and the tree that it names."""

    commit: ObjectName
    tree: ObjectName


class Versions(_Closed):
    """What it was run with; ``sdk`` is the provider's official one."""

    memoflow: Version
    sdk: Version
    python: Version


class Database(_Closed):
    """Where the ledger was."""

    kind: Literal["sqlite", "postgresql"]
    version: Version


class Evidence(_Closed):
    """A whole run. ``digest`` is over the canonical form (RFC 8785) of everything else."""

    format: Literal["memoflow-live-1"]
    provider: Literal["openai", "anthropic"]
    api: Literal["responses", "messages"]
    simulated: bool
    model: Model
    source: Source
    versions: Versions
    database: Database
    cases: Annotated[tuple[Case, ...], Field(max_length=4)]
    balances: Annotated[tuple[Balance, ...], Field(max_length=5)]
    digest: Digest


def digest_of(evidence: Evidence) -> str:
    """The digest that evidence must bear."""
    return f"sha256:{sha256_hex(evidence.model_dump(mode='json', exclude={'digest'}))}"


def seal(evidence: Evidence) -> Evidence:
    """The same evidence under its own digest."""
    return evidence.model_copy(update={"digest": digest_of(evidence)})


def render(evidence: Evidence) -> bytes:
    """The bytes of the file, in the only way they are written."""
    return (json.dumps(evidence.model_dump(mode="json"), indent=1) + "\n").encode()


def hashed(data: bytes) -> str:
    """The digest of some bytes, as it stands in evidence."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def schema() -> dict[str, Any]:
    """The JSON Schema of evidence (draft 2020-12)."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:memoflow:evidence:{FORMAT}",
        **Evidence.model_json_schema(),
    }
