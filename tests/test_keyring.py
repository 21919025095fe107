"""Key rings: sealing, rotation, tampering, and key files that several processes create at once."""

from __future__ import annotations

import base64
import multiprocessing
import os
import pickle
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from memoflow.errors import ConfigurationError
from memoflow.keyring import KeyNotFound, KeyRing, SealBroken, Sealed, parse_keys

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
OLD_TEXT = base64.b64encode(OLD).decode()


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_what_was_sealed_opens(plaintext: bytes, aad: bytes) -> None:
    """Opening with the same additional data gives the same bytes."""
    ring = KeyRing([("k1", OLD)])
    sealed = ring.seal(plaintext, aad)
    assert (sealed.key_id, len(sealed.nonce), len(sealed.ciphertext)) == ("k1", 12, len(plaintext) + 16)
    assert ring.open(sealed, aad) == plaintext


def test_a_seal_of_an_earlier_version_opens() -> None:
    """A value sealed with fixed key, nonce and data opens for ever: the format is part of the ledger."""
    fixed = Sealed("k1", bytes(12), bytes.fromhex("7ad4d0fec749f3d171a1ac732293f365487e7728b3a27b4528"))
    assert KeyRing([("k1", OLD)]).open(fixed, b"acme/run-1") == b"the reply"


def test_sealing_is_plain_aes_256_gcm() -> None:
    """Another implementation of the standard opens what was sealed."""
    sealed = KeyRing([("k1", OLD)]).seal(b"text", b"aad")
    assert AESGCM(OLD).decrypt(sealed.nonce, sealed.ciphertext, b"aad") == b"text"


def test_every_seal_has_a_nonce_of_its_own() -> None:
    """Sealing the same bytes again gives another nonce and another ciphertext."""
    ring = KeyRing.generate()
    seals = [ring.seal(b"same", b"aad") for _ in range(200)]
    assert len({sealed.nonce for sealed in seals}) == len({sealed.ciphertext for sealed in seals}) == 200


def test_the_first_key_seals_and_all_open() -> None:
    """After a rotation new values use the new key, and old values still open."""
    before = KeyRing([("old", OLD)])
    after = KeyRing([("new", NEW), ("old", OLD)])
    assert after.open(before.seal(b"text", b"aad"), b"aad") == b"text"
    assert after.current == after.seal(b"x", b"").key_id == "new"
    assert after.key_ids == ("new", "old")


