"""The place where calls are judged: after their arguments are bound, and before anything may begin.

Whoever has rules about what a model may do (approvals, causal audit, inspection) is a `Judge`. Each is asked
about every proposed call; the strongest verdict wins, and what each said is kept with the effect as its
name, the digest of its policy and codes. A replay uses what is kept, so a judge is asked about a call once.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, runtime_checkable

from memoflow.errors import ConfigurationError, InvalidRequest, MemoflowError
from memoflow.identity import ActivityIdentity, check_name
from memoflow.providers.base import CallKind
from memoflow.tools import Tool, Toolset
from memoflow.turn.results import ToolResult

__all__ = [
    "Bench",
    "Exchange",
    "Judge",
    "Judgement",
    "KnowsApprovers",
    "NeedsApproval",
    "Permit",
    "ProposedCall",
    "Refuse",
    "Ruling",
    "Said",
    "plain_codes",
]

log = logging.getLogger("memoflow.judging")

JUDGE_FAILED: Final = "JUDGE_FAILED"
_MAX_CODE: Final = 128
_CODE: Final = re.compile(f"[A-Za-z0-9_.:-]{{1,{_MAX_CODE}}}")
_NOT_PLAIN: Final = re.compile("[^A-Za-z0-9_.:-]")
_MAX_CODES: Final = 32
_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class Exchange:
    """One round of the conversation so far: a reply as the provider sent it, and what was answered."""

    reply: Mapping[str, Any] = field(repr=False)
    results: tuple[ToolResult, ...] = ()


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """A tool call whose arguments are checked, and of which nothing has begun.

    What a judge is given is what the turn works with, not a copy: it is read, and never changed.

    Attributes:
        identity: the activity on whose behalf the call is made.
        activity: its id in the ledger; invocation_id: that of the request whose reply asks for the call.
        requester: who would ask for an approval of it.
        tool: what would run.
        arguments_json: canonical JSON of the arguments; the raw text of a freeform call.
        arguments_digest: tagged digest of these bytes.
        idempotency_key: names the effect; what an approval would be bound to.
        call_id: the provider's id of the call, for correlation only.
        kind: ``function`` or ``custom``.
        round: round of the tool loop, from 0; ordinal: position among the calls of its reply, from 0.
        provider, api, model: whose reply asks for it.
        toolset: all tools that may run in this call.
        request: the initial request, as it went out but for the output cap.
        reply: the reply that asks.
        history: the rounds before it, oldest first.
    """

    identity: ActivityIdentity
    activity: str
    invocation_id: str
    requester: str
    tool: Tool[..., Any]
    arguments_json: bytes = field(repr=False)
    arguments_digest: str
    idempotency_key: str
    call_id: str
    kind: CallKind
    round: int
    ordinal: int
    provider: str
    api: str
    model: str
    toolset: Toolset = field(repr=False)
    request: Mapping[str, Any] = field(repr=False)
    reply: Mapping[str, Any] = field(repr=False)
    history: tuple[Exchange, ...] = field(repr=False)

    @property
    def arguments(self) -> Any:
        """The arguments as plain JSON, made afresh; the text of a freeform call."""
        if self.kind == "custom":
            return self.arguments_json.decode()
        return json.loads(self.arguments_json)


def plain_codes(codes: Iterable[str]) -> tuple[str, ...]:
    """Codes of somebody else's as a verdict takes them: each once, in plain characters, not too many."""
    told = (_NOT_PLAIN.sub("_", code)[:_MAX_CODE] or "UNNAMED" for code in codes)
    return tuple(dict.fromkeys(told))[:_MAX_CODES]


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What a judge says.

    Attributes:
        codes: why; kept with the effect, and told to the model where the call is refused.
        notes: what else is to be kept with the effect. The model is not told.
    """

    codes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("codes", "notes"):
            object.__setattr__(self, name, _checked(name, getattr(self, name)))


def _checked(name: str, words: Any) -> tuple[str, ...]:
    if isinstance(words, str) or len(words) > _MAX_CODES:
        raise InvalidRequest(f"A verdict has its {name} in a tuple, {_MAX_CODES} at most.")
    for word in words:
        if not isinstance(word, str) or not _CODE.fullmatch(word):
            raise InvalidRequest(
                f"Each of a verdict's {name} is 1 to 128 of the characters A-Z a-z 0-9 _ . : -; they are "
                "kept in the clear, so they hold no payload."
            )
    return tuple(words)


@dataclass(frozen=True, slots=True)
class Permit(_Verdict):
    """The call may run, as far as this judge is concerned."""


@dataclass(frozen=True, slots=True)
class NeedsApproval(_Verdict):
    """The call may run once a person has allowed it."""


@dataclass(frozen=True, slots=True)
class Refuse(_Verdict):
    """The call does not run; the model is told so with the codes of the findings."""


Said = Literal["permit", "approval", "refuse"]
_SAID: Final[dict[type[Any], Said]] = {Permit: "permit", NeedsApproval: "approval", Refuse: "refuse"}
_BY_STRENGTH: Final[tuple[Said, ...]] = ("permit", "approval", "refuse")


class Judge(Protocol):
    """Rules about what a model may have done.

    A judge is pure: the same call under the same policy gets the same verdict, and nothing is done by asking.
    It may be slow, and is asked where it blocks no event loop. One that raises permits a ``read_only`` call
    and refuses any other, with the code ``JUDGE_FAILED``.
    """

    @property
    def id(self) -> str:
        """Its name, 1 to 64 characters; kept with every verdict."""

    @property
    def policy_digest(self) -> str:
        """The tagged digest of what it judges by."""

    def judge(self, call: ProposedCall) -> Permit | NeedsApproval | Refuse:
        """What it says about a call."""


@runtime_checkable
class KnowsApprovers(Protocol):
    """A judge that also says whose approvals count; without one everybody's do."""

    def may_approve(self, approver: str) -> bool:
        """Whether somebody may give approvals."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What one judge said, as it is kept."""

    judge: str
    policy_digest: str
    said: Said
    codes: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """What all judges said about one call."""

    rulings: tuple[Ruling, ...] = ()

    @property
    def said(self) -> Said:
        """The strongest verdict; a permit if nobody said anything."""
        return max((one.said for one in self.rulings), key=_BY_STRENGTH.index, default="permit")

    @property
    def findings(self) -> tuple[tuple[str, str], ...]:
        """Judge and code of every reason for a refusal."""
        return tuple(
            (one.judge, code) for one in self.rulings if one.said == "refuse" for code in one.codes or ("",)
        )

    def text(self) -> str | None:
        """As it is stored: names, digests, codes and notes only."""
        if not self.rulings:
            return None
        rows = [
            [one.judge, one.policy_digest, one.said, one.codes, *([one.notes] if one.notes else [])]
            for one in self.rulings
        ]
        return json.dumps(rows, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str | None) -> Judgement:
        """What `text` gave."""
        rows = [] if text is None else json.loads(text)
        return cls(
            tuple(Ruling(judge, digest, said, *map(tuple, words)) for judge, digest, said, *words in rows)
        )


