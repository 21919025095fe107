"""Where a call reaches, and what is wrong with that beyond not being on a list.

Only what is reached counts: URLs and hosts in arguments for them, in commands, and values that are nothing
but a URL. A link in the body of a message or in a file that is written reaches nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from memoflow.inspection.arguments import Argument
from memoflow.inspection.detectors.secrets import secrets
from memoflow.inspection.facets import Piece
from memoflow.inspection.findings import Finding, Severity, severe
from memoflow.inspection.hosts import Host, allowed, bare_host, hosts_in
from memoflow.inspection.matching import encoded, first_of
from memoflow.inspection.normalise import normalised

__all__ = ["Egress", "egress_of"]

_BY_REACH: Final[dict[str, tuple[str, Severity]]] = {
    "metadata": ("egress.metadata", "critical"),
    "private": ("egress.private", "high"),
}


@dataclass(frozen=True, slots=True)
class Egress:
    """The hosts that a call reaches, and what is wrong with them.

    Attributes:
        hosts: all of them, sorted.
        listed: whether every one is on the list.
        findings: private hosts, those that tell credentials, doubtful URLs, and credentials in URLs.
    """

    hosts: tuple[Host, ...]
    listed: bool
    findings: tuple[Finding, ...]


def egress_of(pieces: tuple[Piece, ...], arguments: tuple[Argument, ...], allowlist: Iterable[str]) -> Egress:
    """Where a call reaches, by its arguments."""
    entries = tuple(allowlist)
    texts = dict.fromkeys(_reaching(pieces, arguments))
    hosts = sorted({host for text in texts for host in _hosts(text)})
    named = {host for one in arguments if one.kind in ("host", "url") for host in _bare(one.piece.text)}
    hosts = sorted({*hosts, *named})
    foreign = [host for host in hosts if not allowed(host.name, entries)]
    findings = [*map(_finding, foreign), *(_doubtful(host) for host in hosts if host.doubtful)]
    if foreign:
        findings += _secrets_in(texts)
    return Egress(tuple(hosts), not foreign, tuple(dict.fromkeys(one for one in findings if one is not None)))


def _reaching(pieces: tuple[Piece, ...], arguments: tuple[Argument, ...]) -> Iterator[str]:
    for argument in arguments:
        if argument.kind in ("command", "host", "url"):
            yield argument.piece.text
    for piece in pieces:
        text = piece.text.strip()
        if piece.part == "value" and ("://" in text or text.startswith("//")) and len(text.split()) == 1:
            yield text


def _hosts(text: str) -> set[Host]:
    return {*hosts_in(text), *hosts_in(normalised(text))}


def _bare(text: str) -> set[Host]:
    return {*bare_host(text), *bare_host(normalised(text))}


def _finding(host: Host) -> Finding | None:
    found = _BY_REACH.get(host.reach)
    return None if found is None else Finding(*found, 100, "tool_args", len(encoded(host.name)))


def _doubtful(host: Host) -> Finding:
    return Finding("egress.ambiguous", "high", 90, "tool_args", len(encoded(host.name)))


def _secrets_in(texts: Iterable[str]) -> Iterator[Finding]:
    """Credentials in what goes to a host that is not listed: a GET carries them as a POST does."""
    for text in texts:
        data, _ = first_of(encoded(text))
        for hit in secrets(data):
            if severe(hit.severity, "high"):
                yield Finding(
                    "egress.secret_in_url", "critical", hit.confidence, "tool_args", hit.end - hit.start
                )
