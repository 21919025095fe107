"""Logs of causal records: JSON Lines in and out, one record at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import IO, Final

from memoflow.canonical import StrictJSONError, parse_strict
from memoflow.causal.record import CausalRecord, Form, RecordRefused, record_from_dict

__all__ = ["MAX_LINE_BYTES", "dump_record", "read_jsonl", "read_numbered", "write_jsonl"]

MAX_LINE_BYTES: Final = 1 << 20
"""Most bytes of one line, its end not counted."""

_MAX_DEPTH: Final = 64


def read_jsonl(lines: IO[bytes] | Iterable[bytes], form: Form = "strict") -> Iterator[CausalRecord]:
    """The records of a log, each read when it is asked for. Blank lines are skipped.

    Args:
        lines: an open binary file, or lines as bytes.
        form: of the records; see `memoflow.causal.record`.

    Raises:
        RecordRefused: with the line, while iterating.
    """
    return (record for _, record in read_numbered(lines, form))


def read_numbered(
    lines: IO[bytes] | Iterable[bytes], form: Form = "strict"
) -> Iterator[tuple[int, CausalRecord]]:
    """The records of a log with the numbers of their lines, counted from 1.

    Raises:
        RecordRefused: with the line, while iterating.
    """
    for number, line in enumerate(_bounded(lines), start=1):
        if len(line) > MAX_LINE_BYTES + 2:
            raise RecordRefused(f"It is longer than {MAX_LINE_BYTES} bytes.", number)
        if text := line.strip():
            yield number, _record(text, form, number)


def _bounded(lines: IO[bytes] | Iterable[bytes]) -> Iterator[bytes]:
    """Lines, of which no more than is allowed is ever held."""
    readline = getattr(lines, "readline", None)
    if readline is None:
        yield from lines
        return
    while line := readline(MAX_LINE_BYTES + 3):
        yield line


def _record(text: bytes, form: Form, number: int) -> CausalRecord:
    try:
        return record_from_dict(parse_strict(text, max_bytes=MAX_LINE_BYTES, max_depth=_MAX_DEPTH), form)
    except StrictJSONError as error:
        raise RecordRefused(str(error), number) from None
    except RecordRefused as error:
        raise RecordRefused(error.problem, number) from None


def dump_record(record: CausalRecord) -> str:
    """A record as one line of compact JSON, without its end. What was read comes back without loss."""
    return json.dumps(record.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def write_jsonl(records: Iterable[CausalRecord], file: IO[bytes]) -> int:
    """Write records to an open binary file, one on a line. Returns how many."""
    written = 0
    for record in records:
        file.write(dump_record(record).encode() + b"\n")
        written += 1
    return written
