"""The protected output store: sealed, bound to its place, kept for a time, and erased."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from memoflow.errors import ResultNotRetained
from memoflow.identity import ActivityIdentity
from memoflow.keyring import KeyRing
from memoflow.ledger import schema as s
from memoflow.ledger.activities import ClaimActivity, CompleteActivity, Fence
from memoflow.ledger.outputs import (
    OutputRow,
    Vault,
    purge_expired,
    read_output,
    sealed_with,
    sealing_key,
)
from memoflow.ledger.places import output_place, reply_place, response_id_place, result_place
from memoflow.ledger.retention import PurgeExpired
from memoflow.periods import DAY_US
from tests.ledger._calls import NAMESPACE, SECOND, START, Ledger, ask, effect, identity, open_ledger, settle
from tests.ledger._tables import tables

KEYS = KeyRing([("k2", b"2" * 32), ("k1", b"1" * 32)])
OLD_KEYS = KeyRing([("k1", b"1" * 32)])
VALUE = b'{"answer": "SECRET-MARKER-\xc3\xa9"}'
PLACE, BINDING = "turn/0", "sha256:request"


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """A fresh ledger with one account on each kind of database."""
    with open_ledger(database_url) as opened:
        opened.put("acme")
        yield opened


@pytest.fixture
def vault() -> Vault:
    """A vault that keeps values for thirty days."""
    return Vault(KEYS, retention_days=30)


def seal(vault: Vault, owner: str = "owner", kind: str = "reply") -> OutputRow:
    """A sealed value."""
    return vault.seal(identity(), owner, kind, place=PLACE, binding=BINDING, value=VALUE)


def reopen(vault: Vault, row: OutputRow | None, who: ActivityIdentity | None = None) -> bytes:
    """The value of a row, opened where it was sealed."""
    return vault.open(who or identity(), row, place=PLACE, binding=BINDING, what="reply")


def kept(ledger: Ledger, vault: Vault) -> tuple[Fence, str]:
    """An invocation whose reply is in the store."""
    fence = ledger.claim()
    id = ledger.start(fence, ask())
    ledger.settle(fence, id, 1, 2, outputs=(seal(vault, id),))
    return fence, id


def stored(ledger: Ledger, owner: str, kind: str = "reply") -> OutputRow | None:
    """What the store holds for an owner."""
    return ledger.read(lambda connection: read_output(connection, owner, kind))


# Sealing


def test_a_value_comes_back_as_it_was(vault: Vault) -> None:
    """Byte for byte, under the current key."""
    row = seal(vault)
    assert (row.owner_id, row.kind, row.binding, row.key_id) == ("owner", "reply", BINDING, "k2")
    assert reopen(vault, row) == VALUE
    assert vault.open(identity(), seal(vault), place=PLACE, binding=BINDING, what="x") == VALUE


@pytest.mark.parametrize("value", [b"", b"\x00" * 16, os.urandom(1_000_000)])
def test_any_bytes_can_be_kept(vault: Vault, value: bytes) -> None:
    """Nothing at all, zeros, and a megabyte."""
    row = vault.seal(identity(), "owner", "output", place="", binding="", value=value)
    assert vault.open(identity(), row, place="", binding="", what="output") == value


def test_the_same_value_is_never_sealed_alike(vault: Vault) -> None:
    """Nobody can tell from the store that two values are equal."""
    assert seal(vault).ciphertext != seal(vault).ciphertext


def test_no_plaintext_is_in_the_ledger(ledger: Ledger, vault: Vault) -> None:
    """Not in any column of any row; only ciphertext is."""
    kept(ledger, vault)
    everything = repr(tables(ledger)).encode() + repr(seal(vault)).encode()
    assert b"SECRET" not in everything
    assert b"ciphertext" in everything


@pytest.mark.parametrize(
    "who",
    [
        replace(identity(), namespace="others"),
        replace(identity(), workflow_id="other"),
        replace(identity(), run_id="other"),
        replace(identity(), activity_id="other"),
        replace(identity(), activity_type="other"),
    ],
)
def test_only_the_activity_that_owns_a_value_can_open_it(vault: Vault, who: ActivityIdentity) -> None:
    """Whatever of its identity differs, the value does not decrypt."""
    with pytest.raises(ResultNotRetained) as lost:
        reopen(vault, seal(vault), who)
    assert "altered or moved" in lost.value.reason


def test_a_new_version_of_an_activity_can_open_what_the_old_one_kept(vault: Vault) -> None:
    """A deployed fix reads the record; whether it may is for the activity to say."""
    assert reopen(vault, seal(vault), replace(identity(), activity_version="v2")) == VALUE


@pytest.mark.parametrize("changes", [{"place": "turn/1"}, {"binding": "sha256:another"}])
def test_a_value_opens_in_its_place_alone(vault: Vault, changes: dict[str, str]) -> None:
    """Another round, key or request: another place."""
    where = {"place": PLACE, "binding": BINDING} | changes
    with pytest.raises(ResultNotRetained):
        vault.open(identity(), seal(vault), what="reply", **where)


def flipped(data: bytes | None, at: int) -> bytes:
    """The same bytes, one bit changed."""
    assert data is not None
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


TAMPERED: dict[str, Callable[[OutputRow], OutputRow]] = {
    "first byte": lambda row: replace(row, ciphertext=flipped(row.ciphertext, 0)),
    "tag": lambda row: replace(row, ciphertext=flipped(row.ciphertext, -1 + len(row.ciphertext or b""))),
    "nonce": lambda row: replace(row, nonce=flipped(row.nonce, 3)),
    "cut short": lambda row: replace(row, ciphertext=(row.ciphertext or b"")[:-1]),
    "cut to nothing": lambda row: replace(row, ciphertext=b""),
    "short nonce": lambda row: replace(row, nonce=b"x"),
    "kind": lambda row: replace(row, kind="result"),
    "other key": lambda row: replace(row, key_id="k1"),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_an_altered_value_does_not_open(vault: Vault, how: str) -> None:
    """Every byte of a row that decides what it says is checked; nothing of a bad one is used."""
    with pytest.raises(ResultNotRetained) as lost:
        reopen(vault, TAMPERED[how](seal(vault)))
    assert "altered or moved" in lost.value.reason
    assert "SECRET" not in str(lost.value)


def test_two_values_cannot_be_swapped(ledger: Ledger, vault: Vault) -> None:
    """A row that was copied over another's does not open there."""
    first = vault.seal(identity(), "a", "reply", place="turn/0", binding=BINDING, value=b"first")
    second = vault.seal(identity(), "b", "reply", place="turn/1", binding=BINDING, value=b"second")
    swapped = replace(first, nonce=second.nonce, ciphertext=second.ciphertext)
    with pytest.raises(ResultNotRetained):
        vault.open(identity(), swapped, place="turn/0", binding=BINDING, what="reply")


