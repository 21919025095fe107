"""``python -m certification bench``: run figures, print the table, keep the samples, draw the plots."""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from certification.bench.about import about
from certification.bench.plot import plots
from certification.bench.report import Figure, table, write_json
from certification.bench.site import DATABASES, Site
from certification.bench.slower import flush_ms, restart

__all__ = ["main", "run"]

FIGURES: Final = (
    "commits",
    "one_caller",
    "dbos",
    "row_lock",
    "cpu",
    "restore",
    "growth",
    "digest",
    "streaming",
    "event_loop",
    "imports",
    "workers",
    "gateway",
)
"""Modules of `certification.bench.figures`, in the order of the page that sets the targets."""
ON_SQLITE_ONLY: Final = frozenset({"digest", "streaming", "imports"})
"""Those that need no PostgreSQL server."""


def main(arguments: list[str]) -> int:
    """Run the benchmarks.

    Returns:
        0, also where a target is missed; 1 if something could not be measured.
    """
    chosen = _parser().parse_args(arguments)
    if chosen.flush_ms and not flush_ms():
        return restart(chosen.flush_ms, arguments)
    figures: list[Figure] = []
    failed = []
    with _ending_cleanly(), _site(chosen) as site:
        names = chosen.only or FIGURES
        known = about(site, postgresql=not ON_SQLITE_ONLY.issuperset(names))
        print(json.dumps(known, indent=1), file=sys.stderr)
        for name in names:
            print(f"measuring {name} …", file=sys.stderr)
            try:
                figures += _told(run(name, site))
            except Exception:
                traceback.print_exc()
                failed.append(name)
    _write(figures, known, chosen.out, chosen.plot)
    if failed:
        print(f"could not be measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


@contextmanager
def _ending_cleanly() -> Iterator[None]:
    """Asked to end, it leaves no server and no databases behind."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _write(figures: list[Figure], known: dict[str, Any], out: Path | None, plot: Path | None) -> None:
    disk = ", ".join(f"{ms:.2f} ms on {kind}" for kind, ms in known["commit_ms"].items())
    print(f"\n{table(figures)}\n\nOne bare commit: {disk}. {known['machine']['cores']} cores.")
    if out is not None:
        write_json(out, figures, known)
    if plot is not None:
        plot.mkdir(parents=True, exist_ok=True)
        for name, svg in plots(figures).items():
            (plot / name).write_text(svg, encoding="utf-8")


def _site(chosen: argparse.Namespace) -> Site:
    return Site(chosen.data, quick=chosen.quick, kinds=chosen.database or DATABASES)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m certification bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="measure little, to see that everything works")
    parser.add_argument("--only", nargs="+", choices=FIGURES, metavar="NAME", help=", ".join(FIGURES))
    parser.add_argument(
        "--database", nargs=1, choices=DATABASES, help="measure on one alone what is measured on each"
    )
    parser.add_argument("--data", type=Path, help="directory for databases; its disk is what is measured")
    parser.add_argument(
        "--flush-ms", type=float, help="add so many ms to every flush of the disk, on both sides"
    )
    parser.add_argument("--out", type=Path, help="JSON file for all samples")
    parser.add_argument("--plot", type=Path, help="directory for SVG plots")
    return parser


def run(name: str, site: Site) -> Iterator[Figure]:
    """Measure the figure of one module."""
    measure: Callable[[Site], Iterator[Figure]] = importlib.import_module(
        f"certification.bench.figures.{name}"
    ).measure
    return measure(site)


def _told(figures: Iterator[Figure]) -> Iterator[Figure]:
    for figure in figures:
        print(table([figure]).splitlines()[-1], file=sys.stderr)
        yield figure