def flipped(data: bytes, bit: int) -> bytes:
    """``data`` with one bit turned."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_any_changed_bit_breaks_the_seal() -> None:
    """No single bit of nonce, ciphertext, tag or additional data can be turned unnoticed."""
    ring, aad = KeyRing([("k1", OLD)]), b"acme/run-1"
    sealed = ring.seal(b"the reply", aad)
    broken = [(Sealed("k1", flipped(sealed.nonce, bit), sealed.ciphertext), aad) for bit in range(96)]
    broken += [
        (Sealed("k1", sealed.nonce, flipped(sealed.ciphertext, bit)), aad)
        for bit in range(8 * len(sealed.ciphertext))
    ]
    broken += [(sealed, flipped(aad, bit)) for bit in range(8 * len(aad))]
    for value, data in broken:
        with pytest.raises(SealBroken):
            ring.open(value, data)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: Sealed(s.key_id, s.nonce[:-1], s.ciphertext),
        lambda s: Sealed(s.key_id, s.nonce + b"\0", s.ciphertext),
        lambda s: Sealed(s.key_id, b"", s.ciphertext),
        lambda s: Sealed(s.key_id, bytes(200), s.ciphertext),
        lambda s: Sealed(s.key_id, s.nonce, s.ciphertext[:-1]),
        lambda s: Sealed(s.key_id, s.nonce, s.ciphertext[:16]),
        lambda s: Sealed(s.key_id, s.nonce, b""),
        lambda s: Sealed("k2", s.nonce, s.ciphertext),
    ],
)
def test_a_cut_or_moved_seal_is_broken(change: Callable[[Sealed], Sealed]) -> None:
    """Cut values, and values put under the id of another key, are refused in the same way."""
    ring = KeyRing([("k1", OLD), ("k2", NEW)])
    with pytest.raises(SealBroken, match=r"does not pass its check.*memoflow verify"):
        ring.open(change(ring.seal(b"the reply", b"aad")), b"aad")


def test_a_value_of_another_place_does_not_open() -> None:
    """A sealed value copied to another run fails, because its place is in the additional data."""
    ring = KeyRing.generate()
    with pytest.raises(SealBroken) as caught:
        ring.open(ring.seal(b"the reply", b"run-1"), b"run-2")
    assert caught.value.key_id == ring.current
    assert ring.export() not in str(caught.value)


def test_a_missing_key_is_named() -> None:
    """A value sealed with a key that is gone says which key it needs and which there are."""
    sealed = KeyRing([("old", OLD)]).seal(b"text", b"aad")
    says = r"with key 'old'.*only 'new', 'newer'.*MEMOFLOW_OUTPUT_KEYS"
    with pytest.raises(KeyNotFound, match=says) as caught:
        KeyRing([("new", NEW), ("newer", OLD)]).open(sealed, b"aad")
    assert (caught.value.key_id, caught.value.known) == ("old", ("new", "newer"))


def test_a_ring_seals_with_another_of_its_keys() -> None:
    """For what has to be read together with something older; a key that is not there is named."""
    ring = KeyRing([("new", NEW), ("old", OLD)])
    sealed = ring.seal(b"text", b"aad", key_id="old")
    assert (sealed.key_id, KeyRing([("old", OLD)]).open(sealed, b"aad")) == ("old", b"text")
    with pytest.raises(KeyNotFound, match="with key 'gone'"):
        ring.seal(b"text", b"aad", key_id="gone")


def test_a_missing_key_file_is_named_with_both_ways_out() -> None:
    """The file, the key that was in it, and what to do if it is lost for good."""
    error = KeyNotFound(key_id="k1", known=(), file="m.db.key")
    for part in ("with key 'k1'", "key file 'm.db.key' does not exist", "Restore", "to a new key to go on"):
        assert part in str(error)
    assert "there is no key ring. Add it to MEMOFLOW_OUTPUT_KEYS" in str(KeyNotFound(key_id="k1", known=()))


@pytest.mark.parametrize("error", [KeyNotFound(key_id="a", known=("b",)), SealBroken(key_id="a")])
def test_key_errors_survive_pickling(error: KeyNotFound | SealBroken) -> None:
    """Message and attributes come back from another process."""
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


# --- text -------------------------------------------------------------------------------------------


def test_a_ring_is_written_and_read_as_text() -> None:
    """`export` and `parse` are inverse, in order; spaces, line ends and URL-safe base64 are accepted."""
    ring = KeyRing([("new", NEW), ("old", OLD)])
    assert KeyRing.parse(ring.export()).export() == ring.export()
    urlsafe = base64.urlsafe_b64encode(b"\xff" * 32).decode()
    assert "_" in urlsafe
    loose = KeyRing.parse(f" new:{urlsafe} ,\n old:{OLD_TEXT}\r\n")
    assert loose.export() == KeyRing([("new", b"\xff" * 32), ("old", OLD)]).export()


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        OLD_TEXT,
        f":{OLD_TEXT}",
        "k1:",
        "k1:not base64!",
        f"k1:{OLD_TEXT[:-1]}",
        f"k1:{OLD_TEXT}=",
        f"k 1:{OLD_TEXT}",
        f"k1;{OLD_TEXT}",
        f"{OLD_TEXT}:k1",
        f"k1:{OLD_TEXT},k1:{OLD_TEXT}",
        f"{'k' * 65}:{OLD_TEXT}",
        "k1:" + base64.b64encode(OLD[:31]).decode(),
        "k1:" + base64.b64encode(OLD + b"x").decode(),
    ],
)
def test_a_text_that_is_no_ring_is_refused(text: str) -> None:
    """Whatever is wrong, the refusal repeats no key."""
    with pytest.raises(ConfigurationError) as caught:
        KeyRing.parse(text)
    printed = "".join(traceback.format_exception(caught.value))
    assert OLD_TEXT[:20] not in printed
    assert "not base64" not in str(caught.value)


def test_refusals_of_keys_say_the_remedy() -> None:
    """The form is shown, or the way to make a key of the right size."""
    with pytest.raises(ConfigurationError, match="id:base64, separated by commas, the current one first"):
        KeyRing([])
    with pytest.raises(
        ConfigurationError, match=r"'k1' has 16 bytes; AES-256 needs 32.*generate\(\)\.export"
    ):
        KeyRing([("k1", bytes(16))])


def test_keys_of_any_length_can_be_parsed() -> None:
    """`parse_keys` leaves the length to its caller: digest keys are no AES keys."""
    assert parse_keys("a:YWJj,b:eHl6eg==") == [("a", b"abc"), ("b", b"xyzz")]


def test_generated_rings_differ() -> None:
    """Every generated ring has one key of its own under an id of its own."""
    rings = [KeyRing.generate() for _ in range(50)]
    assert len({ring.current for ring in rings}) == 50
    assert len({ring.export().partition(":")[2] for ring in rings}) == 50


def test_a_ring_does_not_show_its_keys() -> None:
    """repr and str hold ids only, and pickling is refused."""
    ring = KeyRing([("k1", OLD)])
    assert repr(ring) == str(ring) == "KeyRing(key_ids=('k1',))"
    with pytest.raises(TypeError, match="name of its file"):
        pickle.dumps(ring)


# --- files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o022, 0o000, 0o077])
def test_a_created_file_is_private(tmp_path: Path, umask: int) -> None:
    """The file has mode 0600 under any umask, holds the ring, and leaves no draft behind."""
    before = os.umask(umask)
    try:
        ring = KeyRing.create_file(tmp_path / "keys")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o600
    assert KeyRing.from_file(str(tmp_path / "keys")).export() == ring.export()
    assert os.listdir(tmp_path) == ["keys"]


def test_creating_again_reads_the_file(tmp_path: Path) -> None:
    """A second call returns the same keys and does not touch the file."""
    first = KeyRing.create_file(tmp_path / "keys")
    written = (tmp_path / "keys").stat()
    assert KeyRing.create_file(tmp_path / "keys").export() == first.export()
    assert (tmp_path / "keys").stat() == written


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o666])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    """A key that others may have read or replaced is not used; the message gives the mode and the remedy."""
    KeyRing.create_file(tmp_path / "keys")
    (tmp_path / "keys").chmod(mode)
    for read in (KeyRing.from_file, KeyRing.create_file):
        with pytest.raises(ConfigurationError, match=rf"mode {mode:04o}\).*0600"):
            read(tmp_path / "keys")


def test_a_read_only_file_is_accepted(tmp_path: Path) -> None:
    """Mode 0400 is as private as 0600."""
    ring = KeyRing.create_file(tmp_path / "keys")
    (tmp_path / "keys").chmod(0o400)
    assert KeyRing.from_file(tmp_path / "keys").export() == ring.export()


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"\xff\xfe", b"k1:", OLD_TEXT.encode(), b"k1:" + b"A" * 70_000]
)
def test_a_damaged_file_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    """A file without a ring is never replaced by a new key, which would lose what the old one sealed."""
    path = tmp_path / "keys"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError) as caught:
        KeyRing.create_file(path)
    assert path.read_bytes() == content
    assert OLD_TEXT[:20] not in "".join(traceback.format_exception(caught.value))


def test_a_missing_file_is_no_reason_for_a_new_key(tmp_path: Path) -> None:
    """`from_file` refuses, and creates nothing."""
    with pytest.raises(ConfigurationError, match=r"cannot be read \(FileNotFoundError\).*backup"):
        KeyRing.from_file(tmp_path / "keys")
    assert os.listdir(tmp_path) == []


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    """A directory, a dangling link, and a directory that does not exist are configuration errors."""
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for path in (tmp_path, tmp_path / "link", tmp_path / "gone" / "keys"):
        with pytest.raises(ConfigurationError, match="cannot be"):
            KeyRing.create_file(path)
    assert os.listdir(tmp_path) == ["link"]


def test_a_device_is_refused() -> None:
    """Something that is not a regular file is no key file, however private."""
    with pytest.raises(ConfigurationError, match="not a regular file"):
        KeyRing.from_file(os.devnull)


def create_at(barrier: Barrier, path: str) -> str:
    """Create the key file once everybody is here."""
    barrier.wait(30)
    return KeyRing.create_file(path).export()


def test_processes_that_start_together_end_with_one_key(tmp_path: Path) -> None:
    """Eight real processes that create the file at a barrier all hold the same key, in every round."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(8, mp_context=context) as pool:
        barrier = manager.Barrier(8)
        for round_ in range(10):
            path = tmp_path / f"keys-{round_}"
            rings = set(pool.map(create_at, [barrier] * 8, [str(path)] * 8))
            assert rings == {KeyRing.from_file(path).export()}
    assert sorted(os.listdir(tmp_path)) == [f"keys-{round_}" for round_ in range(10)]


def test_threads_that_start_together_end_with_one_key(tmp_path: Path) -> None:
    """The same inside one process."""
    with ThreadPoolExecutor(16) as pool:
        for round_ in range(20):
            path = tmp_path / f"keys-{round_}"
            rings = set(pool.map(lambda _, path=path: KeyRing.create_file(path).export(), range(16)))
            assert rings == {KeyRing.from_file(path).export()}


def test_a_process_killed_while_creating_leaves_no_half_file(tmp_path: Path) -> None:
    """A kill between writing the draft and publishing it leaves no key file, and the next call makes one."""
    program = (
        "import os, signal, sys\n"
        "os.link = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from memoflow.keyring import KeyRing\n"
        "KeyRing.create_file(sys.argv[1])\n"
    )
    path = tmp_path / "keys"
    done = subprocess.run([sys.executable, "-c", program, str(path)], timeout=60, check=False)
    assert done.returncode == -9
    assert not path.exists()
    assert [stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()] == [0o600]
    assert KeyRing.create_file(path).export() == KeyRing.from_file(path).export()
