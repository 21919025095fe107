"""The keys of the protected output store, and sealing with them (AES-256-GCM)."""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from memoflow.errors import ConfigurationError, MemoflowError
from memoflow.randomness import Drawn

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["KeyNotFound", "KeyRing", "SealBroken", "Sealed", "parse_keys"]

_KEY_BYTES: Final = 32
# Random 96-bit nonces: NIST SP 800-38D allows 2^32 messages under one key.
_NONCE_BYTES: Final = 12
_nonces: Final = Drawn(_NONCE_BYTES)
_MAX_FILE: Final = 64 * 1024
_KEY_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FORMAT: Final = "Write keys as id:base64, separated by commas, the current one first."


class KeyNotFound(ConfigurationError):
    """What a ledger holds was sealed with a key that is not in the key ring.

    Attributes:
        key_id: the key it needs.
        known: the keys there are.
        file: the key file that should have it and does not exist, if the ring is kept in one.
    """

    def __init__(self, *, key_id: str, known: tuple[str, ...], file: str | None = None) -> None:
        self.key_id, self.known, self.file = key_id, known, file
        found = f"the key ring has only {', '.join(map(repr, known))}" if known else "there is no key ring"
        restore = "Add it to MEMOFLOW_OUTPUT_KEYS, after the current key."
        if file is not None:
            found = f"MEMOFLOW_OUTPUT_KEYS is not set and key file {file!r} does not exist"
            restore = (
                "Restore the file from a backup, or add the key to MEMOFLOW_OUTPUT_KEYS. If it is lost, what "
                "it sealed cannot be read again: set MEMOFLOW_OUTPUT_KEYS to a new key to go on without."
            )
        super().__init__(f"The ledger holds what was sealed with key {key_id!r}, and {found}. {restore}")


class SealBroken(MemoflowError):
    """A sealed value was changed, or belongs to another place than the one it was read for.

    Attributes:
        key_id: the key it was sealed with.
    """

    def __init__(self, *, key_id: str) -> None:
        self.key_id = key_id
        super().__init__(
            f"A value sealed with key {key_id!r} does not pass its check: it was changed, moved from another "
            "record, or sealed with another key of that id. Nothing of it is used. Run `memoflow verify`."
        )


@dataclass(frozen=True, slots=True)
class Sealed:
    """An encrypted value: the id of its key, its nonce (12 bytes), and ciphertext with tag."""

    key_id: str
    nonce: bytes
    ciphertext: bytes


