"""What git says of the source: of a run that is to begin, and of a commit that evidence names."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

import memoflow
from certification.live.evidence import Evidence, Source
from certification.live.refused import Refused
from certification.live.source import clean_source, commit_findings
from tests.certification.live._runs import edited


def git(directory: Path, *arguments: str) -> str:
    """Run git as somebody."""
    who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.invalid")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=directory, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A work tree with a commit, from which memoflow is said to be imported."""
    root = tmp_path / "clone"
    package = root / "memoflow"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f'__version__ = "{memoflow.__version__}"\n')
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "First")
    monkeypatch.setattr(memoflow, "__file__", str(package / "__init__.py"))
    return root


def refusal(root: Path) -> str:
    """The sentence with which a work tree is refused."""
    with pytest.raises(Refused) as refused:
        clean_source(root)
    return str(refused.value)


def test_a_clean_work_tree_is_its_commit(clone: Path) -> None:
    """And the tree that the commit names."""
    commit, tree = git(clone, "rev-parse", "HEAD"), git(clone, "rev-parse", "HEAD^{tree}")
    assert clean_source(clone) == Source(commit=commit, tree=tree)


def test_a_changed_file_is_refused(clone: Path) -> None:
    """The commit would not be what was run."""
    (clone / "memoflow" / "__init__.py").write_text("changed\n")
    assert refusal(clone) == (
        f"The work tree {clone} is not clean: 1 file is changed or not tracked (git status names them). "
        "Commit or remove what is there, so that the evidence can name its source."
    )


def test_new_files_are_refused(clone: Path) -> None:
    """Also those that git does not track, each one counted, and however git is configured to show them."""
    git(clone, "config", "status.showUntrackedFiles", "no")
    (clone / "new").mkdir()
    for name in ("a.py", "b.py"):
        (clone / "new" / name).write_text("")
    assert "is not clean: 2 files are changed or not tracked" in refusal(clone)


def test_a_staged_change_is_refused(clone: Path) -> None:
    """It is in no commit yet."""
    (clone / "memoflow" / "more.py").write_text("")
    git(clone, "add", ".")
    assert "is not clean: 1 file is" in refusal(clone)


def test_what_is_ignored_does_not_matter(clone: Path) -> None:
    """The evidence itself lies in the work tree."""
    (clone / ".gitignore").write_text("/target/\n")
    git(clone, "add", ".")
    git(clone, "commit", "-qm", "Ignore")
    (clone / "target").mkdir()
    (clone / "target" / "certification.json").write_text("{}")
    assert clean_source(clone).commit == git(clone, "rev-parse", "HEAD")


def test_no_work_tree_is_refused(tmp_path: Path) -> None:
    """An unpacked source distribution has no commit."""
    assert refusal(tmp_path) == (
        f"{tmp_path} is not a work tree that git can read, so evidence could not name its source. Run this "
        "in a clone of the repository."
    )


def test_a_directory_in_anothers_work_tree_is_refused(clone: Path) -> None:
    """The commit of the repository around it is another project's."""
    inner = clone / "unpacked"
    inner.mkdir()
    assert refusal(inner).startswith(f"{inner} is not a work tree that git can read")


def test_a_repository_without_a_commit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to name."""
    git(tmp_path, "init", "-q")
    monkeypatch.setattr(memoflow, "__file__", str(tmp_path / "memoflow" / "__init__.py"))
    assert refusal(tmp_path) == (
        f"The work tree {tmp_path} has no commit yet, so evidence could not name its source."
    )


def test_memoflow_from_elsewhere_is_refused(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed memoflow beside a checkout would be run under the checkout's name."""
    monkeypatch.undo()
    used = Path(memoflow.__file__).parent
    assert refusal(clone).startswith(f"memoflow is imported from {used}, not from the work tree {clone}, ")


def test_the_environment_does_not_choose_the_repository(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``GIT_DIR`` and its like name the repository of whoever calls."""
    monkeypatch.setenv("GIT_DIR", str(clone / "nowhere"))
    assert clean_source(clone).commit


def test_without_git_it_is_refused(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In words."""
    monkeypatch.setenv("PATH", "")
    assert refusal(clone).startswith("There is no git here, or no such directory.")


def from_clone(evidence: Evidence, clone: Path, **more: Any) -> Evidence:
    """Evidence that names the clone's commit."""
    found = {"commit": git(clone, "rev-parse", "HEAD"), "tree": git(clone, "rev-parse", "HEAD^{tree}")}

    def change(document: dict[str, Any]) -> None:
        document["source"] = found | more.pop("source", {})
        document["versions"] |= more.pop("versions", {})

    return edited(evidence, change)


def test_a_commit_that_exists(evidence: Evidence, clone: Path) -> None:
    """With its tree and its version of memoflow, in a clone and in a bare repository."""
    assert commit_findings(from_clone(evidence, clone), clone) == []
    assert commit_findings(from_clone(evidence, clone), clone / ".git") == []


def test_a_commit_that_does_not_exist(evidence: Evidence, clone: Path) -> None:
    """It is named."""
    assert commit_findings(evidence, clone) == [
        f"The commit {'a' * 40} does not exist in {clone}. Fetch it first if the clone is old."
    ]


def test_a_tree_is_no_commit(evidence: Evidence, clone: Path) -> None:
    """Whatever else bears the name of an object is not taken for one."""
    tree = git(clone, "rev-parse", "HEAD^{tree}")
    found = commit_findings(from_clone(evidence, clone, source={"commit": tree}), clone)
    assert found == [f"The commit {tree} does not exist in {clone}. Fetch it first if the clone is old."]


def test_a_commit_with_another_tree_or_version(evidence: Evidence, clone: Path) -> None:
    """Both are compared."""
    changed = from_clone(evidence, clone, source={"tree": "d" * 40}, versions={"memoflow": "9.9.9"})
    commit = changed.source.commit
    assert commit_findings(changed, clone) == [
        f"The commit {commit} has another tree than {'d' * 40}.",
        f"At the commit {commit} memoflow is not at version 9.9.9.",
    ]


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_no_repository(evidence: Evidence, tmp_path: Path, name: str) -> None:
    """Then the check is refused and not skipped."""
    with pytest.raises(Refused, match=r"no such directory|--no-repository"):
        commit_findings(evidence, tmp_path / name)