# Keys


def test_a_rotated_key_still_opens_what_it_sealed(vault: Vault) -> None:
    """New values are sealed with the first key; old ones open as long as theirs is on the ring."""
    old = seal(Vault(OLD_KEYS, retention_days=30))
    assert old.key_id == "k1"
    assert reopen(vault, old) == VALUE


def test_a_value_whose_key_is_gone_names_the_key(vault: Vault) -> None:
    """So that the operator knows which one to put back."""
    with pytest.raises(ResultNotRetained, match="'k2' is not on the key ring") as lost:
        reopen(Vault(OLD_KEYS, retention_days=30), seal(vault))
    assert lost.value.key_id == "k2"
    assert "add key 'k2' to MEMOFLOW_OUTPUT_KEYS" in str(lost.value)
    assert "run_id" not in str(lost.value)


def test_what_is_added_later_is_sealed_with_the_key_of_the_reply(ledger: Ledger, vault: Vault) -> None:
    """Else with the one used last in this namespace; a purged value says nothing about the keys in use."""
    find = partial(sealing_key, namespace=NAMESPACE, invocation_id="i")
    assert (ledger.read(find), ledger.read(sealed_with)) == (None, None)
    _, id = kept(ledger, Vault(OLD_KEYS, retention_days=30))
    ledger.now += SECOND
    other = ledger.claim(identity("another"))
    newer = ledger.start(other, ask())
    ledger.settle(other, newer, outputs=(seal(vault, newer),))
    assert ledger.read(find) == "k2"
    of_reply = partial(sealing_key, namespace=NAMESPACE, invocation_id=id)
    assert ledger.read(of_reply) == "k1"
    assert ledger.read(partial(sealing_key, namespace="others", invocation_id="i")) is None
    assert ledger.read(sealed_with) in ("k1", "k2")
    ledger.now += 30 * DAY_US
    ledger.do(PurgeExpired(NAMESPACE))
    assert (ledger.read(of_reply), ledger.read(sealed_with)) == ("k2", None)


# Keeping and erasing


def test_a_kept_value_can_be_read_back(ledger: Ledger, vault: Vault) -> None:
    """By its owner and kind, as it was sealed."""
    _, id = kept(ledger, vault)
    assert reopen(vault, stored(ledger, id)) == VALUE
    assert stored(ledger, id, "result") is None
    assert stored(ledger, "nobody") is None
    with pytest.raises(ResultNotRetained, match="purged or never kept"):
        reopen(vault, stored(ledger, "nobody"))


