"""What somebody reads who did not install the extra."""

from __future__ import annotations

import sys

import pytest


def test_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK is optional; without it, importing the adapter says what to install."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "mcp"]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("memoflow.mcp")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ModuleNotFoundError, match=r"Install memoflow-runtime\[mcp\]\.$"):
        import memoflow.mcp  # noqa: F401


def test_the_package_does_not_need_it() -> None:
    """Nothing of memoflow but the adapter imports the SDK."""
    import memoflow

    assert memoflow.Runtime is not None
