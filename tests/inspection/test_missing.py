"""What somebody reads who did not install the extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memoflow.errors import ConfigurationError
from memoflow.inspection import Inspector, load_policy
from memoflow.inspection.matching import _compiled


@pytest.mark.parametrize("module", ["re2", "ada_url"])
def test_an_inspector_names_the_extra(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """When it is made, and not at the first call."""
    _compiled.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=r"pip install 'memoflow-runtime\[inspection\]'\.$"):
        Inspector()


def test_only_yaml_needs_it_of_policy_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TOML and JSON are read without."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "a.yaml").write_text("default: allow")
    (tmp_path / "a.toml").write_text('default = "allow"')
    assert load_policy(tmp_path / "a.toml").default == "allow"
    with pytest.raises(ConfigurationError, match=r"memoflow-runtime\[inspection\]"):
        load_policy(tmp_path / "a.yaml")


def test_importing_it_needs_nothing() -> None:
    """The event model and policies can be used without the extra."""
    code = (
        "import sys\nfor name in ('re2', 'ada_url', 'yaml'): sys.modules[name] = None\n"
        "import memoflow.inspection, memoflow.inspection.calls"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
