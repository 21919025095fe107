"""What the tables are made of: their metadata, and the columns and constraints that recur."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    event,
    text,
)

from memoflow.budget import DIMENSIONS, Amounts

__all__ = [
    "Serial",
    "amount_columns",
    "amount_values",
    "metadata",
    "never_negative",
    "one_of",
    "partial_index",
    "read_amounts",
]

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite gives rowid keys (fast, autoincrementing) only to INTEGER columns.
Serial: Final = BigInteger().with_variant(Integer(), "sqlite")


def amount_columns(prefix: str, *, nullable: bool = False) -> list[Column[Any]]:
    """One integer column per dimension, named ``<prefix>_<dimension>``."""
    default = None if nullable else text("0")
    return [
        Column(f"{prefix}_{name}", BigInteger, nullable=nullable, server_default=default)
        for name in DIMENSIONS
    ]


def never_negative(*prefixes: str) -> list[CheckConstraint]:
    """Constraints that no amount under these prefixes is below zero."""
    return [
        CheckConstraint(
            " AND ".join(f"{prefix}_{name} >= 0" for name in DIMENSIONS), name=f"{prefix}_not_negative"
        )
        for prefix in prefixes
    ]


def amount_values(prefix: str, amounts: Iterable[int | None]) -> dict[str, int | None]:
    """Column values for `amount_columns`."""
    return {f"{prefix}_{name}": value for name, value in zip(DIMENSIONS, amounts, strict=True)}


def read_amounts(row: Any, prefix: str) -> Amounts:
    """The amounts of a row under a prefix."""
    return Amounts(*[getattr(row, f"{prefix}_{name}") for name in DIMENSIONS])


def one_of(column: str, *values: str) -> CheckConstraint:
    """A constraint that a state column holds one of its states."""
    return CheckConstraint(f"{column} IN ({', '.join(repr(v) for v in values)})", name=f"{column}_known")


def partial_index(name: str, column: Column[Any], *, where: str) -> None:
    """An index of the rows that meet a condition, in either dialect."""
    index = Index(name, column)

    # An option of a dialect imports the dialect, so it is set when a database asks for it.
    @event.listens_for(index, "before_create")
    def limit(target: Index, connection: Connection, **_: Any) -> None:
        target.dialect_kwargs[f"{connection.dialect.name}_where"] = text(where)
