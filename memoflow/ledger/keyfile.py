"""The key file beside an SQLite ledger: its key ring where nobody configured one."""

from __future__ import annotations

import logging
from pathlib import Path

from memoflow.errors import ConfigurationError
from memoflow.keyring import KeyNotFound, KeyRing
from memoflow.ledger.database import Database
from memoflow.ledger.outputs import sealed_with

__all__ = ["make_ring", "stored_ring"]

log = logging.getLogger("memoflow")


def stored_ring(database: Database) -> KeyRing | None:
    """The ring in the key file of a ledger; None if there is no such file.

    Raises:
        ConfigurationError: others can read the file, or it holds no ring.
    """
    path = _path(database)
    return KeyRing.from_file(path) if path is not None and path.exists() else None


def make_ring(database: Database) -> KeyRing:
    """The same, but where nothing was sealed yet a missing file is made, with a new key.

    Raises:
        ConfigurationError: as `stored_ring`, or the database is no SQLite file.
        KeyNotFound: the file is missing, and the ledger holds what only its key can open.
    """
    path = _path(database)
    if path is None:
        raise ConfigurationError(
            "This database needs a key for the protected output store. Set MEMOFLOW_OUTPUT_KEYS to "
            "id:base64 of 32 random bytes, or pass keys=KeyRing(...)."
        )
    # Asked first: another process may make the file and seal with it at this moment.
    key_id = database.read(sealed_with)
    if path.exists():
        return KeyRing.from_file(path)
    if key_id is not None:
        raise KeyNotFound(key_id=key_id, known=(), file=str(path))
    log.warning(
        "no output key is configured; the key in %s is used. "
        "Keep it: without it recorded results cannot be read",
        path.name,
    )
    return KeyRing.create_file(path)


def _path(database: Database) -> Path | None:
    name = database.url.database
    return Path(f"{name}.key") if database.is_sqlite and name else None