def test_retention_counts_from_the_writing(ledger: Ledger, vault: Vault) -> None:
    """By the database's clock, and not from the sealing."""
    row = seal(vault, "x")
    ledger.now += 5 * DAY_US
    fence = ledger.claim()
    id = ledger.start(fence, ask())
    ledger.settle(fence, id, outputs=(replace(row, owner_id=id),))
    (found,) = ledger.rows(s.outputs)
    assert (found.created_at, found.expires_at) == (START + 5 * DAY_US, START + 35 * DAY_US)
    assert found.purged_at is None


def test_without_a_retention_values_stay(ledger: Ledger) -> None:
    """Nothing expires that was not said to."""
    kept(ledger, Vault(KEYS, retention_days=None))
    ledger.now += 100 * 365 * DAY_US
    assert ledger.do(PurgeExpired(NAMESPACE)) == 0
    assert ledger.rows(s.outputs)[0].expires_at is None


def test_a_purge_erases_what_has_expired_and_nothing_else(ledger: Ledger, vault: Vault) -> None:
    """At the instant of its expiry a value is erased; younger ones and everything about it stay."""
    _, old = kept(ledger, vault)
    digest = ledger.row(s.invocations, old).response_digest
    ledger.now += DAY_US
    again = ledger.claim(identity("another"))
    young = ledger.start(again, ask())
    ledger.settle(again, young, outputs=(seal(vault, young),))
    ledger.now = START + 30 * DAY_US - 1
    assert ledger.do(PurgeExpired(NAMESPACE)) == 0
    ledger.now += 1
    assert ledger.do(PurgeExpired(NAMESPACE)) == 1
    gone = ledger.rows(s.outputs, owner_id=old)[0]
    assert (gone.nonce, gone.ciphertext, gone.purged_at) == (None, None, START + 30 * DAY_US)
    assert (gone.binding, gone.key_id, gone.created_at) == (BINDING, "k2", START)
    assert ledger.row(s.invocations, old).response_digest == digest
    assert reopen(vault, stored(ledger, young)) == VALUE
    with pytest.raises(ResultNotRetained, match="purged or never kept"):
        reopen(vault, stored(ledger, old))


def test_a_purge_is_done_once(ledger: Ledger, vault: Vault) -> None:
    """Purging again finds nothing, and the time of the first purge stays."""
    kept(ledger, vault)
    ledger.now += 30 * DAY_US
    assert ledger.do_all(PurgeExpired(NAMESPACE), PurgeExpired(NAMESPACE)) == [1, 0]
    ledger.now += DAY_US
    assert ledger.do(PurgeExpired(NAMESPACE)) == 0
    assert ledger.rows(s.outputs)[0].purged_at == START + 30 * DAY_US


def test_a_purge_stays_in_its_namespace(ledger: Ledger, vault: Vault) -> None:
    """Another tenant's retention is another tenant's."""
    kept(ledger, vault)
    ledger.now += 365 * DAY_US
    assert ledger.do(PurgeExpired("others")) == 0
    with ledger.database.write() as connection:
        assert purge_expired(connection, NAMESPACE, ledger.now) == 1


def test_a_purged_output_is_no_reason_to_run_again(ledger: Ledger, vault: Vault) -> None:
    """The activity stays completed; only its value is gone."""
    fence = ledger.claim()
    ledger.do(CompleteActivity(fence, "sha256:output", seal(vault, fence.activity_id, "output")))
    ledger.now += 31 * DAY_US
    ledger.do(PurgeExpired(NAMESPACE))
    claim = ledger.do(ClaimActivity(identity(), "sha256:input", 1, "worker-2"))
    assert (claim.completed, claim.output_digest) == (True, "sha256:output")
    assert len(ledger.rows(s.attempts)) == 1


# Places


def test_every_value_of_an_activity_has_a_place_of_its_own() -> None:
    """Replies by turn and round, results by key, ids by invocation, outputs: none can pass for another."""
    places = [
        reply_place("turn", 0, "sha256:r"),
        reply_place("turn", 1, "sha256:r"),
        reply_place("turn/1", 0, "sha256:r"),
        reply_place("other", 0, "sha256:r"),
        reply_place("turn", 0, "sha256:other"),
        result_place("mf1_a", "sha256:a"),
        result_place("mf1_b", "sha256:a"),
        result_place("mf1_a", "sha256:b"),
        response_id_place("one"),
        response_id_place("two"),
        output_place("sha256:a"),
        output_place("sha256:b"),
    ]
    assert len(set(places)) == len(places)


def test_a_result_is_kept_with_the_effect_it_is_of(ledger: Ledger, vault: Vault) -> None:
    """Owner, kind and place go together: a reply's row is not found as a result."""
    fence = ledger.claim()
    id = ledger.start(fence, ask())
    new = effect(id)
    ledger.do(settle(fence, id, outputs=(seal(vault, id), seal(vault, id, "response_id")), effects=(new,)))
    assert stored(ledger, id, "response_id") is not None
    assert stored(ledger, new.id, "result") is None
