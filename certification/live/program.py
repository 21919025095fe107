"""What ``live-openai`` and ``live-anthropic`` have in common: refusals, the run, and the file."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from certification.about import ROOT
from certification.live.boundaries import CALLS
from certification.live.evidence import Evidence, Source, render
from certification.live.inputs import read_inputs
from certification.live.provider import Provider
from certification.live.refused import NotCertified, Refused
from certification.live.runner import TOKENS, certify
from certification.live.source import clean_source

__all__ = ["run"]

_MOST_TOKENS = 100_000


def run(provider: Provider, arguments: list[str]) -> int:
    """Certify a provider and write the evidence.

    Returns:
        0 with evidence; 1 if a boundary did not end as it must; 2 if the run was refused.
    """
    given = _parser(provider).parse_args(arguments)
    out = given.out or ROOT / "target" / f"{provider.name}-live" / "certification.json"
    try:
        inputs = read_inputs(provider, os.environ, given.simulated)
        source = clean_source(ROOT)
        if out.exists():
            raise Refused(f"{out} exists, and evidence is never replaced. Move it away, or name another.")
        with _silence():
            evidence = certify(
                provider, inputs, source, tokens=given.tokens, database_url=given.database, tell=_say
            )
        _check_unchanged(source)
    except Refused as refused:
        print(f"Refused: {refused}", file=sys.stderr)
        return 2
    except NotCertified as failed:
        for finding in failed.findings:
            print(f"Not certified: {finding}", file=sys.stderr)
        return 1
    _write(out, evidence)
    return 0


def _check_unchanged(source: Source) -> None:
    """The evidence names what was run only if that stayed what it was."""
    try:
        after: Source | None = clean_source(ROOT)
    except Refused:
        after = None
    if after != source:
        raise NotCertified("The work tree changed while the run was under way. Leave it alone meanwhile.")


def _say(line: str) -> None:
    print(line, flush=True)


def _write(out: Path, evidence: Evidence) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    # Created here and now: whoever made one meanwhile keeps it.
    with out.open("xb") as file:
        file.write(render(evidence))
    print(f"{out}: {'simulated' if evidence.simulated else 'live'} evidence, {evidence.digest}")


@contextmanager
def _silence() -> Iterator[None]:
    """No log of an SDK, which may be told by the environment to log whole requests."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _parser(provider: Provider) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m certification live-{provider.name}",
        description=f"Make {CALLS} paid calls of the real API through memoflow, and write evidence of them. "
        f"Needs {provider.setting('LIVE')}=1, {provider.setting('MODEL')} and {provider.variable('API_KEY')} "
        "in the environment, and a clean work tree.",
    )
    parser.add_argument("--out", type=Path, help=f"default: target/{provider.name}-live/certification.json")
    parser.add_argument(
        "--tokens", type=_tokens, default=TOKENS, help=f"most tokens of each call (default: {TOKENS})"
    )
    parser.add_argument("--database", metavar="URL", help="default: a SQLite file that is removed afterwards")
    parser.add_argument(
        "--simulated",
        metavar="URL",
        help="ask a server that is not the provider; no key is read, and the evidence says so",
    )
    return parser


def _tokens(text: str) -> int:
    number = int(text)
    if not 1 <= number <= _MOST_TOKENS:
        raise argparse.ArgumentTypeError(f"must be from 1 to {_MOST_TOKENS}")
    return number
