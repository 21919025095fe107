"""Which class an action is of: from its tag, from its name, or by written rules.

The Causal Memory Layer takes the class from a hand-made tag or from six names of actions, so a risky call
without a tag is invisible to the rules about risky calls. The strict profile therefore classifies by patterns
first: by tool, risk level, action and arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal

from memoflow.canonical import JSON
from memoflow.causal.ctag import ActionClass
from memoflow.causal.record import CausalRecord
from memoflow.errors import ConfigurationError

__all__ = ["ClassRule", "Classified", "action_class", "class_named", "classify", "record_class"]

Basis = Literal["rule", "ctag", "action"]

_BY_ACTION: Final = {
    "exec": ActionClass.EXEC,
    "open": ActionClass.READ,
    "read": ActionClass.READ,
    "write": ActionClass.WRITE,
    "connect": ActionClass.NET_OUT,
    "send": ActionClass.NET_OUT,
}


def class_named(name: object, key: str) -> ActionClass:
    """The class of a name, in any case.

    Raises:
        ConfigurationError: there is none; ``key`` is where the name stands.
    """
    try:
        return ActionClass[str(name).upper()]
    except KeyError:
        raise ConfigurationError(f"Unknown {key}: {name}") from None


def action_class(action: str) -> ActionClass:
    """The class that an action has by its name alone, in any case."""
    return _BY_ACTION.get(action.lower(), ActionClass.NONE)


def record_class(record: CausalRecord) -> ActionClass:
    """The class of a record in the Causal Memory Layer: its tag's, else its action's."""
    if record.ctag is not None:
        return ActionClass(record.ctag >> 8 & 15)
    return action_class(record.action)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRule:
    """One written rule: a record that fits all that is given has the class.

    Patterns are those of shells (``*``, ``?``, ``[a-z]``), with case.

    Attributes:
        tool: pattern for the tool's name.
        action: pattern for the action.
        risk: the risk levels it is for, any if empty.
        arguments: patterns for members of ``object.request``, by name; numbers and booleans are
            compared as JSON writes them. Of an array one item is enough; an object fits nothing.
    """

    action_class: ActionClass
    tool: str | None = None
    action: str | None = None
    risk: tuple[str, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()

    def fits(self, record: CausalRecord) -> bool:
        """Whether a record is what this rule is about."""
        payload = record.object if isinstance(record.object, dict) else {}
        return (
            _fits(self.tool, payload.get("tool"))
            and _fits(self.action, record.action)
            and (not self.risk or payload.get("risk_level") in self.risk)
            and all(_any_fits(pattern, _member(payload, name)) for name, pattern in self.arguments)
        )


@dataclass(frozen=True, slots=True)
class Classified:
    """A class and what it was taken from."""

    action_class: ActionClass
    basis: Basis


def classify(record: CausalRecord, rules: Iterable[ClassRule]) -> Classified:
    """The class of a record: of the first rule that fits, else its tag's, else its action's."""
    for rule in rules:
        if rule.fits(record):
            return Classified(rule.action_class, "rule")
    return Classified(record_class(record), "action" if record.ctag is None else "ctag")


def _fits(pattern: str | None, value: JSON) -> bool:
    return pattern is None or (isinstance(value, str) and fnmatchcase(value, pattern))


def _any_fits(pattern: str, value: JSON) -> bool:
    """Whether a value fits, or of an array, nested or not, any item: one recipient among many is one."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            waiting += one
        elif _fits(pattern, _plain(one)):
            return True
    return False


def _member(payload: Mapping[str, JSON], name: str) -> JSON:
    request = payload.get("request")
    return request.get(name) if isinstance(request, dict) else None


def _plain(value: JSON) -> JSON:
    if value is None or isinstance(value, (str, dict)):
        return value
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
