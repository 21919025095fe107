"""Hosts: every reading of a URL, every spelling of an address, and which networks they are in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.inspection.hosts import Host, allowed, bare_host, hosts_in


def names(text: str) -> list[str]:
    """The names of the hosts in a text."""
    return [host.name for host in hosts_in(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://Example.ORG:8080/a?b#c", ["example.org"]),
        ("https://example.org./a", ["example.org"]),
        ("see <https://a.example/x>, or (https://b.example/y).", ["a.example", "b.example"]),
        ("https://user:pw@evil.example/", ["evil.example"]),
        ("ssh://git@host.example/x", ["host.example"]),
        ("s3://bucket-name/key", ["bucket-name"]),
        ("git@host.example:acme/shop", ["host.example"]),
        ("//evil.example/x", ["evil.example"]),
        ("src='//evil.example/x'", ["evil.example"]),
        ("https:\\\\evil.example\\x", ["evil.example"]),
        ("http://[2001:4860:4860::8888]:443/", ["2001:4860:4860::8888"]),
        ("http://b\u00fccher.example/", ["xn--bcher-kva.example"]),
        ("http://xn--bcher-kva.example/", ["xn--bcher-kva.example"]),
        ("http://evil%2eexample/", ["evil.example"]),
        ("http://\uff45vil.example/", ["evil.example"]),
        ("a // comment and a path /etc/hosts", []),
        ("jo@acme.example", []),
        ("no host at all", []),
    ],
)
def test_hosts_are_found_in_texts(text: str, expected: list[str]) -> None:
    """In lower case, without port and trailing dot, in their ASCII form."""
    assert names(text) == expected


@pytest.mark.parametrize(
    "written",
    ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0x7f.1", "127.0.0.1.", "\uff11\uff12\uff17.0.0.1"],
)
def test_an_address_is_the_same_in_every_spelling(written: str) -> None:
    """Decimal, hexadecimal, octal, short: all are what a client connects to."""
    assert "127.0.0.1" in names(f"http://{written}/")


@pytest.mark.parametrize(
    ("url", "good", "evil"),
    [
        ("https://good.example\\@evil.example/", "good.example", "evil.example"),
        ("https://good.example@evil.example/", None, "evil.example"),
        ("https://good.example%2f@evil.example/", None, "evil.example"),
        ("https://evil.example#@good.example/", None, "evil.example"),
        ("https://evil.example\\.good.example/", "evil.example", None),
    ],
)
def test_what_two_clients_read_differently_counts_for_both(
    url: str, good: str | None, evil: str | None
) -> None:
    """And is doubtful where somebody wrote it to be misread."""
    found = hosts_in(url)
    assert {name for name in (good, evil) if name} <= {host.name for host in found}
    assert any(host.doubtful for host in found) or "#" in url


@pytest.mark.parametrize(
    ("url", "reach"),
    [
        ("http://169.254.169.254/", "metadata"),
        ("http://2852039166/", "metadata"),
        ("http://[::ffff:169.254.169.254]/", "metadata"),
        ("http://[64:ff9b::a9fe:a9fe]/", "metadata"),
        ("http://[fd00:ec2::254]/", "metadata"),
        ("http://metadata.google.internal/", "metadata"),
        ("http://100.100.100.200/", "metadata"),
        ("http://10.0.0.1/", "private"),
        ("http://172.16.3.4/", "private"),
        ("http://192.168.1.1/", "private"),
        ("http://127.0.0.2/", "private"),
        ("http://0.0.0.0/", "private"),
        ("http://169.254.1.1/", "private"),
        ("http://[::1]/", "private"),
        ("http://[fe80::1]/", "private"),
        ("http://[fc00::1]/", "private"),
        ("http://[::ffff:10.0.0.1]/", "private"),
        ("http://224.0.0.1/", "private"),
        ("http://10.0.0.1.nip.io/", "private"),
        ("http://8.8.8.8/", "public"),
        ("http://[2001:4860:4860::8888]/", "public"),
        ("http://example.org/", "public"),
    ],
)
def test_the_network_of_a_host_is_known(url: str, reach: str) -> None:
    """Private and link-local ranges, wherever they are wrapped, and what tells a machine's credentials."""
    assert {host.reach for host in hosts_in(url)} == {reach}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("evil.example", ["evil.example"]),
        ("evil.example:443/path", ["evil.example"]),
        ("LOCALHOST", ["localhost"]),
        ("10.0.0.1", ["10.0.0.1"]),
        ("2852039166", ["169.254.169.254"]),
        ("not a host.", []),
        ("index", []),
        ("jo@acme.example", []),
    ],
)
def test_a_field_for_a_host_may_hold_nothing_else(text: str, expected: list[str]) -> None:
    """With port and path at most."""
    assert [host.name for host in bare_host(text)] == expected


@pytest.mark.parametrize(
    ("host", "entries", "is_allowed"),
    [
        ("example.org", ["example.org"], True),
        ("a.b.example.org", ["example.org"], True),
        ("Example.ORG.", ["EXAMPLE.org."], True),
        ("notexample.org", ["example.org"], False),
        ("example.org.evil.net", ["example.org"], False),
        ("example.org", [], False),
        ("example.org", [""], False),
        ("::1", ["::1"], True),
    ],
)
def test_a_list_allows_its_hosts_and_those_below(host: str, entries: list[str], is_allowed: bool) -> None:
    """On the boundary of a dot, in any case; an empty list allows nothing."""
    assert allowed(host, entries) is is_allowed


@given(st.text(max_size=60))
def test_no_text_breaks_the_reading_of_hosts(text: str) -> None:
    """Whatever it is, hosts come out sorted and without repetition."""
    found = hosts_in(f"http://{text} //{text} {text}")
    assert list(found) == sorted(set(found))
    assert all(isinstance(host, Host) and host.name for host in found)
    assert isinstance(bare_host(text), tuple)
