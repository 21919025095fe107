"""Digests over the canonical form."""

from __future__ import annotations

import hashlib
import hmac
import re

from memoflow.canonical.form import canonical
from memoflow.errors import ConfigurationError

__all__ = ["Digester", "key_of", "sha256_hex"]


def sha256_hex(value: object) -> str:
    """SHA-256 of the canonical form, as 64 hexadecimal digits.

    Raises:
        InvalidRequest: as `canonical`.
    """
    return hashlib.sha256(canonical(value)).hexdigest()


def key_of(digest: str) -> str | None:
    """The id of the key that a tagged digest was made with; None for a plain one."""
    kind, _, rest = digest.partition(":")
    return rest.partition(":")[0] if kind == "hmac-sha256" else None


class Digester:
    """Tagged digests, keyed when a key is given: plain digests of small domains can be guessed.

    Args:
        key: secret of at least 16 bytes for HMAC-SHA-256, or None for plain SHA-256.
        key_id: its public name, put into every digest; needed with ``key`` and only then.

    Raises:
        ConfigurationError: one without the other, a short key, or a name that cannot stand in a tag.
    """

    __slots__ = ("_key", "_tag", "key_id")

    def __init__(self, key: bytes | None = None, key_id: str | None = None) -> None:
        if (key is None) != (key_id is None):
            raise ConfigurationError("A digest key needs both the key and its id; only one was given.")
        if key is not None and len(key) < 16:
            raise ConfigurationError(f"A digest key must have at least 16 bytes, not {len(key)}.")
        if key_id is not None and not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", key_id):
            raise ConfigurationError("A digest key id must have 1 to 64 of the characters A-Z a-z 0-9 _ . -")
        self._key, self.key_id = key, key_id
        self._tag = "sha256:" if key is None else f"hmac-sha256:{key_id}:"

    def json(self, value: object) -> str:
        """``sha256:<hex>`` or ``hmac-sha256:<key id>:<hex>`` of the canonical form.

        Raises:
            InvalidRequest: as `canonical`.
        """
        return self.bytes(canonical(value))

    def bytes(self, data: bytes) -> str:
        """The same over raw bytes."""
        if self._key is None:
            return self._tag + hashlib.sha256(data).hexdigest()
        return self._tag + hmac.digest(self._key, data, "sha256").hex()

    def __repr__(self) -> str:
        return f"Digester(key_id={self.key_id!r})"
