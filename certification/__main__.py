"""Programs that produce evidence about memoflow; each has a ``--help`` of its own."""

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
    "inspection": (
        "certification.inspection.program",
        "what inspection finds, and what it stops for nothing",
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
    try:
        program = importlib.import_module(PROGRAMS[chosen.program][0])
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(("certification", "memoflow")):
            raise
        parser.error(f"{chosen.program} needs {error.name}; install the test extra: pip install -e '.[test]'")
    code: int = program.main(rest)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
