"""The workflows of live certification: by hand only, in a protected environment, with least rights."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

WORKFLOWS = Path(__file__).resolve().parents[3] / ".github" / "workflows"
LIVE = sorted(WORKFLOWS.glob("*-live.yml"))


@pytest.fixture(params=LIVE, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    """Each of the live workflows."""
    found: Path = request.param
    return found


@pytest.fixture
def workflow(path: Path) -> Any:
    """What it says. YAML reads the key ``on`` as a truth value."""
    loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    loaded["on"] = loaded.pop(True)
    return loaded


def test_there_is_one_for_each_provider() -> None:
    """And the ordinary checks know nothing of them."""
    assert [path.name for path in LIVE] == ["anthropic-live.yml", "openai-live.yml"]
    ordinary = (WORKFLOWS / "ci.yml").read_text(encoding="utf-8")
    assert "live-" not in ordinary
    assert "secrets." not in ordinary


def test_it_is_started_by_hand_only(workflow: Any) -> None:
    """No push, no pull request, no schedule, no other workflow."""
    assert workflow["on"] == {"workflow_dispatch": None}


def test_it_may_read_and_nothing_else(workflow: Any) -> None:
    """At the top and in no job otherwise."""
    assert workflow["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in workflow["jobs"].values())


def test_its_job_waits_for_the_environment(workflow: Any, path: Path) -> None:
    """The environment can ask for a reviewer, and the key is its secret: one step sees it."""
    (job,) = workflow["jobs"].values()
    assert job["environment"] == path.stem
    provider = path.stem.removesuffix("-live").upper()
    with_key = [step for step in job["steps"] if "secrets." in str(step)]
    assert [step["run"] for step in with_key] == [f"python -m certification live-{provider.lower()}"]
    assert with_key[0]["env"] == {
        f"MEMOFLOW_{provider}_LIVE": "1",
        f"MEMOFLOW_{provider}_MODEL": f"${{{{ vars.MEMOFLOW_{provider}_MODEL }}}}",
        f"{provider}_API_KEY": f"${{{{ secrets.{provider}_API_KEY }}}}",
    }
    assert "env" not in job
    assert "env" not in workflow


def test_it_verifies_and_keeps_the_evidence(workflow: Any, path: Path) -> None:
    """Verified as a stranger would, then uploaded; without evidence it fails."""
    (job,) = workflow["jobs"].values()
    file = f"target/{path.stem}/certification.json"
    *_, verify, upload = job["steps"]
    assert verify["run"] == f"python -m certification verify {file}"
    assert upload["with"]["path"] == file
    assert upload["with"]["if-no-files-found"] == "error"


def test_its_actions_are_pinned(workflow: Any) -> None:
    """By the digest of a commit; and no credentials are left in the checkout."""
    (job,) = workflow["jobs"].values()
    used = [step["uses"] for step in job["steps"] if "uses" in step]
    assert [action for action in used if not re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action)] == []
    assert job["steps"][0]["with"] == {"persist-credentials": False}


def lint(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a linter of this environment."""
    directory = Path(sys.executable).parent
    command = [str(directory / arguments[0]), *arguments[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("file", sorted(WORKFLOWS.glob("*.yml")), ids=lambda file: file.stem)
def test_security_linter_finds_nothing(file: Path) -> None:
    """zizmor, offline, at its strictest."""
    done = lint("zizmor", "--offline", "--pedantic", "--no-progress", str(file))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", sorted(WORKFLOWS.glob("*.yml")), ids=lambda file: file.stem)
def test_it_is_a_workflow(file: Path) -> None:
    """By the published schema of workflows: every key is one that is known where it stands."""
    done = lint("check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(file))
    assert done.returncode == 0, done.stdout


def test_the_linters_are_not_vacuous(tmp_path: Path) -> None:
    """Each notices a workflow that is wrong."""
    wrong = tmp_path / "wrong.yml"
    good = LIVE[0].read_text(encoding="utf-8")
    wrong.write_text(re.sub(r"@[0-9a-f]{40}", "@v4", good))
    assert lint("zizmor", "--offline", "--pedantic", "--no-progress", str(wrong)).returncode != 0
    wrong.write_text(good.replace("runs-on:", "run-on:"))
    arguments = ("--builtin-schema", "vendor.github-workflows", str(wrong))
    assert lint("check-jsonschema", *arguments).returncode != 0
