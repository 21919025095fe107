"""One batch as a unit of work: load what its operations need, decide in memory, write in sets.

An operation is a pure decision over loaded rows. It says beforehand what it `needs`, so that
a batch of any size costs a handful of statements: a few locking SELECTs, then one INSERT per
table and one UPDATE per kind of change.

Rule for operations: decide first, then change. An operation that raises before it changed
anything is a refusal and leaves the batch intact; one that raises afterwards spoils the batch,
which is rolled back, and each of its operations is then tried alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter
from typing import Any, Final, Generic, Protocol, TypeVar

from sqlalchemy import Connection, CursorResult, Executable, Table, select
from sqlalchemy.exc import DBAPIError

from memoflow.ledger import schema as s
from memoflow.ledger.balances import BalanceBook
from memoflow.ledger.statements import Keys, Sets, columns_of

__all__ = ["BatchSpoiled", "Needs", "Operation", "Outcome", "Record", "Refused", "Transaction"]

R = TypeVar("R", covariant=True)


class BatchSpoiled(Exception):
    """An operation raised after it had changed something; the batch cannot be kept."""


@dataclass(slots=True)
class Needs:
    """What the operations of a batch are going to look at."""

    activities: set[str] = field(default_factory=set)
    attempts: set[str] = field(default_factory=set)
    identities: set[tuple[str, str, str, str]] = field(default_factory=set)
    turns: set[tuple[str, str]] = field(default_factory=set)
    invocations: set[str] = field(default_factory=set)
    reservations: set[str] = field(default_factory=set)
    effects: set[str] = field(default_factory=set)
    accounts: set[tuple[str, str]] = field(default_factory=set)
    virtual_keys: set[str] = field(default_factory=set)
    """Virtual keys of which it matters whether they were revoked."""
    abandoned: set[str] = field(default_factory=set)
    """Activities whose open calls are going to become unknown; those whose lease ran out are found."""


class Operation(Protocol, Generic[R]):
    """Something to be recorded."""

    def needs(self, needs: Needs) -> None:
        """Add the rows this operation looks at."""

    def apply(self, tx: Transaction) -> R:
        """Decide, then change; raise a `MemoflowError` to refuse."""


@dataclass(frozen=True, slots=True, eq=False)
class Refused:
    """Returned by an operation that refuses, but whose changes (evidence of the attempt) are to be kept."""

    error: Exception


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What became of one operation."""

    value: Any = None
    error: BaseException | None = None


class Record:
    """A loaded or new row. Columns are attributes; `change` is the only way to alter one.

    Args:
        values: all columns.
        given: those that a new row is written with; a row without any is in the database.
    """

    __slots__ = ("_changed", "_new", "_values")

    def __init__(self, values: dict[str, Any], given: Iterable[str] = ()) -> None:
        self._values = values
        self._changed = set(given)
        self._new = bool(self._changed)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None


