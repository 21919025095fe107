"""Tools and their results."""

from __future__ import annotations

from memoflow.errors._base import MemoflowError

__all__ = [
    "InvalidTool",
    "ResultNotEncodable",
    "ToolError",
    "ToolKnownFailure",
    "ToolNotAnswered",
    "ToolNotStarted",
    "ToolRoundLimit",
    "ToolTimedOut",
    "ToolVersionMismatch",
]


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
            "rounds), under a new replay_key or run_id: calls that were not paid for are never run later."
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


class ToolNotStarted(ToolError):
    """A tool could not begin, and nothing happened outside; the model is not told, and the call ends.

    It is recorded FAILED / NOT_STARTED, so that the next attempt runs it, whatever its effect class. It
    speaks for the tool that it leaves: one that has already done something must not let another's pass.
    """


class ToolNotAnswered(ToolError):
    """A tool that runs elsewhere gave no result. It may have run; its effect is recorded accordingly.

    Attributes:
        tool: its name; problem: what came instead of a result.
        code: the JSON-RPC error code, where there is one. Only a number: its text may be payload.
    """

    def __init__(self, *, tool: str, problem: str, code: int | None = None) -> None:
        self.tool, self.problem, self.code = tool, problem, code
        number = "" if code is None else f" (JSON-RPC error {code})"
        super().__init__(
            f"Tool {tool!r} gave no result: {problem}{number}. It may have run all the same. Look at its "
            "record with `memoflow effects list`, and at the log of whatever runs it."
        )


class ResultNotEncodable(ToolError):
    """A value cannot be written as exact JSON, or is too large."""
