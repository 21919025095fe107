"""What a text costs to look at grows with its length, whatever stands in it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import memoflow.inspection
from memoflow.inspection import Inspector, KnownValues, ManifestSeen, ManifestTool, ToolCall
from memoflow.inspection.actions import classify
from memoflow.inspection.atoms import atoms_in
from memoflow.inspection.detectors import detect
from memoflow.inspection.facets import pieces
from memoflow.inspection.hosts import bare_host, hosts_in
from memoflow.inspection.matching import MAX_TEXT_BYTES
from memoflow.inspection.normalise import views
from memoflow.inspection.prints import prints_of
from tests.inspection._events import KEY, judged

ROOT = Path(memoflow.inspection.__file__).parent
HOSTILE = {
    "letters": "a",
    "e-mail": "a@a.",
    "domains": "a.",
    "devices": "dd if=",
    "recursion": "rm -r ",
    "images": "![a](https://a?b",
    "ignore": "ignore all the ",
    "digits": "4 ",
    "slashes": "/",
    "URLs": "http://a",
    "percent": "%2525",
    "base64": "QUFB",
    "hex": "41",
    "brackets": "[",
    "quotes": "'",
    "updates": "update a set ",
    "secrets": "password=a1b2c3d4 ",
    "tokens": "eyJaaaaa.",
    "code points": "\u043e",
    "invisible": "\u200b",
    "tags": "\U000e0061",
}


def operations(action: Callable[[], object]) -> int:
    """Lines that Python runs, which no machine is faster or slower at."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def everything(text: str) -> None:
    """All that is done to a text of a call."""
    found = pieces(ToolCall("bash", {"command": text}))
    detect(found, KnownValues({"K": "known-value-1"}))
    views(text)
    hosts_in(text)
    bare_host(text)
    list(atoms_in(text))
    prints_of(text, KEY)
    classify("bash", None, text, text)


@pytest.mark.parametrize("name", HOSTILE)
def test_twice_the_text_is_at_most_about_twice_the_work(name: str) -> None:
    """In lines of Python that run; what RE2 does is linear by itself."""
    part = HOSTILE[name]
    everything(part * 10)
    once, twice = (operations(lambda n=n: everything(part * (n // len(part)))) for n in (4_000, 8_000))  # type: ignore[misc]
    assert twice <= 2.3 * once + 2_000


def test_no_text_is_looked_at_beyond_a_size() -> None:
    """What is longer costs no more, and is told to be cut."""
    at_most, more = (
        operations(lambda n=n: detect(pieces(ToolCall("t", "a b " * n)), KnownValues()))  # type: ignore[misc]
        for n in (MAX_TEXT_BYTES // 4, MAX_TEXT_BYTES)
    )
    assert more <= at_most + 100


def test_what_a_server_lists_again_is_not_looked_at_again() -> None:
    """Each turn of a conversation brings the same tools, whose descriptions are longer than what is said."""
    schema = {"properties": {f"field_{n}": {"description": "The name of a page. " * 5} for n in range(20)}}
    listed = ManifestSeen("docs", tuple(ManifestTool(f"t{n}", "Read a page.", schema) for n in range(20)))
    inspector = Inspector(key=KEY)
    first, again = (operations(lambda: judged(listed, inspector=inspector)) for _ in range(2))
    assert again < first / 5


def calls_of_re() -> list[tuple[str, str]]:
    """Every pattern in the package that is matched by Python's own ``re``."""
    found = []
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "re":
                found.append((path.name, node.attr))
    return found


def test_python_s_own_re_only_splits_words() -> None:
    """It may need quadratic time and more, so it matches single classes of characters and nothing else."""
    assert sorted(calls_of_re()) == [
        ("actions.py", "compile"),
        ("atoms.py", "compile"),
        ("prints.py", "compile"),
        ("prints.py", "compile"),
        ("rulings.py", "compile"),
    ]
    for name in ("actions.py", "atoms.py", "prints.py", "rulings.py"):
        for source in re.findall(r're\.compile\(r?"(.*?)"\)', (ROOT / name).read_text(encoding="utf-8")):
            assert re.fullmatch(r"(?:\||\(\?!\[[^]]*\]\)|\[[^]]*\][+?]?)+", source), source
