"""What `import memoflow` costs, and who imports the SDK."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from statistics import median

from certification.bench.peers import ROOT
from certification.bench.report import Figure, at_most, exactly
from certification.bench.site import Site
from certification.bench.timing import Samples, interleave

__all__ = ["measure"]

_TIMED = """
import time
start = time.process_time()
{}
print((time.process_time() - start) * 1e3)
"""
_LIBRARY = "import sqlalchemy"
_PACKAGE = "import memoflow"
_PROGRAM = """
from memoflow import Budget, Runtime, tool

@tool(version="v1", effect="read_only")
def look_up(order: str) -> str:
    return order
"""
# Faces that are there to use the SDK are not asked: the adapter, the demo, and what helps tests.
_WALK = """
import importlib, pathlib, sys, memoflow
loading, root = [], pathlib.Path(memoflow.__file__).parent
for file in sorted(root.rglob("*.py")):
    name = ".".join(("memoflow", *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
    if name.split(".")[1:2] in (["openai"], ["demo"], ["testing"]) or name.endswith("__main__"):
        continue
    importlib.import_module(name)
    if "openai" in sys.modules:
        loading.append(name)
        break
print(len(loading), *loading)
"""


def measure(site: Site) -> Iterator[Figure]:
    """In processes of their own, in turns."""
    starts = {"sqlalchemy": _LIBRARY, "memoflow": _PACKAGE, "tool": _PROGRAM}
    measures = {name: _milliseconds(code) for name, code in starts.items()}
    for warm in measures.values():
        warm()
    samples = interleave(site.pick(5, 21), measures)
    yield Figure(
        "import.time",
        "import memoflow, more than importing SQLAlchemy",
        _more(samples, "memoflow"),
        "ms",
        at_most(150),
        samples,
        "processor time; files are in the cache",
    )
    yield Figure(
        "import.tool",
        "import memoflow and declare a tool, more than importing SQLAlchemy",
        _more(samples, "tool"),
        "ms",
        note="what the import leaves until it is needed, pydantic above all, is paid here",
    )
    number, *loading = _python(_WALK).split()
    yield Figure(
        "import.openai",
        "modules beside memoflow.openai that import openai",
        int(number),
        "",
        exactly(0),
        note=" ".join(loading),
    )


def _milliseconds(code: str) -> Callable[[], float]:
    return lambda: float(_python(_TIMED.format(code)))


def _more(samples: Samples, name: str) -> float:
    return median(a - b for a, b in zip(samples[name], samples["sqlalchemy"], strict=True))


def _python(code: str) -> str:
    # What is compiled is to be kept: an import that compiles again is not what anybody pays.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    return done.stdout
