"""Values and strategies shared by the tests of plain JSON."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

SECRET = "hunter2-payload"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
# Keys whose order differs between code points and UTF-16 units need characters from both sides.
keys = texts | st.text(st.sampled_from("a\ud7ff\ue000\uffff\U00010000\U0010ffff"), max_size=3)
safe_integers = st.integers(-(2**53) + 1, 2**53 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)


def json_values(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Nested plain JSON over the given scalars."""
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=20,
    )


carried_by_rfc8785 = json_values(st.none() | st.booleans() | safe_integers | floats | texts)
any_json = json_values(st.none() | st.booleans() | st.integers() | floats | texts)


def nested(depth: int) -> Any:
    """``depth`` lists inside each other."""
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value
