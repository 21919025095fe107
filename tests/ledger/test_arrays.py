"""Columns as PostgreSQL arrays: what is written is what the server reads."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from sqlalchemy import Column, Float, make_url

from memoflow.ledger import schema as s
from memoflow.ledger.arrays import array_writers, placeholder

TEXTS = ["", "NULL", "null", None, 'a "quoted" b', "back\\slash", "{1,2}", "a,b", " x ", "end\n\t", "ü€😀"]
INTEGERS = [0, -1, None, 2**63 - 1, -(2**63)]
BINARIES = [b"", b"\x00\xff", None]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (s.activities.c.namespace, TEXTS),
        (s.activities.c.workflow_id, [text for text in TEXTS if text is not None]),
        (s.activities.c.run_id, ["", "NULL", "{1,2}", "a,b", " x "]),
        (s.activities.c.activity_id, [""]),
        (s.invocations.c.reason, [None, None]),
        (s.journal.c.seq, INTEGERS),
        (s.accounts.c.id, INTEGERS),
        (s.outputs.c.nonce, BINARIES),
        (s.attempts.c.activity_id, []),
    ],
    ids=lambda given: str(given) if isinstance(given, Column) else "",
)
def test_the_server_reads_back_what_was_given(postgres_url: str, column: Any, values: list[Any]) -> None:
    """Quotes, backslashes, braces, NULL and its name, and the largest numbers arrive as they are."""
    (write,) = array_writers((column,))
    kind = {"seq": "BIGINT", "id": "BIGINT", "nonce": "BYTEA"}.get(column.name, "TEXT")
    url = make_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
    question = f"SELECT {placeholder(column)}::{kind}[]".encode()
    with psycopg.connect(url) as connection:
        found = connection.execute(question, (write(values),)).fetchone()
    assert found == (values,)


def test_other_types_are_refused() -> None:
    """A column whose values cannot be written exactly is refused when the statement is made."""
    with pytest.raises(TypeError, match="not written in sets"):
        array_writers((Column("weight", Float()),))
