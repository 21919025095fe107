"""The programs as they are started: in a clone, from the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from certification import __main__ as programs
from certification.live import program
from certification.live.provider import Provider
from certification.live.source import Source
from certification.live.verifier import read_evidence
from memoflow.testing import SimulatedProvider
from tests.certification.live._runs import MODEL, SOURCE, root_of, script
from tests.certification.live.test_source import git

# Each starts several interpreters.
pytestmark = pytest.mark.timeout(300)

HANGS_S = 200
ROOT = Path(__file__).resolve().parents[3]
IN_THE_CLONE = ("memoflow", "migrations", "certification", ".gitignore", "pyproject.toml")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the source as it is now, in one commit."""
    root = tmp_path_factory.mktemp("clone")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *IN_THE_CLONE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = [name for name in listed.stdout.split("\0") if name]
    if not names:
        pytest.skip("an unpacked source distribution: what belongs to it is not told by git")
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((ROOT / name).read_bytes())
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "As it is")
    return root


def start(clone: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in the clone, with nothing in the environment but what it is given."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-B", "-m", "certification", *arguments],
        cwd=clone,
        env=kept | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=HANGS_S)
        except subprocess.TimeoutExpired:
            # Then every thread says where it is, and the exit code and the output fail the test.
            process.send_signal(signal.SIGABRT)
            out, err = process.communicate()
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def test_from_the_run_to_the_verification(provider: Provider, clone: Path) -> None:
    """A simulated run writes evidence of the commit, which is verified in the clone, and says what it is.

    The SDK is told to log everything, and logs nothing.
    """
    environment = {provider.setting("MODEL"): MODEL, provider.variable("LOG"): "debug"}
    server = SimulatedProvider(script())
    with server.serve() as base_url:
        url = root_of(provider, base_url)
        done = start(clone, f"live-{provider.name}", "--simulated", url, **environment)
        assert (done.returncode, done.stderr) == (0, "")
        again = start(clone, f"live-{provider.name}", "--simulated", url, **environment)
    file = clone / "target" / f"{provider.name}-live" / "certification.json"
    evidence = read_evidence(file.read_bytes())
    assert done.stdout.splitlines()[-1] == f"{file}: simulated evidence, {evidence.digest}"
    assert evidence.source.commit == git(clone, "rev-parse", "HEAD")
    # Evidence is ignored by git, so the work tree is clean; but it is not replaced.
    assert (again.returncode, again.stderr) == (
        2,
        f"Refused: {file} exists, and evidence is never replaced. Move it away, or name another.\n",
    )
    assert len(server.requests) == 5
    assert start(clone, "verify", str(file)).returncode == 1
    checked = start(clone, "verify", str(file), "--allow-simulated")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_refusals_from_the_command_line(provider: Provider, clone: Path) -> None:
    """Each missing input and a dirty work tree end with 2, and a sentence after ``Refused:``."""
    live, model, key = provider.setting("LIVE"), provider.setting("MODEL"), provider.variable("API_KEY")
    whole = {live: "1", model: MODEL, key: "some-key"}
    for name in whole:
        refused = start(clone, f"live-{provider.name}", **{n: v for n, v in whole.items() if n != name})
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.startswith(f"Refused: This needs {live}=1, {model} and {key} in the ")
    new = clone / "new.py"
    new.write_text("")
    try:
        dirty = start(clone, f"live-{provider.name}", **whole)
    finally:
        new.unlink()
    assert dirty.returncode == 2
    assert dirty.stderr.startswith(f"Refused: The work tree {clone} is not clean: 1 file is changed or not ")
    elsewhere = start(
        clone, f"live-{provider.name}", **whole, **{provider.variable("BASE_URL"): "http://127.0.0.1:1"}
    )
    assert elsewhere.returncode == 2
    assert "points to a host that is not https://api." in elsewhere.stderr


def test_a_work_tree_that_changes_meanwhile_certifies_nothing(
    provider: Provider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What ran may have been something else than the commit that was looked up."""
    seen = iter((SOURCE, Source(commit="e" * 40, tree="b" * 40)))
    monkeypatch.setattr(program, "clean_source", lambda root: next(seen))
    monkeypatch.setenv(provider.setting("MODEL"), MODEL)
    with SimulatedProvider(script()).serve() as base_url:
        arguments = ["--simulated", root_of(provider, base_url), "--out", str(tmp_path / "x.json")]
        assert program.run(provider, arguments) == 1
    assert capsys.readouterr().err == (
        "Not certified: The work tree changed while the run was under way. Leave it alone meanwhile.\n"
    )
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize("tokens", ["0", "-1", "100001", "many", "1.5"])
def test_a_bound_that_cannot_be(provider: Provider, tokens: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage ends with 2."""
    with pytest.raises(SystemExit) as ended:
        program.run(provider, ["--tokens", tokens])
    assert ended.value.code == 2
    assert "--tokens" in capsys.readouterr().err


def test_verifying_needs_neither_sdk(clone: Path) -> None:
    """It runs where memoflow alone is installed, and loads no provider's SDK."""
    code = "import sys, certification.live.verify; print({'openai', 'anthropic'} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=clone, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_every_program_says_what_it_proves_and_what_not() -> None:
    """The README has a row for each, with its limits."""
    lines = (ROOT / "certification" / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| [")]
    named = " ".join(row[0] for row in rows)
    assert [name for name in programs.PROGRAMS if f"`{name}" not in named] == []
    assert all(len(row) == 4 and all(cell.strip(" |") for cell in row) for row in rows)
