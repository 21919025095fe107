"""What whoever registers a tool says about it for inspection: what a call does, and which arguments matter.

Names and texts of calls are only guessed at where nobody said (`memoflow.inspection.actions`). A declaration
is plain data: it imports nothing that inspects, so a tool can carry one at no cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from memoflow.errors import InvalidTool

__all__ = ["Action", "Inspection", "Sensitive", "Trust", "at_least"]

Action = Literal["read_only", "side_effecting", "network", "privilege_changing", "destructive"]
"""What a call does, from the least to the most severe. ``network`` is data going out, not coming in."""

Sensitive = Literal["recipient", "account", "url", "host", "path", "command", "amount"]
"""What an argument decides: who gets something, where it goes, what is touched or run, how much."""

Trust = Literal["untrusted", "semi", "trusted"]
"""How far what a tool returns may be believed, from the least to the most."""

ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
SENSITIVE: Final[tuple[Sensitive, ...]] = get_args(Sensitive)
TRUST: Final[tuple[Trust, ...]] = get_args(Trust)


def at_least(action: Action, least: Action) -> bool:
    """Whether an action is as severe as another, or more."""
    return ACTIONS.index(action) >= ACTIONS.index(least)


@dataclass(frozen=True, slots=True, init=False)
class Inspection:
    """A declaration of one tool.

    ::

        Inspection(action="network", sensitive={"to": "recipient", "attachments.path": "path"})

    Attributes:
        action: what a call does, whatever its arguments are.
        sensitive: (name, kind) of arguments, sorted; a dot leads into an object, lists are walked.
        results: how far its results may be believed. Untrusted ones taint what is made of them.
    """

    action: Action
    sensitive: tuple[tuple[str, Sensitive], ...]
    results: Trust

    def __init__(
        self,
        *,
        action: Action,
        sensitive: Mapping[str, Sensitive] | None = None,
        results: Trust = "untrusted",
    ) -> None:
        """Check and keep a declaration.

        Raises:
            InvalidTool: a word is not one of those there are, or a name is no name of an argument.
        """
        pairs = {} if sensitive is None else sensitive
        if not isinstance(pairs, Mapping):
            raise InvalidTool(
                f"sensitive must be a mapping of argument names to kinds, not {type(pairs).__name__}. "
                'Write for example {"to": "recipient"}.'
            )
        for name, kind in pairs.items():
            if not isinstance(name, str) or not all(name.split(".")):
                raise InvalidTool(
                    "A sensitive argument is named by its name, or by names joined with dots. Correct it."
                )
            _check(f"The kind of the sensitive argument {name!r}", kind, SENSITIVE)
        _check("An action", action, ACTIONS)
        _check("The trust in results", results, TRUST)
        object.__setattr__(self, "action", action)
        object.__setattr__(self, "sensitive", tuple(sorted(pairs.items())))
        object.__setattr__(self, "results", results)

    def plain(self) -> dict[str, Any]:
        """As plain JSON, for digests and session files."""
        return {"action": self.action, "sensitive": dict(self.sensitive), "results": self.results}


def _check(what: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidTool(f"{what} must be one of {', '.join(known)}, not {value!r:.60}. Correct it.")
