"""What people install: version, dependencies, and what is inside the wheel and the source distribution."""

from __future__ import annotations

import ast
import email.message
import email.parser
import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import memoflow

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONAL = {
    "ada-url": "inspection",
    "anthropic": "anthropic",
    "genai-prices": "prices",
    "google-re2": "inspection",
    "httptools": "gateway",
    "jsonschema": "mcp",
    "mcp": "mcp",
    "psycopg": "postgres",
    "pyyaml": "causal",
    "referencing": "mcp",
    "starlette": "gateway",
    "uvicorn": "gateway",
}


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the source distribution."""
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(directory)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    return directory


@pytest.fixture
def wheel(built: Path) -> zipfile.Path:
    """The inside of the wheel."""
    (path,) = built.glob("*.whl")
    return zipfile.Path(path)


def metadata_of(wheel: zipfile.Path) -> email.message.Message:
    """The wheel's METADATA file."""
    (info,) = [entry for entry in wheel.iterdir() if entry.name.endswith(".dist-info")]
    return email.parser.Parser().parsestr((info / "METADATA").read_text(encoding="utf-8"))


def distribution_name(requirement: str) -> str:
    """The normalised name at the start of a requirement."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def third_party_imports() -> dict[str, set[str]]:
    """Top-level modules from outside that the package imports anywhere, with the files that do."""
    found: dict[str, set[str]] = {}
    for path in [*(ROOT / "memoflow").rglob("*.py"), *(ROOT / "migrations").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                found.setdefault(name.partition(".")[0], set()).add(path.name)
    return {
        name: files for name, files in found.items() if name not in sys.stdlib_module_names | {"memoflow"}
    }


def test_the_version_is_written_once() -> None:
    """The package's version is the distribution's."""
    assert memoflow.__version__ == importlib.metadata.version("memoflow-runtime")


def test_every_import_is_a_declared_dependency() -> None:
    """Whatever the package imports is installed with it, or by the extra that is named for it."""
    required = {distribution_name(text) for text in PROJECT["dependencies"]}
    for package, extra in OPTIONAL.items():
        assert package in {distribution_name(text) for text in PROJECT["optional-dependencies"][extra]}
    providers = importlib.metadata.packages_distributions()
    undeclared = {
        module: files
        for module, files in third_party_imports().items()
        if not {distribution_name(name) for name in providers.get(module, [])} & (required | OPTIONAL.keys())
    }
    assert undeclared == {}


def test_the_wheel_has_the_package_its_types_and_its_migrations(wheel: zipfile.Path) -> None:
    """An installed memoflow can upgrade a database and be type checked; tests stay out of it."""
    for name in ["memoflow/__init__.py", "memoflow/py.typed", "memoflow/migrations/env.py"]:
        assert wheel.joinpath(name).is_file(), name
    versions = wheel / "memoflow" / "migrations" / "versions"
    assert sorted(entry.name for entry in versions.iterdir()) == sorted(
        path.name for path in (ROOT / "migrations" / "versions").glob("*.py")
    )
    assert {entry.name for entry in wheel.iterdir()} == {
        "memoflow",
        f"memoflow_runtime-{memoflow.__version__}.dist-info",
    }


def test_the_wheel_says_what_it_needs(wheel: zipfile.Path) -> None:
    """Name, Python version, command and extras are in the metadata; a driver is not forced on anyone."""
    metadata = metadata_of(wheel)
    assert metadata["Name"] == "memoflow-runtime"
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Provides-Extra", [])) == {*OPTIONAL.values(), "test"}
    plain = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
    assert not {distribution_name(text) for text in plain} & OPTIONAL.keys()
    scripts = wheel / f"memoflow_runtime-{memoflow.__version__}.dist-info" / "entry_points.txt"
    assert "memoflow = memoflow.cli:main" in scripts.read_text(encoding="utf-8")


def test_the_source_distribution_can_be_tested(built: Path) -> None:
    """Tests, migrations, checks and the licence travel with the source."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in [
        ".ci/run",
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "certification/README.md",
        "memoflow/py.typed",
        "migrations/env.py",
        "pyproject.toml",
        "tests/conftest.py",
    ]:
        assert name in names


def test_continuous_integration_runs_the_command_in_the_readme() -> None:
    """Whoever follows the README runs the same tests as the checks do."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    checks = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    commands = [line for line in readme.splitlines() if line.startswith("python -m pytest")]
    assert commands
    assert [command for command in commands if command in checks]


def test_the_workflow_runs_the_checks_with_least_permissions() -> None:
    """The hosted workflow calls the same script, may only read, and pins its actions by commit."""
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert "bash .ci/run" in workflow
    assert re.search(r"^permissions:\n  contents: read\n\n", workflow, re.MULTILINE)
    used = re.findall(r"uses: (\S+)", workflow)
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)] == []