class Transaction:
    """The state one batch works on, and what it is going to write."""

    def __init__(self, connection: Connection, now: int) -> None:
        self.connection = connection
        self.now = now
        self._sets = Sets(connection)
        self.book = BalanceBook(self._sets, now)
        self._rows: dict[Table, dict[str, Record | None]] = defaultdict(dict)
        self._by_identity: dict[tuple[str, str, str, str], str] = {}
        self._by_turn: dict[tuple[str, str], str] = {}
        self._revoked: set[str] = set()
        self._new: dict[Table, list[Record]] = defaultdict(list)
        self._touched: dict[Table, dict[str, Record]] = defaultdict(dict)
        self._changes = 0

    # Running a batch

    def run(self, operations: Sequence[Operation[Any]]) -> list[Outcome]:
        """Load, apply in order, write. The caller commits.

        Raises:
            BatchSpoiled: an operation failed after it had changed something.
        """
        needs = Needs()
        for operation in operations:
            operation.needs(needs)
        self._load(needs)
        outcomes = [self._apply(operation) for operation in operations]
        self.flush()
        return outcomes

    def _apply(self, operation: Operation[Any]) -> Outcome:
        before = self.changes
        try:
            value = operation.apply(self)
        except DBAPIError:
            # The transaction is over, for all of them; the writer knows whether it may be tried again.
            raise
        except Exception as error:
            if self.changes != before:
                raise BatchSpoiled from error
            return Outcome(error=error)
        return Outcome(error=value.error) if isinstance(value, Refused) else Outcome(value)

    @property
    def changes(self) -> int:
        """How often anything was changed so far."""
        return self._changes + self.book.changes

    # Loading, always in the same order so that two batches cannot wait for each other

    def _load(self, needs: Needs) -> None:
        by_id = {
            s.activities: needs.activities,
            s.attempts: needs.attempts,
            s.invocations: needs.invocations,
            s.reservations: needs.reservations,
            s.effects: needs.effects,
        }
        with self._sets.at_once():
            activities = self._ask(s.activities, _IDENTITY, sorted(needs.identities))
            found = {table: self._ask(table, (table.c.id,), sorted(ids)) for table, ids in by_id.items()}
            # Not locked: a turn never changes, nor a revocation, and nobody who only calls may lock it.
            turns = self._ask(s.turns, _TURN, sorted(needs.turns), lock=False)
            revoked = self._sets.ask(_REVOKED, _REVOKED_KEY, sorted(needs.virtual_keys))
        for row in activities():
            self._adopt_activity(row)
        for table, ids in by_id.items():
            self._adopt(table, ids, found[table]())
        for row in turns():
            self._adopt_turn(row)
        self._revoked.update(id for (id,) in revoked())
        self.book.load(needs.accounts, needs.reservations | self._left_open(needs.abandoned))

    def _left_open(self, abandoned: set[str]) -> set[str]:
        """The calls that a takeover or an end may make unknown in this batch.

        Only for their balances, which have to be locked together with all others. What has been left open
        is asked once more when it is needed; a call that is found only then may wait for another batch that
        waits for this one, and the database lets one of them try again.
        """
        if self._sets.alone:
            return set()
        loaded = [row for row in self._rows[s.activities].values() if row is not None]
        late = {row.id for row in loaded if row.state == "RUNNING" and row.lease_expires_at <= self.now}
        started = [(id, "STARTED") for id in sorted(late | abandoned)]
        return {id for (id,) in self._sets.select(_CALLS, _LEFT, started)} if started else set()

    def load(self, table: Table, ids: Iterable[str]) -> None:
        """Load and lock rows by id; ids that do not exist are remembered as absent."""
        known = self._rows[table]
        missing = sorted(set(ids) - known.keys())
        if not missing:
            return
        self._adopt(table, missing, self._ask(table, (table.c.id,), missing)())

    def _ask(
        self, table: Table, keys: Keys, values: list[Any], *, lock: bool = True
    ) -> Callable[[], list[Record]]:
        names = columns_of(table)
        rows = self._sets.ask(table, keys, values, lock=lock)
        return lambda: [Record(dict(zip(names, row, strict=True))) for row in rows()]

    def _adopt(self, table: Table, ids: Iterable[str], rows: Iterable[Record]) -> None:
        known = self._rows[table]
        for row in rows:
            # One that is known already by its identity stays the one that is changed.
            known.setdefault(row.id, row)
        for absent in ids:
            known.setdefault(absent, None)

    def _adopt_activity(self, row: Record) -> None:
        self._rows[s.activities][row.id] = row
        self._by_identity[row.namespace, row.workflow_id, row.run_id, row.activity_id] = row.id

    def _adopt_turn(self, row: Record) -> None:
        self._rows[s.turns][row.id] = row
        self._by_turn[row.activity_id, row.replay_key] = row.id

    # Looking

    def get(self, table: Table, id: str) -> Record | None:
        """The row with this id, or None."""
        known = self._rows[table]
        if id not in known:
            self.load(table, (id,))
        return known[id]

    def activity(self, identity: tuple[str, str, str, str]) -> Record | None:
        """The activity with this identity, which the operation must have named in its needs."""
        id = self._by_identity.get(identity)
        return None if id is None else self._rows[s.activities][id]

    def turn(self, activity_id: str, replay_key: str) -> Record | None:
        """The turn bound to a replay key, which the operation must have named in its needs."""
        id = self._by_turn.get((activity_id, replay_key))
        return None if id is None else self._rows[s.turns][id]

    def revoked(self, key_id: str) -> bool:
        """Whether a virtual key was revoked, which the operation must have named in its needs."""
        return key_id in self._revoked

    # Changing

    def insert(self, table: Table, **values: Any) -> Record:
        """Add a row; columns left out are NULL (or their server default's zero for amounts)."""
        self._changes += 1
        row = Record(_blank(table) | values, values)
        if len(row._values) != len(table.columns):
            raise TypeError(f"{table.name} has no such column: {', '.join(values)}")
        self._new[table].append(row)
        if table is s.activities:
            self._adopt_activity(row)
        elif table is s.turns:
            self._adopt_turn(row)
        elif "id" in row._values:
            self._rows[table][row.id] = row
        return row

    def change(self, table: Table, row: Record, **values: Any) -> None:
        """Alter columns of a row."""
        self._changes += 1
        row._values.update(values)
        row._changed.update(values)
        if not row._new:
            self._touched[table][row.id] = row

    def execute(self, statement: Executable) -> CursorResult[Any]:
        """Change something at once. For rare operations of administration; it counts as a change.

        Whoever uses it sees to it that rows loaded before do not go stale.
        """
        self._changes += 1
        return self.connection.execute(statement)

    # Writing

    def flush(self) -> None:
        """Write everything in sets. Parents before children, so that foreign keys hold."""
        with self._sets.at_once():
            check_balances = self.book.flush_balances()
            for table in _PARENTS_FIRST:
                for names, rows in _by_kind(self._new.pop(table, ())):
                    # What no row of a kind gives is neither sent nor bound: half the columns, mostly.
                    self._sets.insert(table, names, list(map(itemgetter(*names), rows)))
            for table, touched in self._touched.items():
                for names, rows in _by_kind(touched.values()):
                    picked = map(itemgetter(*names, "id"), rows)
                    self._sets.update(table, ("id",), names, list(picked))
            self._touched.clear()
            self.book.flush_journal()
        check_balances()


@cache
def _blank(table: Table) -> dict[str, Any]:
    return dict.fromkeys(columns_of(table))


def _by_kind(rows: Iterable[Record]) -> list[tuple[list[str], list[dict[str, Any]]]]:
    """Rows as what is written of them, together with those of which the same columns are; each just once."""
    kinds: dict[frozenset[str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        kinds[frozenset(row._changed)].append(row._values)
        row._changed.clear()
        row._new = False
    return [(sorted(names), of_kind) for names, of_kind in kinds.items()]


_PARENTS_FIRST: Final = tuple(s.metadata.sorted_tables)
_a, _t = s.activities.c, s.turns.c
_IDENTITY: Final = (_a.namespace, _a.workflow_id, _a.run_id, _a.activity_id)
_TURN: Final = (_t.activity_id, _t.replay_key)
_REVOKED: Final = select(s.virtual_key_revocations.c.key_id)
_REVOKED_KEY: Final = (s.virtual_key_revocations.c.key_id,)
_CALLS: Final = select(s.invocations.c.id)
_LEFT: Final = (s.invocations.c.activity_id, s.invocations.c.state)
