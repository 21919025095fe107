"""Names, identities, ids and idempotency keys."""

from __future__ import annotations

import copy
import os
import pickle
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memoflow import identity
from memoflow.canonical import sha256_hex
from memoflow.errors import InvalidRequest
from memoflow.identity import (
    ActivityIdentity,
    check_name,
    check_person,
    idempotency_key,
    new_id,
    same_person,
)

WHO = ActivityIdentity("acme", "ticket-42", "2026-11-29", "answer#1", "answer", "v1")
EFFECT: dict[str, Any] = {
    "replay_key": "primary",
    "round": 1,
    "ordinal": 0,
    "tool_namespace": None,
    "tool_name": "refund",
    "tool_version": "v3",
    "arguments_digest": "sha256:" + "0" * 64,
}
names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12)


# --- ids --------------------------------------------------------------------------------------------


def test_ids_are_uuids_of_version_7() -> None:
    """An id is the canonical text of an RFC 9562 UUIDv7 that holds the time in milliseconds."""
    before = time.time_ns() // 1_000_000
    value = uuid.UUID(new_id())
    after = time.time_ns() // 1_000_000
    assert str(value) == str(value).lower()
    assert (value.version, value.variant) == (7, uuid.RFC_4122)
    assert before <= value.int >> 80 <= after + 1_000


