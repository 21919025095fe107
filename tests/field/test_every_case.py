"""Every case has a test that is named after it, on every API and database where it can show itself."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.field._faces import FACES
from tests.field.cases import CASES, Case

NAMED = re.compile(r"test_case_([0-9]{2}|e[0-9]+)_\w+")
BY_NAME = {face.name.upper(): frozenset({face.name}) for face in FACES}
EVERY_API = frozenset(face.name for face in FACES)
ON_POSTGRESQL = {"database_url", "empty_database_url", "empty_postgres_url", "on_postgres", "postgres_url"}


@dataclass(frozen=True)
class Held:
    """A test of a case: the APIs and databases on which it is played, as its source says."""

    case: str
    test: str
    apis: frozenset[str]
    on_postgresql: bool


def found_in(source: str) -> Iterator[Held]:
    """The tests of cases in a file."""
    for node in ast.parse(source).body:
        named = NAMED.fullmatch(node.name) if isinstance(node, ast.FunctionDef) else None
        if isinstance(node, ast.FunctionDef) and named:
            yield _held(named[1], node)


def _held(case: str, function: ast.FunctionDef) -> Held:
    fixtures = {argument.arg for argument in function.args.args}
    words = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    words |= {text.value for text in ast.walk(function) if isinstance(text, ast.Constant)}  # type: ignore[misc]
    every = "each" in fixtures or "FACES" in words
    apis = EVERY_API if every else frozenset().union(*(BY_NAME[word] for word in words & BY_NAME.keys()))
    if not apis and "case" in fixtures:
        apis = BY_NAME["RESPONSES"]
    return Held(case, function.name, apis, bool(ON_POSTGRESQL & (fixtures | words)))


def lacking(held: Iterable[Held], cases: Mapping[str, Case]) -> list[str]:
    """What the cases demand and no test does, and tests of cases that are not known."""
    found: dict[str, list[Held]] = defaultdict(list)
    for one in held:
        found[one.case].append(one)
    problems = [f"{case}: unknown, but {tests[0].test}" for case, tests in found.items() if case not in cases]
    for number, case in cases.items():
        tests = found[number]
        apis = frozenset[str]().union(*(one.apis for one in tests))
        problems += [] if tests else [f"{number} ({case.title}): no test"]
        problems += [f"{number} ({case.title}): no test on {api}" for api in sorted(case.apis - apis)]
        if case.databases and not any(one.on_postgresql for one in tests):
            problems.append(f"{number} ({case.title}): no test on PostgreSQL")
    return problems


@pytest.fixture(scope="module")
def held() -> list[Held]:
    """Every test of a case here."""
    files = sorted(Path(__file__).parent.glob("test_*.py"))
    return [one for file in files for one in found_in(file.read_text(encoding="utf-8"))]


def test_every_case_has_a_test_named_after_it(held: list[Held]) -> None:
    """On the APIs and databases that the list of cases names."""
    assert lacking(held, CASES) == []


def test_a_case_without_a_test_is_noticed(held: list[Held]) -> None:
    """Whichever it is, and if it is only missed on one API or database."""
    for number, case in CASES.items():
        rest = [one for one in held if one.case != number]
        own = [one for one in held if one.case == number]
        assert lacking(rest, CASES)[0] == f"{number} ({case.title}): no test"
        for api in case.apis:
            elsewhere = [replace(one, apis=one.apis - {api}) for one in own]
            assert lacking([*rest, *elsewhere], CASES) == [f"{number} ({case.title}): no test on {api}"]
        if case.databases:
            elsewhere = [replace(one, on_postgresql=False) for one in own]
            assert lacking([*rest, *elsewhere], CASES) == [f"{number} ({case.title}): no test on PostgreSQL"]


def test_a_test_of_an_unknown_case_is_noticed() -> None:
    """A number that is mistyped would else leave its case without a test."""
    source = "def test_case_99_nothing(case): ...\ndef test_other(case): ...\n"
    assert [one.case for one in found_in(source)] == ["99"]
    assert lacking(found_in(source), {}) == ["99: unknown, but test_case_99_nothing"]