class _Declared:
    """The judge that every runtime has: a tool says itself that a person has to allow its calls."""

    id: Final = "memoflow.approval"
    policy_digest: Final = "sha256:" + "0" * 64

    def judge(self, call: ProposedCall) -> Permit | NeedsApproval:
        return Permit() if call.tool.approval is None else NeedsApproval(("DECLARED",))


class Bench:
    """The judges of a runtime, in the order in which their rulings are kept.

    Raises:
        ConfigurationError: an entry is no judge, or two have the same id.
    """

    def __init__(self, judges: Iterable[Judge] = ()) -> None:
        self._judges = tuple(judges)
        names = [_Declared.id, *map(_name_of, self._judges)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigurationError(f"Two judges are called {twice[0]!r}. Give each an id of its own.")

    def __bool__(self) -> bool:
        """Whether there are judges beside the tools' own declarations, so that asking may take long."""
        return bool(self._judges)

    def may_approve(self, approver: str) -> bool:
        """Whether every judge that knows approvers lets somebody give approvals; not if one cannot tell."""
        return all(_allows(judge, approver) for judge in self._judges if isinstance(judge, KnowsApprovers))

    def missing(self, before: Judgement) -> bool:
        """Whether a judge has not been heard yet about a call of which this is kept."""
        heard = {one.judge for one in before.rulings}
        return any(judge.id not in heard for judge in self._judges)

    def judge(self, call: ProposedCall, before: Judgement) -> Judgement:
        """What is kept about a call, and what those say who have not been heard.

        A tool's own declaration is read each time, so that one that came later holds for what has not begun.
        """
        heard = {one.judge: one for one in before.rulings}
        if _Declared.id not in heard and call.tool.approval is not None:
            heard = {_Declared.id: _rule(_Declared(), call), **heard}
        for judge in self._judges:
            if judge.id not in heard:
                heard[judge.id] = _rule(judge, call)
        return Judgement(tuple(heard.values()))


def _name_of(judge: object) -> str:
    if not callable(getattr(judge, "judge", None)) or not hasattr(judge, "policy_digest"):
        raise ConfigurationError(
            f"A {type(judge).__name__} is no judge. A judge has an id, a policy_digest and judge(call)."
        )
    try:
        return check_name("A judge's id", getattr(judge, "id", None), limit=_NAME)
    except InvalidRequest as error:
        raise ConfigurationError(str(error)) from None


def _allows(judge: KnowsApprovers, approver: str) -> bool:
    try:
        return judge.may_approve(approver) is True
    except Exception as error:
        log.warning("a judge could not tell who may approve (%s)", type(error).__name__)
        return False


def _rule(judge: Judge, call: ProposedCall) -> Ruling:
    try:
        digest = check_name("A policy digest", judge.policy_digest)
        verdict = judge.judge(call)
        return Ruling(judge.id, digest, _SAID[type(verdict)], verdict.codes, verdict.notes)
    except Exception as error:
        # Its text may hold what the judge read, so only its type is told; our own texts never do.
        why = str(error) if isinstance(error, MemoflowError) else type(error).__name__
        log.warning("judge %s could not judge a call of tool %s (%s)", judge.id, call.tool.name, why)
    said: Said = "permit" if call.tool.effect == "read_only" else "refuse"
    return Ruling(judge.id, "", said, (JUDGE_FAILED,))
