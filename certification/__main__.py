"""``python -m certification bench`` and ``python -m certification crash``."""

from __future__ import annotations

import argparse
import importlib
import sys

PROGRAMS = {
    "bench": ("certification.bench.program", "measure every figure beside what it is compared with"),
    "crash": ("certification.crash.program", "kill workers and databases at random and audit what is left"),
    "estimate": (
        "certification.estimate.program",
        "what is reserved for inputs beside what a model counted",
    ),
}


def main(arguments: list[str]) -> int:
    """Run the program that is named first; the rest of the command line is its own."""
    parser = argparse.ArgumentParser(prog="python -m certification", description=__doc__)
    programs = parser.add_subparsers(dest="program", required=True)
    for name, (_, text) in PROGRAMS.items():
        programs.add_parser(name, help=text, add_help=False)
    chosen, rest = parser.parse_known_args(arguments)
    # A program may need what the others do not have installed.
    code: int = importlib.import_module(PROGRAMS[chosen.program][0]).main(rest)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
