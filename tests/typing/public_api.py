"""What a type checker must see of the public interface. Checked by mypy and pyright, never run."""

from __future__ import annotations

from typing import assert_type

import memoflow

assert_type(memoflow.__version__, str)