class KeyRing:
    """Named 256-bit keys. The first one seals; all of them open.

    To rotate, put a new key in front and keep the old ones until what they sealed has expired.

    Args:
        keys: pairs of id and 32 bytes, the current one first.

    Raises:
        ConfigurationError: no keys, a key of another size, or an id that is not valid or comes twice.
    """

    __slots__ = ("_keys", "key_ids")

    def __init__(self, keys: Iterable[tuple[str, bytes]]) -> None:
        pairs = [(_checked_id(key_id), bytes(key)) for key_id, key in keys]
        for key_id, key in pairs:
            if len(key) != _KEY_BYTES:
                raise ConfigurationError(
                    f"Output key {key_id!r} has {len(key)} bytes; AES-256 needs {_KEY_BYTES}. "
                    "Make one with KeyRing.generate().export()."
                )
        self._keys = dict(pairs)
        self.key_ids = tuple(self._keys)
        if not pairs or len(self._keys) != len(pairs):
            raise ConfigurationError(f"A key ring needs at least one key, and every id once. {_FORMAT}")

    @classmethod
    def generate(cls) -> Self:
        """A ring of one new random key."""
        return cls([(f"k{os.urandom(6).hex()}", os.urandom(_KEY_BYTES))])

    @classmethod
    def parse(cls, text: str) -> Self:
        """A ring from ``id:base64,id2:base64``; line ends separate as well.

        Raises:
            ConfigurationError: the text is not of that form. It is not repeated in the message.
        """
        return cls(parse_keys(text))

    def export(self) -> str:
        """The ring in the form `parse` reads. This is the secret itself."""
        return ",".join(f"{key_id}:{base64.b64encode(key).decode()}" for key_id, key in self._keys.items())

    @property
    def current(self) -> str:
        """The id of the key that seals."""
        return self.key_ids[0]

    def seal(self, plaintext: bytes, aad: bytes, *, key_id: str | None = None) -> Sealed:
        """Encrypt under the current key, or another one; ``aad`` is not stored, and is needed again to open.

        Raises:
            KeyNotFound: the key is not in the ring.
        """
        key_id, nonce = key_id or self.current, _nonces.take()
        return Sealed(key_id, nonce, _cipher(self._key(key_id)).encrypt(nonce, plaintext, aad))

    def open(self, sealed: Sealed, aad: bytes) -> bytes:
        """Decrypt.

        Raises:
            KeyNotFound: its key is not in the ring.
            SealBroken: any byte of it or of ``aad`` is not what was sealed.
        """
        from cryptography.exceptions import InvalidTag

        key = self._key(sealed.key_id)
        # A cut nonce or ciphertext is a ValueError there, not a failed tag.
        with suppress(InvalidTag, ValueError):
            return _cipher(key).decrypt(sealed.nonce, sealed.ciphertext, aad)
        raise SealBroken(key_id=sealed.key_id)

    def _key(self, key_id: str) -> bytes:
        if key_id not in self._keys:
            raise KeyNotFound(key_id=key_id, known=self.key_ids)
        return self._keys[key_id]

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read a ring from a file that only its owner can read.

        Raises:
            ConfigurationError: no such file, one that others can read, or one that holds no ring.
        """
        try:
            return cls.parse(_read_private(path))
        except OSError as error:
            raise ConfigurationError(
                f"Key file {os.fspath(path)!r} cannot be read ({type(error).__name__}). Restore it from a "
                "backup or set MEMOFLOW_OUTPUT_KEYS: what was sealed with a lost key cannot be read again."
            ) from None

    @classmethod
    def create_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read the ring in a file, made with a new key first if there is none.

        Processes that do this at the same time end with the same key. An existing file is never changed.

        Raises:
            ConfigurationError: as `from_file`, or the file cannot be created.
        """
        try:
            if not os.path.lexists(path):
                _publish(Path(path), cls.generate().export() + "\n")
        except OSError as error:
            raise ConfigurationError(
                f"Key file {os.fspath(path)!r} cannot be created ({type(error).__name__}). Make its "
                "directory writable, or set MEMOFLOW_OUTPUT_KEYS."
            ) from None
        return cls.from_file(path)

    def __repr__(self) -> str:
        return f"KeyRing(key_ids={self.key_ids!r})"

    def __reduce__(self) -> Any:
        raise TypeError("A KeyRing holds secrets and is not pickled. Pass the name of its file instead.")


@lru_cache(maxsize=16)
def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def parse_keys(text: str) -> list[tuple[str, bytes]]:
    """Pairs of id and key from ``id:base64,id2:base64``, in standard or URL-safe base64.

    Raises:
        ConfigurationError: the text is not of that form. It is not repeated in the message.
    """
    return [_parse_key(part.strip()) for part in re.split(r"[,\n]", text) if part.strip()]


def _parse_key(part: str) -> tuple[str, bytes]:
    key_id, colon, encoded = part.partition(":")
    key = b""
    with suppress(binascii.Error, ValueError):
        key = base64.b64decode(encoded.replace("-", "+").replace("_", "/"), validate=True)
    if not colon or not key:
        raise ConfigurationError(f"A key is not of the form id:base64. {_FORMAT}")
    return _checked_id(key_id), key


def _checked_id(key_id: str) -> str:
    # The id is not shown: without its colon, a key could be taken for one.
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        raise ConfigurationError(f"A key id must have 1 to 64 of the characters A-Z a-z 0-9 _ . - {_FORMAT}")
    return key_id


def _read_private(path: str | os.PathLike[str]) -> str:
    with open(path, "rb") as file:
        # Of the open file, not of the path: nobody can swap it in between.
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"Key file {os.fspath(path)!r} is not a regular file. Name one that is.")
        if status.st_mode & 0o077:
            raise ConfigurationError(
                f"Key file {os.fspath(path)!r} can be read or written by others (mode "
                f"{stat.S_IMODE(status.st_mode):04o}). If nobody has used that, give it mode 0600."
            )
        data = file.read(_MAX_FILE + 1)
    if len(data) > _MAX_FILE or not data.isascii():
        raise ConfigurationError(f"Key file {os.fspath(path)!r} holds no key ring. Restore it from a backup.")
    return data.decode()


def _publish(path: Path, text: str) -> None:
    """Make ``path`` appear with all of ``text`` at once, unless another process was first."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(6).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # A link is atomic and, unlike a rename, never replaces the key somebody already uses.
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
