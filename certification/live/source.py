"""What git says about the source: of a run that is to begin, and of evidence that names a commit."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import memoflow
from certification.live.evidence import Evidence, Source
from certification.live.refused import Refused

__all__ = ["clean_source", "commit_findings", "is_work_tree"]

# Nothing is fetched or asked for on the way, and what surrounds this program does not choose the repository.
_ALONE: Final = {"GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
_VERSION: Final = re.compile(r'^__version__ = "([^"]{1,40})"$', re.MULTILINE)


def clean_source(root: Path) -> Source:
    """The commit that a work tree is at, if it holds that and nothing else.

    Args:
        root: where memoflow and this program are.

    Raises:
        Refused: it is no work tree of git, something in it is changed or new, or memoflow is from elsewhere.
    """
    if not is_work_tree(root):
        raise Refused(
            f"{root} is not a work tree that git can read, so evidence could not name its source. "
            "Run this in a clone of the repository."
        )
    used = Path(memoflow.__file__).resolve().parent
    if used != (root / "memoflow").resolve():
        raise Refused(
            f"memoflow is imported from {used}, not from the work tree {root}, whose commit the evidence "
            "would name. Start this program in the work tree, or install it with: pip install -e ."
        )
    changed = _git(root, "status", "--porcelain", "--untracked-files=all") or ""
    if changed:
        number = len(changed.splitlines())
        raise Refused(
            f"The work tree {root} is not clean: {number} file{'s are' if number > 1 else ' is'} changed or "
            "not tracked (git status names them). Commit or remove what is there, so that the evidence "
            "can name its source."
        )
    commit, tree = _git(root, "rev-parse", "HEAD"), _git(root, "rev-parse", "HEAD^{tree}")
    if commit is None or tree is None:
        raise Refused(f"The work tree {root} has no commit yet, so evidence could not name its source.")
    return Source(commit=commit, tree=tree)


def is_work_tree(root: Path) -> bool:
    """Whether a directory is the top of a work tree; one somewhere inside another's is not."""
    top = _git(root, "rev-parse", "--show-toplevel")
    return top is not None and Path(top).resolve() == root.resolve()


def commit_findings(evidence: Evidence, repository: Path) -> list[str]:
    """What does not hold for the source that evidence names, as far as a clone can tell.

    Raises:
        Refused: it is no repository.
    """
    if _git(repository, "rev-parse", "--git-dir") is None:
        raise Refused(
            f"{repository} is not a repository that git can read, so the commit cannot be looked up. Name a "
            "clone with --repository DIR, or leave that check out with --no-repository."
        )
    commit, tree = evidence.source.commit, evidence.source.tree
    if _git(repository, "cat-file", "-t", commit) != "commit":
        return [f"The commit {commit} does not exist in {repository}. Fetch it first if the clone is old."]
    found = []
    if _git(repository, "rev-parse", f"{commit}^{{tree}}") != tree:
        found.append(f"The commit {commit} has another tree than {tree}.")
    text = _git(repository, "show", f"{commit}:memoflow/__init__.py") or ""
    version = _VERSION.search(text)
    if version is None or version[1] != evidence.versions.memoflow:
        found.append(f"At the commit {commit} memoflow is not at version {evidence.versions.memoflow}.")
    return found


def _git(directory: Path, *arguments: str) -> str | None:
    """What git prints, or None where it fails."""
    around = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(
            command, cwd=directory, env=around | _ALONE, capture_output=True, encoding="utf-8", check=False
        )
    except OSError:
        raise Refused(
            "There is no git here, or no such directory. Install git, or correct the path."
        ) from None
    return done.stdout.strip() if done.returncode == 0 else None
