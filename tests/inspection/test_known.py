"""Credentials of the process itself: found however they are written, and not kept as they are."""

from __future__ import annotations

import base64
import gc
from itertools import pairwise
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.errors import ConfigurationError
from memoflow.inspection import Inspector, KnownValues, ToolCall, audit_record
from tests.inspection._events import Told

VALUE = "corr+horse/b@ttery-77"
KNOWN = KnownValues({"SHOP_TOKEN": VALUE})


def names(text: str, known: KnownValues = KNOWN) -> set[str]:
    """The names of the values that are found in a text."""
    return {name for name, _ in known.find(text.encode())}


@pytest.mark.parametrize(
    "written",
    [
        VALUE,
        f"https://a.example/?t={VALUE}&x=1",
        VALUE[::-1],
        VALUE.encode().hex(),
        VALUE.encode().hex().upper(),
        quote(VALUE, safe=""),
        base64.b64encode(VALUE.encode()).decode(),
        base64.b64encode(VALUE.encode()).decode().rstrip("="),
        base64.urlsafe_b64encode(VALUE.encode()).decode(),
    ],
)
def test_a_known_value_is_found_however_it_is_written(written: str) -> None:
    """Raw, reversed, in hexadecimal, percent-encoded, in base64 and base64url."""
    assert names(written) == {"SHOP_TOKEN"}
    assert names(f"before {written} after") == {"SHOP_TOKEN"}


@given(st.text(max_size=12), st.text(max_size=12), st.booleans())
def test_it_is_found_inside_of_something_that_is_encoded(before: str, after: str, url: bool) -> None:
    """At each of the three positions it may have in base64, and in both alphabets."""
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    assert "SHOP_TOKEN" in names(encode(f"{before}{VALUE}{after}".encode("utf-8", "replace")).decode())


@given(st.text(alphabet="abcdef0123456789", min_size=8, max_size=40), st.text(max_size=30))
def test_only_what_is_there_is_found(value: str, text: str) -> None:
    """A value is found in a text if and only if it stands in it in one of its writings."""
    known = KnownValues({"K": value})
    assert names(text + value + text, known) == {"K"}
    if value not in text and value[::-1] not in text and len(text.encode()) < 8:
        assert names(text, known) == set()


@given(st.lists(st.integers(1, len(VALUE) - 1), min_size=1, max_size=4, unique=True))
def test_a_value_that_was_cut_is_found_in_the_pieces(cuts: list[int]) -> None:
    """Over the texts of one call, in their order."""
    edges = [0, *sorted(cuts), len(VALUE)]
    parts = [VALUE[a:b] for a, b in pairwise(edges)]
    told = Told(Inspector(known=KNOWN))
    decision = told(ToolCall("send_message", {f"part{n}": part for n, part in enumerate(parts)}))
    assert (decision.verdict, decision.rule) == ("deny", "deny-known-secret")


def test_a_short_value_is_refused() -> None:
    """It would be found in texts that have nothing to do with it."""
    with pytest.raises(
        ConfigurationError, match=r"'PIN' has 4 bytes; at least 8 .* Leave it out\."
    ) as caught:
        KnownValues({"PIN": "1234"})
    assert "1234" not in str(caught.value).replace("'PIN'", "")


def test_the_environment_tells_credentials_by_their_names() -> None:
    """Names of credentials, and passwords in URLs; not what only points at one."""
    known = KnownValues.from_environment(
        {
            "OPENAI_API_KEY": "o" * 20,
            "GITHUB_TOKEN": "g" * 20,
            "DATABASE_URL": "postgresql://shop:passpass99@db/shop",
            "AWS_ACCESS_KEY_ID": "not-secret-at-all",
            "SSL_KEY_FILE": "/etc/ssl/a-key.pem",
            "PATH": "/usr/bin:/usr/local/bin",
            "TOKEN": "short",
        }
    )
    assert known.names == ("DATABASE_URL", "GITHUB_TOKEN", "OPENAI_API_KEY")
    assert names("passpass99", known) == {"DATABASE_URL"}


def test_nothing_that_is_kept_holds_a_value() -> None:
    """In memory there are digests and four letters; in the record there is the name."""
    known = KnownValues({"SHOP_TOKEN": VALUE})
    kept = [
        part for part in gc.get_referents(known, *gc.get_referents(known)) if isinstance(part, bytes | str)
    ]
    heads = [head for part in gc.get_referents(known) if isinstance(part, dict) for head in part]
    assert [part for part in [*kept, *heads] if len(part) > 4 and part in (VALUE, VALUE.encode())] == []
    assert max(len(head) for head in heads) == 4
    assert VALUE not in repr(known)
    inspector = Inspector(known=known)
    record = audit_record(Told(inspector)(ToolCall("post_note", {"a": VALUE})), inspector.digester)
    assert VALUE not in str(record)
    assert "SHOP_TOKEN" in str(record)
