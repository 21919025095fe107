"""Reading configurations: shapes that are as they must be, or a sentence about the key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memoflow.canonical import JSON
from memoflow.errors import ConfigurationError

__all__ = ["flag", "items", "mapping", "only", "text", "texts"]


def mapping(value: object, what: str) -> Mapping[str, JSON]:
    """A mapping."""
    if isinstance(value, Mapping):
        return value
    raise ConfigurationError(f"{what} must be a mapping/object, not {type(value).__name__}.")


def items(section: Mapping[str, JSON], key: str) -> Iterable[object]:
    """The list under a key; nothing where there is no such key."""
    value = section.get(key, [])
    if isinstance(value, (list, tuple)):
        return value
    raise ConfigurationError(
        f"{key!r} must be a list, not {type(value).__name__}. Leave it out if it is empty."
    )


def text(value: object, what: str) -> str:
    """Text."""
    if isinstance(value, str):
        return value
    raise ConfigurationError(f"{what} must be text, not {type(value).__name__}.")


def texts(section: Mapping[str, JSON], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """The texts in the list under a key, or the default where there is no such key."""
    if key not in section:
        return default
    return tuple(text(item, f"Every item of {key!r}") for item in items(section, key))


def flag(value: object, what: str) -> bool:
    """A boolean."""
    if isinstance(value, bool):
        return value
    raise ConfigurationError(f"{what} must be true or false, not {type(value).__name__}.")


def only(section: Mapping[str, JSON], known: Iterable[str], what: str) -> None:
    """Refuse keys that are not known: a misspelt rule must not be a rule that is not there."""
    known = sorted(known)
    if unknown := sorted(str(key)[:40] for key in section if key not in known):
        raise ConfigurationError(
            f"{what} has unknown keys: {', '.join(unknown)}. Known ones: {', '.join(known)}."
        )