def test_ids_are_ordered_in_a_thread() -> None:
    """Each id sorts after the one before, as text and as number, however fast they are made."""
    ids = [new_id() for _ in range(20_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_ids_are_unique_and_ordered_over_threads() -> None:
    """Threads that start together get distinct ids, each in its own order, and no stamp twice."""
    barrier = threading.Barrier(8)

    def make(_: int) -> list[str]:
        barrier.wait(30)
        return [new_id() for _ in range(5_000)]

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(make, range(8)))
    assert all(ids == sorted(ids) for ids in made)
    stamps = [one.replace("-", "")[:16] for ids in made for one in ids]
    assert len(set(stamps)) == 8 * 5_000


def test_ids_stay_ordered_when_the_clock_steps_back() -> None:
    """An hour lost by the clock does not put a new id before an old one."""
    first = new_id()
    with patch("memoflow.identity.time.time_ns", return_value=time.time_ns() - 3_600 * 10**9):
        assert first < new_id() < new_id()


def test_ids_of_one_instant_differ_by_chance_too() -> None:
    """Two processes with the same clock differ in the 62 random bits."""
    tails = set()
    for _ in range(1_000):
        with patch.object(identity, "_last", 0), patch("memoflow.identity.time.time_ns", return_value=10**18):
            tails.add(uuid.UUID(new_id()).int & (1 << 62) - 1)
    assert len(tails) == 1_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_can_make_ids() -> None:
    """A child forked while another thread holds the lock is not stuck, and its ids differ from ours."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with identity._lock:
            held.set()
            release.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, new_id().encode())
        os._exit(0)
    os.close(write)
    release.set()
    thread.join(30)
    deadline = time.monotonic() + 30
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, 9)
        time.sleep(0.01)
    with open(read) as pipe:
        theirs = pipe.read()
    assert uuid.UUID(theirs).version == 7
    assert theirs != new_id()


# --- names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "x" * 256, "ticket 42/é/🙂", "caf\u0065\u0301", " ", "\u2028"])
def test_names_are_kept_as_they_are(name: str) -> None:
    """Any text of 1 to 256 code points without control characters is a name, unchanged."""
    assert check_name("workflow_id", name) == name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "have 1 to 256 characters, not 0"),
        ("x" * 257, "have 1 to 256 characters, not 257"),
        ("a\0b", "control characters or lone surrogates"),
        ("a\nb", "control characters or lone surrogates"),
        ("\x1b[31m", "control characters or lone surrogates"),
        ("a\x7f", "control characters or lone surrogates"),
        ("\x9b31m", "control characters or lone surrogates"),
        ("\ud83d", "control characters or lone surrogates"),
        (None, "be text, not NoneType"),
        (42, "be text, not int"),
        (b"a", "be text, not bytes"),
        (uuid.UUID(int=0), "be text, not UUID"),
    ],
)
def test_what_cannot_be_stored_is_no_name(name: object, says: str) -> None:
    """NUL, escape sequences and lone surrogates are refused before anything is written, and not shown."""
    with pytest.raises(InvalidRequest, match=f"^run_id must .*{says}") as caught:
        check_name("run_id", name)
    assert str(caught.value).isprintable()


def test_names_of_many_bytes_are_refused() -> None:
    """Four of them are one key of an index, and that takes no more."""
    assert check_name("run_id", "\U0001f600" * 128)
    with pytest.raises(InvalidRequest, match="at most 512 bytes as UTF-8, not 516"):
        check_name("run_id", "\U0001f600" * 129)


def test_a_name_can_have_another_limit() -> None:
    """The limit is an argument, counts code points, and is inclusive."""
    assert check_name("key", "🙂🙂", limit=2) == "🙂🙂"
    with pytest.raises(InvalidRequest, match="1 to 2 characters, not 3"):
        check_name("key", "🙂🙂🙂", limit=2)


@pytest.mark.parametrize("field", ActivityIdentity.__slots__)
@pytest.mark.parametrize("bad", ["", "a\0", 7, None, "x" * 257])
def test_every_part_of_an_identity_is_a_name(field: str, bad: Any) -> None:
    """No part can be left empty or hold what a database cannot store; the refusal says which."""
    with pytest.raises(InvalidRequest, match=f"^{field} must"):
        replace(WHO, **{field: bad})


def test_identities_are_values() -> None:
    """Equal identities are equal and hash alike, cannot be changed, and survive copy and pickle."""
    assert len({WHO, replace(WHO), copy.deepcopy(WHO), pickle.loads(pickle.dumps(WHO))}) == 1
    assert str(WHO) == "acme/ticket-42/2026-11-29/answer#1"
    with pytest.raises(AttributeError):
        WHO.run_id = "other"  # type: ignore[misc]


# --- idempotency keys -------------------------------------------------------------------------------


def test_idempotency_keys_are_fixed() -> None:
    """Keys written here as literals must never change: tools have sent them to other systems."""
    assert (
        idempotency_key(WHO, **EFFECT)
        == "mf1_89288cc97824190511f7618044501577bffd94bf039392cc96f14b652a49ca72"
    )
    assert (
        idempotency_key(WHO, **{**EFFECT, "tool_namespace": "billing"})
        == "mf1_0a8a9d278042bdb96a8a1b952d89587b9c8b0ae4ffabb2ac75a8ebabb44d091a"
    )


def test_the_key_is_the_digest_of_the_listed_parts() -> None:
    """`mf1_` and SHA-256 over the canonical list that the semantics name, in that order."""
    parts = ["acme", "ticket-42", "2026-11-29", "answer", "answer#1", "primary", 1, 0, None, "refund", "v3"]
    assert idempotency_key(WHO, **EFFECT) == "mf1_" + sha256_hex([*parts, EFFECT["arguments_digest"]])


def test_every_part_changes_the_key() -> None:
    """Another value of any single part gives another key."""
    identities = [replace(WHO, **{f: "other"}) for f in ActivityIdentity.__slots__ if f != "activity_version"]
    effects = [{**EFFECT, part: 9 if isinstance(value, int) else "other"} for part, value in EFFECT.items()]
    found = {idempotency_key(WHO, **EFFECT)}
    found |= {idempotency_key(who, **EFFECT) for who in identities}
    found |= {idempotency_key(WHO, **effect) for effect in effects}
    assert len(found) == 1 + 5 + 7


def test_the_version_of_the_activity_is_not_part_of_the_key() -> None:
    """A new version of the workflow code that retries an effect must present the same key."""
    assert idempotency_key(replace(WHO, activity_version="v2"), **EFFECT) == idempotency_key(WHO, **EFFECT)


def test_no_namespace_is_not_an_empty_one() -> None:
    """A tool without a namespace and one in the namespace '' or 'None' are three tools."""
    spaces: list[Any] = [None, "", "None", "null"]
    assert len({idempotency_key(WHO, **{**EFFECT, "tool_namespace": space}) for space in spaces}) == 4


@given(st.lists(names, min_size=5, max_size=5), st.lists(names, min_size=5, max_size=5))
def test_neighbouring_parts_do_not_run_together(a: list[str], b: list[str]) -> None:
    """Two identities share a key only if they are the same: moving characters between parts is noticed."""
    assume(a != b)
    one, two = (ActivityIdentity(*parts, "v1") for parts in (a, b))
    assert idempotency_key(one, **EFFECT) != idempotency_key(two, **EFFECT)


def test_moving_a_character_between_parts_changes_the_key() -> None:
    """("ab", "c") and ("a", "bc") are different effects."""
    one = replace(WHO, workflow_id="ab", run_id="c")
    two = replace(WHO, workflow_id="a", run_id="bc")
    assert idempotency_key(one, **EFFECT) != idempotency_key(two, **EFFECT)


# --- people -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        *("ALICE", " alice ", "al ice", "alice\u00a0", "human:alice", "Human: Alice", "human:human:alice"),
        *(
            "\uff41lice",
            "ali\u200bce",
            "\u2066alice",
            "ali\u00adce",
            "alice\ufe0f",
            "a\u034flice",
            "\u3164alice",
        ),
    ],
)
def test_one_name_written_in_two_ways_is_one_person(other: str) -> None:
    """Case, blanks, what does not show, compatibility forms and the kind make nobody else of one."""
    assert same_person("alice", other)
    assert same_person(other, "alice")


@pytest.mark.parametrize(("one", "other"), [("jos\u00e9", "jose\u0301"), ("stra\u00dfe", "STRASSE")])
def test_people_are_compared_as_unicode_does(one: str, other: str) -> None:
    """By what is written, not by how it is composed."""
    assert same_person(one, other)


@pytest.mark.parametrize("other", ["bob", "alice2", "agent:alice", "\u0430lice"])
def test_other_people_are_others(other: str) -> None:
    """Another name, another kind, and a letter of another alphabet."""
    assert not same_person("alice", other)


@pytest.mark.parametrize("nobody", ["", " ", "\u00a0", "\u200b\u2060", "human:", "\x00", 7])
def test_a_person_has_a_name_that_shows(nobody: Any) -> None:
    """Blanks and what does not show name nobody."""
    with pytest.raises(InvalidRequest):
        check_person("approver", nobody)
    assert check_person("approver", "al ice") == "al ice"
