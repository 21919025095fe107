"""Digests over the canonical form."""

from __future__ import annotations

import hmac
import json
import os
import subprocess
import sys

import pytest

from memoflow.canonical import Digester, canonical, key_of, sha256_hex
from memoflow.errors import ConfigurationError

REQUEST = {
    "model": "gpt-x",
    "input": [{"role": "user", "content": "Où est ma commande n° 42 ? 🙂"}],
    "temperature": 0.7,
    "top_p": 1.0,
    "seed": 9007199254740993,
    "tools": [],
    "metadata": {"ticket": "42", "\ufb33": None, "\U0001f600": True},
}
REQUEST_SHA256 = "fb11fe6da7d361a1c1dd82abf4805b42f657d9cdff3f75fe1d75cbdabfb44e62"


def test_digests_are_fixed() -> None:
    """Digests written here as literals must never change: recorded runs are bound to them."""
    assert sha256_hex({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert sha256_hex(REQUEST) == REQUEST_SHA256
    assert Digester().json(REQUEST) == f"sha256:{REQUEST_SHA256}"
    assert (
        Digester(b"k" * 32, "2026-11").json(REQUEST)
        == "hmac-sha256:2026-11:996c8fb14a5a2e0287c2177291a51c8d8a6794dbf3939998e80674b97125f36b"
    )
    assert (
        Digester().bytes(b"*** begin\n{not json")
        == "sha256:aee52c5f1d28ee116e840543b1af485cb692e9f5f7139c516bfe5cfdf4eed73e"
    )


@pytest.mark.parametrize("seed", ["0", "1"])
def test_digest_does_not_depend_on_the_hash_seed(seed: str) -> None:
    """Another process with another PYTHONHASHSEED computes the same digest."""
    program = (
        "import sys, json; from memoflow.canonical import sha256_hex; "
        "print(sha256_hex(json.loads(sys.stdin.read())))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(REQUEST),
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == REQUEST_SHA256


def test_a_keyed_digest_is_hmac_over_the_form() -> None:
    """It equals the standard library's HMAC, and differs from the plain one and under another key."""
    value = {"answer": "yes"}
    keyed = Digester(b"0123456789abcdef", "k1")
    assert (
        keyed.json(value)
        == "hmac-sha256:k1:" + hmac.new(b"0123456789abcdef", canonical(value), "sha256").hexdigest()
    )
    assert keyed.json(value) == keyed.bytes(b'{"answer":"yes"}')
    assert keyed.json(value) != Digester(b"0123456789abcdeg", "k1").json(value)
    assert Digester().json(value).split(":")[1] not in keyed.json(value)


def test_a_digest_tells_its_key() -> None:
    """By the id in its tag; a plain one has none."""
    assert key_of(Digester(b"k" * 32, "2026-11").json({})) == "2026-11"
    assert key_of(Digester().json({})) is None


@pytest.mark.parametrize(
    ("key", "key_id", "says"),
    [
        (b"k" * 32, None, "needs both"),
        (None, "k1", "needs both"),
        (b"short", "k1", "at least 16 bytes, not 5"),
        (b"k" * 32, "a:b", "characters"),
        (b"k" * 32, "", "characters"),
        (b"k" * 32, "x" * 65, "characters"),
    ],
)
def test_a_digest_key_that_cannot_work_is_refused(key: bytes | None, key_id: str | None, says: str) -> None:
    """Half a key, a short one, or an id that would break the tag is a configuration error."""
    with pytest.raises(ConfigurationError, match=says):
        Digester(key, key_id)


def test_a_digester_does_not_show_its_key() -> None:
    """Neither repr nor str holds the key."""
    assert (
        repr(Digester(b"top-secret-key-0", "k1"))
        == str(Digester(b"top-secret-key-0", "k1"))
        == "Digester(key_id='k1')"
    )
