"""Reading the configuration of an audit: JSON, or YAML where PyYAML is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from memoflow.canonical import JSON, StrictJSONError, parse_strict
from memoflow.causal.compat.config import CompatConfig, compat_config
from memoflow.causal.strict.config import strict_rules
from memoflow.causal.strict.rules import StrictRules
from memoflow.errors import ConfigurationError
from memoflow.yaml_text import YAMLRefused, parse_yaml

__all__ = ["load_compat", "load_strict", "parse_document"]

MAX_CONFIG_BYTES: Final = 1 << 18
"""Most bytes of a configuration."""

_MAX_BRACKETS: Final = 2_000


def load_compat(path: Path) -> CompatConfig:
    """The compatibility profile's configuration in a file; a Cause Band fixture is read from beside it.

    Raises:
        ConfigurationError: the file cannot be read, or is no such configuration.
    """
    return compat_config(_load(path), lambda name: _load(path.parent / name))


def load_strict(path: Path) -> StrictRules:
    """The strict profile's rules in a file.

    Raises:
        ConfigurationError: the file cannot be read, or holds no such rules.
    """
    return strict_rules(_load(path))


def _load(path: Path) -> JSON:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(
            f"The configuration {path.name!r} cannot be read: {error.strerror}."
        ) from None
    return parse_document(data, yaml=path.suffix.lower() != ".json")


def parse_document(data: bytes, *, yaml: bool) -> JSON:
    """A configuration as plain values; None if it is empty.

    Raises:
        ConfigurationError: it is too large, malformed, or gives a key twice, or PyYAML is missing.
    """
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigurationError(f"A configuration of more than {MAX_CONFIG_BYTES} bytes is not read.")
    if yaml:
        return _parse_yaml(data)
    try:
        return parse_strict(data, max_bytes=MAX_CONFIG_BYTES)
    except StrictJSONError as error:
        raise ConfigurationError(f"The configuration is refused. {error}") from None


def _parse_yaml(data: bytes) -> JSON:
    # PyYAML takes time with the square of the depth of brackets.
    if data.count(b"[") + data.count(b"{") > _MAX_BRACKETS:
        raise ConfigurationError(f"A YAML configuration of more than {_MAX_BRACKETS} brackets is not read.")
    try:
        return parse_yaml(data)
    except ModuleNotFoundError:
        raise ConfigurationError(
            "YAML needs PyYAML. Install memoflow-runtime[causal], or write the configuration as .json."
        ) from None
    except YAMLRefused as error:
        # Without its own words, which may quote the configuration.
        where = f" in line {error.line}" if error.line else ""
        twice = ": a key is given twice" if error.twice else ""
        raise ConfigurationError(
            f"The configuration is no YAML document that is read here{where}{twice}."
        ) from None
