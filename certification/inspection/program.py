"""``python -m certification inspection``: what is found, and what is found for nothing."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from certification.inspection.corpora import NoCorpus, bastion, bench
from certification.inspection.oracles import SCANNERS, NoScanner, Scanner
from certification.inspection.samples import LOOK_ALIKES, SAMPLES
from memoflow.inspection import LabelledSession, play, read_sessions, shipped_policy

__all__ = ["Row", "main", "measure", "table"]

_SESSIONS = Path(__file__).parents[2] / "tests" / "inspection" / "sessions"
_COLUMNS = ("what", "found", "of", "false", "of")


@dataclass(frozen=True)
class Row:
    """One set of texts or sessions: how many of the bad ones were found, and how many of the others."""

    what: str
    found: int
    bad: int
    false: int
    good: int

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        return (self.what, *map(str, (self.found, self.bad, self.false, self.good)))


def main(arguments: list[str]) -> int:
    """Print the table.

    Returns:
        1 if a session of memoflow's own is judged otherwise than it is labelled.
    """
    parser = argparse.ArgumentParser(prog="python -m certification inspection", description=__doc__)
    parser.add_argument("--out", type=Path, help="write the rows to this file, as JSON")
    given = parser.parse_args(arguments)
    rows, missing = measure()
    print(table(rows))
    for text in missing:
        print(text, file=sys.stderr)
    if given.out is not None:
        given.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    own = rows[0]
    return 0 if own.found == own.bad and own.false == 0 else 1


def measure() -> tuple[list[Row], list[str]]:
    """All rows that can be measured here, own sessions first, and what is missing for the others."""
    rows, missing = [judged("own sessions", own_sessions())], []
    for what, sessions in (
        ("bastioncorpus: the text alone", bastion),
        ("agent-injection-bench: the text alone", lambda: bench(with_calls=False)),
        ("agent-injection-bench: with the call", lambda: bench(with_calls=True)),
    ):
        try:
            rows.append(judged(what, sessions()))
        except NoCorpus as error:
            missing.append(str(error))
    for name, scanner in SCANNERS.items():
        try:
            rows.append(scanned(f"credentials: {name}", scanner))
        except NoScanner as error:
            missing.append(str(error))
    return rows, list(dict.fromkeys(missing))


def own_sessions() -> Iterator[LabelledSession]:
    """The labelled sessions of the tests."""
    for path in sorted(_SESSIONS.glob("*.jsonl")):
        yield from read_sessions(path.read_text(encoding="utf-8"), path.name)


def judged(what: str, sessions: Iterable[LabelledSession]) -> Row:
    """Sessions under the shipped policy."""
    outcomes = [play(session, shipped_policy()) for session in sessions]
    bad = [one for one in outcomes if one.label == "attack"]
    good = [one for one in outcomes if one.label == "benign"]
    return Row(what, sum(one.right for one in bad), len(bad), sum(not one.right for one in good), len(good))


def scanned(what: str, scanner: Scanner) -> Row:
    """The samples of all formats and what only looks like them, before a scanner."""
    found = sum(map(scanner, SAMPLES.values()))
    return Row(what, found, len(SAMPLES), sum(map(scanner, LOOK_ALIKES)), len(LOOK_ALIKES))


def table(rows: Sequence[Row]) -> str:
    """The rows in columns, figures to the right."""
    lines = [_COLUMNS, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if n else text.ljust(width)
            for n, (text, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for cells in lines
    )
