"""Policy files: YAML, TOML or JSON, by the ending of their name.

A key that is not known, or stands there twice, is an error: a rule whose condition is misspelt would hold
always or never, and nobody would notice.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from memoflow.canonical import parse_strict
from memoflow.canonical.strict import StrictJSONError
from memoflow.errors import ConfigurationError
from memoflow.inspection.policy import Policy
from memoflow.inspection.shipped import shipped_policy
from memoflow.yaml_text import parse_yaml

__all__ = ["SHIPPED", "load_policy", "named_policy", "read_policy"]

SHIPPED: Final = "shipped"
"""Names the policy that comes with memoflow, where the name of a file may stand."""

MAX_BYTES: Final = 1024 * 1024
"""Largest policy file."""

_MOST_PROBLEMS: Final = 5


def named_policy(name: str | Path) -> Policy:
    """The policy of a file, or the one that `SHIPPED` names; raises as `load_policy`."""
    return shipped_policy() if str(name) == SHIPPED else load_policy(name)


def load_policy(path: str | Path) -> Policy:
    """Read a policy file.

    Raises:
        ConfigurationError: it cannot be read, or is no policy; says where it is wrong.
    """
    file = Path(path)
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise ConfigurationError(
            f"The policy file {str(file)!r} must end with {', '.join(sorted(_READERS))}. Rename it; "
            f"the policy that comes with memoflow is called {SHIPPED}."
        )
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(
            f"The policy file {str(file)!r} cannot be read: {error.strerror}. Name another one."
        ) from None
    if len(data) > MAX_BYTES:
        raise ConfigurationError(
            f"The policy file {str(file)!r} has more than {MAX_BYTES} bytes. Make it shorter."
        )
    try:
        value = reader(data)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"The policy file {str(file)!r} is not valid {file.suffix[1:].upper()}: {_one_line(error)}. "
            "Correct it."
        ) from None
    return read_policy(value, f"The policy file {str(file)!r}")


def read_policy(value: Any, what: str = "The policy") -> Policy:
    """A policy from plain data; ``what`` is what an error calls it.

    Raises:
        ConfigurationError: it is none; says where it is wrong.
    """
    try:
        return Policy.model_validate(value)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        shown = "; ".join(_problem(problem) for problem in problems[:_MOST_PROBLEMS])
        more = f" and {len(problems) - _MOST_PROBLEMS} more" if len(problems) > _MOST_PROBLEMS else ""
        raise ConfigurationError(f"{what} is not valid: {shown}{more}. Correct it.") from None


def _problem(problem: Any) -> str:
    place = ".".join(str(step) for step in problem["loc"])
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _json(data: bytes) -> Any:
    try:
        return parse_strict(data, max_bytes=MAX_BYTES)
    except StrictJSONError as error:
        raise ValueError(str(error).removesuffix(".")) from None


def _toml(data: bytes) -> Any:
    return tomllib.loads(data.decode())


def _yaml(data: bytes) -> Any:
    try:
        return parse_yaml(data)
    except ModuleNotFoundError as missing:
        if missing.name != "yaml":
            raise
        raise ConfigurationError(
            "A policy in YAML needs PyYAML, which is not installed: "
            "pip install 'memoflow-runtime[inspection]'. Policies in TOML and JSON need nothing."
        ) from None


_READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    ".json": _json,
    ".toml": _toml,
    ".yaml": _yaml,
    ".yml": _yaml,
}
