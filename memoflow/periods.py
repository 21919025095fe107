"""Periods of a budget: which window of time an instant falls in, in a time zone, across clock changes.

Times are UTC integer microseconds. Windows of one period and zone tile time: every instant is
in exactly one. Workers that share a ledger need the same time zone data.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final, Literal, NamedTuple, cast, get_args
from zoneinfo import ZoneInfo

from memoflow.errors import InvalidBudget, InvalidRequest

__all__ = [
    "DAY_US",
    "PERIODS",
    "Period",
    "Window",
    "check_period",
    "check_time_zone",
    "from_datetime",
    "to_datetime",
    "window",
]

Period = Literal["none", "hour", "day", "week", "month"]

PERIODS: Final[tuple[str, ...]] = get_args(Period)

DAY_US: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_HOUR_S: Final = 3600
_S: Final = 1_000_000
# These two name whatever a machine is set to, so they would mean another window on another worker.
_LOCAL_NAMES: Final = frozenset({"localtime", "posixrules"})


class Window(NamedTuple):
    """A half-open span of UTC microseconds; ``end_us`` is None for one that never ends."""

    start_us: int
    end_us: int | None


def check_period(value: object) -> Period:
    """Return ``value`` if it is one of `PERIODS`.

    Raises:
        InvalidBudget: it is not.
    """
    if isinstance(value, str) and value in PERIODS:
        return cast(Period, value)
    given = repr(value[:40]) if isinstance(value, str) else type(value).__name__
    raise InvalidBudget(f"A period is one of {', '.join(PERIODS)}, not {given}.")


def check_time_zone(value: object) -> str:
    """Return ``value`` if it names a zone of the IANA time zone database.

    Raises:
        InvalidBudget: it does not.
    """
    if not isinstance(value, str):
        raise InvalidBudget(f"A time zone is the name of an IANA zone, not {type(value).__name__}.")
    _zone(value)
    return value


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    try:
        if name not in _LOCAL_NAMES:
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        pass
    raise InvalidBudget(
        f"Time zone {name[:80]!r} is not in the IANA database of this machine. "
        "Use a name such as 'UTC' or 'Europe/Berlin'."
    )


def window(period: Period, time_zone: str, now_us: int) -> Window:
    """The window of ``period`` that holds ``now_us``.

    A day, week (from Monday) or month begins at the first local midnight, so a day may have 23
    or 25 hours. An hour is 3600 seconds from a full local hour, and shorter only where a clock
    change that is not a full hour cuts it.

    Raises:
        InvalidBudget: the period or time zone is not valid.
    """
    check_period(period)
    zone = _zone(check_time_zone(time_zone))
    if period == "none":
        return Window(0, None)
    if period == "hour":
        return _hour(zone, now_us)
    first, following, previous = _CALENDAR[period]
    return _calendar_window(zone, now_us, first, following, previous)


_Step = Callable[[date], date]

_CALENDAR: Final[dict[str, tuple[_Step, _Step, _Step]]] = {
    "day": (
        lambda day: day,
        lambda day: day + timedelta(1),
        lambda day: day - timedelta(1),
    ),
    "week": (
        lambda day: day - timedelta(day.weekday()),
        lambda day: day + timedelta(7),
        lambda day: day - timedelta(7),
    ),
    "month": (
        lambda day: day.replace(day=1),
        lambda day: (day + timedelta(31)).replace(day=1),
        lambda day: (day - timedelta(1)).replace(day=1),
    ),
}


def _calendar_window(zone: ZoneInfo, now_us: int, first: _Step, following: _Step, previous: _Step) -> Window:
    day = first(to_datetime(now_us).astimezone(zone).date())
    start, end = _midnight(zone, day), _midnight(zone, following(day))
    # Where clocks are put back across midnight, a local date comes twice: the second time its
    # instants belong to the day that already began. Where they skip it, from 23:30 to 0:30, the new
    # date shows before its midnight by the old clock.
    while now_us >= end:
        day = following(day)
        start, end = end, _midnight(zone, following(day))
    while now_us < start:
        day = previous(day)
        start, end = _midnight(zone, day), start
    return Window(start, end)


def _midnight(zone: ZoneInfo, day: date) -> int:
    # fold=0: of two midnights the first; of a skipped one the instant of the change (PEP 495).
    return from_datetime(datetime.combine(day, time(), zone))


def _hour(zone: ZoneInfo, now_us: int) -> Window:
    now = now_us // _S
    phase = _phase(zone, now)
    start = now - (now + phase) % _HOUR_S
    end = start + _HOUR_S
    if _phase(zone, start) != phase:
        start = _first_second(start, now, lambda s: _phase(zone, s) == phase)
    if _phase(zone, end - 1) != phase:
        end = _first_second(now, end - 1, lambda s: _phase(zone, s) != phase)
    return Window(start * _S, end * _S)


def _phase(zone: ZoneInfo, second: int) -> int:
    """How far full local hours are from full UTC hours at an instant, in seconds."""
    offset = to_datetime(second * _S).astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds()) % _HOUR_S


def _first_second(low: int, high: int, holds: Callable[[int], bool]) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def to_datetime(us: int) -> datetime:
    """UTC microseconds as an aware datetime in UTC.

    Raises:
        InvalidRequest: the instant is outside the years 1 to 9999.
    """
    try:
        return _EPOCH + us * _MICROSECOND
    except OverflowError:
        raise InvalidRequest(f"The instant {us} (UTC microseconds) is outside the years 1 to 9999.") from None


def from_datetime(moment: datetime) -> int:
    """An aware datetime as UTC microseconds, exactly.

    Raises:
        InvalidRequest: the datetime is naive, so it names no instant.
    """
    if moment.utcoffset() is None:
        raise InvalidRequest(
            "A datetime without a time zone names no instant. Give it one, for example "
            "datetime.now(timezone.utc)."
        )
    return (moment - _EPOCH) // _MICROSECOND
