"""Plain JSON: one canonical form, digests over it, a strict parser, and checked copies."""

from __future__ import annotations

from memoflow.canonical.digest import Digester, key_of, sha256_hex
from memoflow.canonical.form import JSON, MAX_DEPTH, canonical, freeze_json
from memoflow.canonical.strict import MAX_DIGITS, StrictJSONError, parse_strict

__all__ = [
    "JSON",
    "MAX_DEPTH",
    "MAX_DIGITS",
    "Digester",
    "StrictJSONError",
    "canonical",
    "freeze_json",
    "key_of",
    "parse_strict",
    "sha256_hex",
]
