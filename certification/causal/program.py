"""``python -m certification causal``: what the strict audit takes of time and memory as its log grows."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from certification.about import about
from certification.causal.logs import LOGS
from memoflow.causal.jsonl import read_jsonl, write_jsonl
from memoflow.causal.record import CausalRecord
from memoflow.causal.strict import Audit

__all__ = ["Row", "main", "measure"]

RATIO: Final = 13.0
"""Ten times the records may take this many times the time; what grows with the square takes a hundred."""

COLUMNS: Final = ("log", "records", "CPU seconds", "MiB", "bytes a record", "µs a proposal", "failures")
_PROPOSALS: Final = 2_000


@dataclass(frozen=True)
class Row:
    """One audit of one log, in a process of its own; seconds of its CPU, which no load disturbs."""

    log: str
    records: int
    seconds: float
    peak_bytes: int
    base_bytes: int
    proposal_us: float
    failures: int

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        grown = (self.peak_bytes - self.base_bytes) / self.records
        figures = f"{self.records:,}", f"{self.seconds:.2f}", f"{self.peak_bytes / 2**20:.0f}", f"{grown:.0f}"
        return (self.log, *figures, f"{self.proposal_us:.1f}", f"{self.failures:,}")


def main(arguments: list[str]) -> int:
    """Print the table.

    Returns:
        1 if ten times the records took more than `RATIO` times the time.
    """
    parser = argparse.ArgumentParser(prog="python -m certification causal", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="length of the whole log")
    parser.add_argument("--out", type=Path, help="write the rows to this file, as JSON")
    parser.add_argument("--one", nargs=2, metavar=("LOG", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one is not None:
        print(json.dumps(asdict(measure(*given.one))))
        return 0
    rows = [row for log in LOGS for row in _both(log, given.records)]
    for cells in (COLUMNS, *(row.cells() for row in rows)):
        print("  ".join(cell.rjust(14) for cell in cells))
    ratios = {
        small.log: whole.seconds / small.seconds for small, whole in zip(rows[::2], rows[1::2], strict=True)
    }
    for log, ratio in ratios.items():
        print(f"{log}: ten times the records took {ratio:.1f} times the time (at most {RATIO})")
    if given.out is not None:
        document = {"about": about(), "ratios": ratios, "rows": [asdict(row) for row in rows]}
        given.out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0 if all(ratio <= RATIO for ratio in ratios.values()) else 1


def _both(log: str, records: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as directory:
        for length in (records // 10, records):
            file = Path(directory) / f"{log}-{length}.jsonl"
            with file.open("wb") as opened:
                write_jsonl(LOGS[log](length), opened)
            command = [sys.executable, "-m", "certification", "causal", "--one", log, str(file)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            yield Row(**json.loads(done.stdout))


def measure(log: str, file: str) -> Row:
    """Read a log from its file and audit it; then propose its last record again and again, as a new one."""
    base, begun = _peak(), time.process_time()
    audit, last = Audit(), None
    with open(file, "rb") as lines:
        for last in read_jsonl(lines):
            audit.append(last)
    result = audit.result()
    seconds, peak = time.process_time() - begun, _peak()
    assert last is not None
    return Row(log, len(audit), seconds, peak, base, _proposals(audit, last), result.failures)


def _proposals(audit: Audit, last: CausalRecord) -> float:
    """Microseconds that one proposal takes."""
    begun = time.process_time()
    for _ in range(_PROPOSALS):
        audit.propose(last)
    return (time.process_time() - begun) / _PROPOSALS * 1e6


def _peak() -> int:
    """Most bytes that this process had in memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
