r"""Which hosts a text reaches, in every way that a client may read it, and what kind of hosts they are.

Two parsers that read one URL differently are how a check is passed and the request goes elsewhere:
``https://good.example\@evil.example/`` is the one host for browsers and the other for Python. So each URL is
read as the URL Standard says (https://url.spec.whatwg.org/) and as ``urllib`` does, and all hosts count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from memoflow.errors import ConfigurationError
from memoflow.inspection.matching import Pattern, encoded

__all__ = ["Host", "Reach", "allowed", "bare_host", "hosts_in", "read_url"]

Reach = Literal["public", "private", "metadata"]

_URL: Final = Pattern(
    r"[A-Za-z][A-Za-z0-9+.-]{0,31}:(?:/{2,}|\\{2,}|/\\|\\/)[^\s\"'`<>(){}|]+", needs=(":/", ":\\")
)
_NO_SCHEME: Final = Pattern(r"(?:^|[\s\"'`(<=])(//[^\s\"'`<>(){}|/\\][^\s\"'`<>(){}|]*)", needs=("//",))
_SCP: Final = Pattern(r"(?:^|[\s\"'`(<=])[A-Za-z0-9._-]+@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+):", needs=("@",))
_NAME: Final = Pattern(
    r"^(?:[^\s/@:\\?#\[\]]+\.)+[^\s/@:\\?#\[\]0-9.][^\s/@:\\?#\[\].]*\.?(?::\d{1,5})?(?:[/?#]|$)"
)
_NUMBER: Final = Pattern(
    r"^(?:0[xX][0-9A-Fa-f]+|\d+)(?:\.(?:0[xX][0-9A-Fa-f]+|\d+)){0,3}\.?(?::\d{1,5})?(?:[/?#]|$)"
)
_LOCAL: Final = Pattern(r"^localhost\.?(?::\d{1,5})?(?:[/?#]|$)", ignore_case=True)
_TRAILING: Final = ".,;:!?)]}>\"'`"

_METADATA: Final = frozenset(
    {
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "metadata.google.internal",
        "metadata.goog",
        "metadata",
        "instance-data",
        "instance-data.ec2.internal",
    }
)
# Services that answer with the address that stands in the name.
_WRAPPED: Final = ("nip.io", "sslip.io", "xip.io", "localtest.me", "lvh.me", "vcap.me")
# is_global says of the translation prefix that it is public; what is translated may not be.
_TRANSLATED: Final = ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True, order=True)
class Host:
    """A host that would be reached.

    Attributes:
        name: in lower case, without port and trailing dot; names in other scripts in their ASCII form.
        reach: whether an address is in a private network, or a host tells a machine's credentials; where a
            name leads is not known here, but for those that hold the address they lead to.
        doubtful: whether the URL was read differently by two parsers, or written to be misread.
    """

    name: str
    reach: Reach = "public"
    doubtful: bool = False


def hosts_in(text: str) -> tuple[Host, ...]:
    """The hosts of all URLs in a text, and of what git and scp write as ``user@host:``, sorted."""
    data = encoded(text)
    found: set[Host] = set()
    # A text may say one URL again and again.
    for url in dict.fromkeys(_URL.texts(data)):
        found.update(read_url(url))
    for url in dict.fromkeys(_NO_SCHEME.texts(data, 1)):
        found.update(read_url(f"https:{url}"))
    for name in _SCP.texts(data, 1):
        found.update(_named([name], doubtful=False))
    return tuple(sorted(found))


def bare_host(text: str) -> tuple[Host, ...]:
    """The host of a text that is nothing but one, with port and path at most, as in a field for it."""
    stripped = text.strip()
    data = encoded(stripped)
    if any(pattern.found_in(data) for pattern in (_NAME, _NUMBER, _LOCAL)):
        return read_url(f"https://{stripped}")
    return ()


def read_url(url: str) -> tuple[Host, ...]:
    """The hosts of one URL, in all readings.

    Raises:
        ConfigurationError: the parser is not installed.
    """
    text = url.rstrip(_TRAILING) if url.count("[") == 0 else url.rstrip(".,;:!?)}>\"'`")
    readings = [name for name in (_standard(text), *_urllib(text)) if name]
    return tuple(sorted(_named(readings, doubtful=len(set(readings)) > 1 or _is_disguised(text))))


def allowed(host: str, entries: Iterable[str]) -> bool:
    """Whether a host is an entry of a list, or stands below one."""
    name = _plain(host)
    return any(name == entry or name.endswith(f".{entry}") for entry in map(_plain, entries) if entry)


def _named(names: Iterable[str], *, doubtful: bool) -> Iterator[Host]:
    for name in set(names):
        yield Host(name, _reach(name), doubtful)


def _plain(name: str) -> str:
    return name.strip().lower().rstrip(".").removeprefix("[").removesuffix("]")


def _standard(url: str) -> str:
    """The host as the URL Standard reads it; nothing for what it refuses."""
    try:
        return _plain(_ada()(_special(url)).hostname)
    except ValueError:
        return ""


def _special(url: str) -> str:
    # Hosts of other schemes are opaque to the standard, but what connects reads them as names all the same.
    scheme, colon, rest = url.partition(":")
    known = scheme.lower() in ("http", "https", "ws", "wss", "ftp")
    return url if known else f"http{colon}{rest}"


def _urllib(url: str) -> Iterator[str]:
    """The host as Python's own clients read it, also after the percent signs in it."""
    try:
        name = urlsplit(url).hostname or ""
    except ValueError:
        return
    unescaped = _plain(unquote(name))
    if unescaped:
        # As ASCII, so that one host in two scripts is not taken for two.
        yield _standard(f"http://{unescaped}") or unescaped


def _is_disguised(url: str) -> bool:
    authority = url.partition(":")[2].lstrip("/\\").replace("\\", "/").partition("/")[0]
    user, at, host = authority.rpartition("@")
    # A user that looks like a host is there to be read as one.
    return bool((at and "." in user) or "%" in host or "\\" in url.partition("?")[0] or not host.isascii())


def _reach(name: str) -> Reach:
    if name in _METADATA:
        return "metadata"
    address = _address(name)
    if address is not None:
        if str(address) in _METADATA:
            return "metadata"
        return "public" if address.is_global and not address.is_multicast else "private"
    return "private" if any(name == one or name.endswith(f".{one}") for one in _WRAPPED) else "public"


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(name.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is None and address in _TRANSLATED:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        return inner or address
    return address


def _ada() -> Any:
    try:
        from ada_url import URL
    except ModuleNotFoundError as missing:
        if missing.name != "ada_url":
            raise
        raise ConfigurationError(
            "Inspection reads URLs with ada-url, which is not installed: "
            "pip install 'memoflow-runtime[inspection]'."
        ) from None
    return URL
