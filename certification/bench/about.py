"""What a run was measured on and with, and what one commit costs there."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from certification import about as common
from certification.bench.bare import bare_commits
from certification.bench.site import DATABASES, DatabaseKind, Site
from certification.bench.slower import flush_ms
from certification.bench.timing import seconds_of

__all__ = ["about", "commit_ms"]


def about(site: Site, *, postgresql: bool) -> dict[str, Any]:
    """Machine, versions, commit of the source, and what one commit costs on the disk in question."""
    kinds: list[DatabaseKind] = [kind for kind in DATABASES if kind == "sqlite" or postgresql]
    known = common.about()
    if postgresql:
        known["versions"]["postgresql"] = _server_version(site)
    added = {"flush_ms": flush_ms()} if flush_ms() else {}
    return {
        **known,
        **added,
        "quick": site.quick,
        "commit_ms": {kind: commit_ms(site, kind) for kind in kinds},
    }


def commit_ms(site: Site, kind: DatabaseKind) -> float:
    """Milliseconds of one bare durable commit."""
    with bare_commits(site, kind) as bare:
        bare(20)
        return median([_once(bare) for _ in range(site.pick(50, 500))]) * 1e3


def _once(bare: Callable[[int], None]) -> float:
    return seconds_of(lambda: bare(1))


def _server_version(site: Site) -> str:
    import psycopg

    with psycopg.connect(site.server.url) as connection:
        return str(connection.info.parameter_status("server_version"))
