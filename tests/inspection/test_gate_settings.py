"""How a runtime gets a policy by which it inspects."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from memoflow import ConfigurationError, KeyRing, Runtime
from memoflow.inspection import Inspector, shipped_policy
from memoflow.inspection.matching import _compiled
from memoflow.inspection.policy_file import read_policy


def test_a_runtime_takes_its_policy_from_a_file_or_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off by default; a file alone is shadow; a setting makes it serious; arguments win."""
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"default": "ask"}))
    url, keys = f"sqlite:///{tmp_path / 'ledger.db'}", KeyRing.generate()

    def opened(**options: Any) -> list[tuple[Any, ...]]:
        with Runtime.open(url, keys=keys, **options) as rt:
            judges: Any = rt.bench._judges
            return [(j.id, j.policy_digest, j._inspector.mode, j._inspector.on_ask) for j in judges]

    own, shipped = read_policy({"default": "ask"}).digest, shipped_policy().digest
    assert opened() == []
    assert opened(inspection=policy) == [("memoflow.inspection", own, "shadow", "deny")]
    monkeypatch.setenv("MEMOFLOW_INSPECTION", "shipped")
    monkeypatch.setenv("MEMOFLOW_INSPECTION_MODE", "enforce")
    monkeypatch.setenv("MEMOFLOW_INSPECTION_ON_ASK", "ask")
    assert opened() == [("memoflow.inspection", shipped, "enforce", "ask")]
    assert opened(inspection=str(policy))[0][1] == own
    assert opened(inspection=Inspector())[0][2:] == ("shadow", "deny")


@pytest.mark.parametrize("name", ["MODE", "ON_ASK"])
def test_a_way_to_inspect_without_anything_to_inspect_by_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whoever says enforce believes that something is enforced."""
    monkeypatch.setenv(f"MEMOFLOW_INSPECTION_{name}", "enforce" if name == "MODE" else "ask")
    url, keys = f"sqlite:///{tmp_path / 'ledger.db'}", KeyRing.generate()
    with pytest.raises(
        ConfigurationError, match=f"inspection_{name.lower()} is set, but nothing says by what"
    ):
        Runtime.open(url, keys=keys)
    Runtime.open(url, keys=keys, inspection="shipped").close()


@pytest.mark.parametrize("given", [5, {"default": "ask"}, "nowhere.yaml", Inspector])
def test_what_is_no_policy_is_refused_when_the_runtime_opens(tmp_path: Path, given: Any) -> None:
    """Before anything is paid."""
    with pytest.raises(ConfigurationError, match=r"nowhere|must be an Inspector"):
        Runtime.open(f"sqlite:///{tmp_path / 'ledger.db'}", keys=KeyRing.generate(), inspection=given)


def test_a_missing_extra_is_said_when_the_runtime_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to install, and not at the first call."""
    _compiled.cache_clear()
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ConfigurationError, match=r"memoflow-runtime\[inspection\]"):
        Runtime.open(f"sqlite:///{tmp_path / 'ledger.db'}", keys=KeyRing.generate(), inspection="shipped")
