"""``python -m certification verify FILE``: check evidence offline, whoever made it and wherever."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from certification.about import ROOT
from certification.live.evidence import Evidence, schema
from certification.live.refused import Refused
from certification.live.source import commit_findings
from certification.live.verifier import MAX_BYTES, Unreadable, evidence_findings, live_findings, read_evidence

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Check one file of evidence, or print the schema.

    Returns:
        0 if everything holds; 1 if something was found; 2 if it could not be checked.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.schema:
        print(json.dumps(schema(), indent=1))
        return 0
    if given.file is None:
        parser.error("name a FILE of evidence")
    try:
        evidence = read_evidence(_read(given.file))
        found = evidence_findings(evidence)
        if not given.allow_simulated:
            found += live_findings(evidence)
        if not given.no_repository:
            found += commit_findings(evidence, given.repository or ROOT)
    except Refused as refused:
        print(f"Refused: {refused}", file=sys.stderr)
        return 2
    except Unreadable as wrong:
        return _tell(given.file, list(wrong.findings))
    if not found:
        _show(given.file, evidence, looked_up=not given.no_repository)
    return _tell(given.file, found)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            # One more than is allowed tells that there is more, and no more than that is read.
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Refused(f"{path} cannot be read ({error.strerror}). Name a file of evidence.") from None


def _tell(path: Path, found: list[str]) -> int:
    for finding in found:
        print(f"Found: {finding}", file=sys.stderr)
    if found:
        print(f"{path}: NOT verified, {len(found)} found.", file=sys.stderr)
    return 1 if found else 0


def _show(path: Path, evidence: Evidence, *, looked_up: bool) -> None:
    versions, database, root = evidence.versions, evidence.database, evidence.balances[0]
    kind = "simulated" if evidence.simulated else "live"
    print(f"{evidence.provider} {evidence.model}, {kind}; SDK {versions.sdk}, memoflow {versions.memoflow},")
    print(f"Python {versions.python}, {database.kind} {database.version}")
    print(f"commit {evidence.source.commit}{'' if looked_up else ' (not looked up)'}")
    for case in evidence.cases:
        for call in case.calls:
            used = "-" if call.usage is None else f"{call.usage.input_tokens} + {call.usage.output_tokens}"
            print(f"  {case.boundary:<13} {call.state:<15} {call.reservation:<9} {used:>13} tokens")
    settled, unknown = root.settled.total_tokens, root.unknown.total_tokens
    print(f"{settled} tokens settled, {unknown} held as unknown, of {root.limits.total_tokens}")
    print(f"{evidence.digest}\n{path}: verified.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m certification verify", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="evidence of a live certification")
    parser.add_argument(
        "--allow-simulated", action="store_true", help="check the rest of evidence that is not live"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--repository", type=Path, metavar="DIR", help="a clone to look the commit up in (default: this one)"
    )
    where.add_argument("--no-repository", action="store_true", help="do not look the commit up")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of evidence, and end")
    return parser
