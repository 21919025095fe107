"""One hot budget under load beside one-step workflows of DBOS, on the same disk."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from certification.bench.peers import Peer, load_peer
from certification.bench.report import Figure, at_least
from certification.bench.site import DATABASES, DatabaseKind, Site
from certification.bench.timing import Samples, interleave, ratio

__all__ = ["measure"]

CALLERS = (1, 16, 64)
PACKAGES = ("dbos>=3,<4", "psycopg[binary]")


@dataclass(frozen=True, slots=True)
class Setup:
    """One way to run DBOS, and by how much memoflow has to be faster on the same database."""

    name: str
    kind: DatabaseKind
    options: tuple[str, ...]
    bound: float
    text: str


SETUPS = (
    Setup("sqlite", "sqlite", (), 30, "SQLite as shipped"),
    Setup("sqlite_wal", "sqlite", ("--preset",), 8, "SQLite with WAL + FULL"),
    Setup("postgresql", "postgresql", (), 6, "PostgreSQL"),
)


def measure(site: Site) -> Iterator[Figure]:
    """memoflow with 64 callers over DBOS with as many callers as suit it best."""
    with ExitStack() as stack:
        ours = {kind: stack.enter_context(load_peer(site.ledger(kind), "--put", "1")) for kind in DATABASES}
        theirs = {setup.name: stack.enter_context(_dbos_peer(site, setup)) for setup in SETUPS}
        measures: dict[str, Callable[[], float]] = {}
        for callers in CALLERS:
            for kind, peer in ours.items():
                measures[f"memoflow {kind} {callers}"] = _rate(peer, callers, site.pick(2, 40))
            for name, peer in theirs.items():
                measures[f"dbos {name} {callers}"] = _rate(peer, callers, site.pick(1, 10))
        samples = interleave(site.pick(2, 7), measures)
    for setup in SETUPS:
        yield _figure(setup, samples)


def _rate(peer: Peer, callers: int, share: int) -> Callable[[], float]:
    """Units of work a second. One caller waits for each commit and gets less to do than many."""
    total = share * (10 + callers)
    return lambda: total / peer.ask(callers=callers, total=total)["seconds"]


def _figure(setup: Setup, samples: Samples) -> Figure:
    own = {
        f"{who} {callers}": samples[f"{who} {name} {callers}"]
        for who, name in (("memoflow", setup.kind), ("dbos", setup.name))
        for callers in CALLERS
    }
    best = max(CALLERS, key=lambda callers: median(own[f"dbos {callers}"]))
    most = CALLERS[-1]
    return Figure(
        f"dbos.{setup.name}",
        f"one hot budget, {most} callers: activities / one-step workflows of DBOS on {setup.text}",
        ratio(own, f"memoflow {most}", f"dbos {best}"),
        "",
        at_least(setup.bound),
        own,
        f"a second, by callers; DBOS was fastest with {best}",
    )


def _dbos_peer(site: Site, setup: Setup) -> Peer:
    url = site.database(setup.kind)
    command = [_dbos_python(), "-m", "certification.bench.dbos_load", "--url", url, *setup.options]
    peer = Peer(command)
    # Its first line, once it is up, is its version.
    peer.receive()
    peer.ask(callers=64, total=192)
    return peer


def _dbos_python() -> str:
    """An interpreter that has DBOS: this one, or one of a virtual environment that is made for it."""
    if importlib.util.find_spec("dbos") is not None:
        return sys.executable
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "memoflow-bench" / f"dbos-py{sys.version_info.major}{sys.version_info.minor}"
    python = home / "bin" / "python"
    probe = [str(python), "-c", "import dbos, psycopg"]
    if not python.exists() or subprocess.run(probe, check=False, capture_output=True).returncode:
        venv.create(home, with_pip=True, clear=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True, stderr=subprocess.DEVNULL
        )
    return str(python)
