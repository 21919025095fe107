"""Budget periods: windows that tile time, across clock changes and in any zone."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memoflow.errors import InvalidBudget, InvalidRequest
from memoflow.periods import (
    PERIODS,
    Period,
    Window,
    check_period,
    check_time_zone,
    from_datetime,
    to_datetime,
    window,
)

ZONES = [
    "UTC",
    "America/New_York",
    "Europe/London",
    "Asia/Kathmandu",  # +05:45
    "Australia/Lord_Howe",  # its clocks change by half an hour
    "America/St_Johns",  # until 2011 its clocks changed at 00:01, so a date came twice
    "America/Sao_Paulo",  # until 2019 its clocks skipped midnight
    "Pacific/Apia",  # has no 30 December 2011
    "Asia/Pyongyang",  # its clocks changed by half an hour in 2015 and 2018
    "Africa/Casablanca",
    "Antarctica/Troll",  # its clocks change by two hours
]
SECOND = 1_000_000
HOUR = 3600 * SECOND

BOUNDED: tuple[Period, ...] = ("hour", "day", "week", "month")

bounded_periods = st.sampled_from(BOUNDED)
instants = st.integers(0, 4_102_444_800 * SECOND)


def us(text: str) -> int:
    """Microseconds of an ISO date and time with offset."""
    return from_datetime(datetime.fromisoformat(text))


def bounds(period: Period, zone: str, text: str) -> tuple[str, str]:
    """The window that holds an instant, as UTC minutes."""
    start, end = window(period, zone, us(text))
    assert end is not None
    return tuple(to_datetime(at).strftime("%Y-%m-%dT%H:%M") for at in (start, end))  # type: ignore[return-value]


@given(bounded_periods, st.sampled_from(ZONES), instants)
@example("hour", "Australia/Lord_Howe", us("2026-04-05T01:45+10:30"))
@example("hour", "Australia/Lord_Howe", us("2026-10-04T02:45+11:00"))
@example("day", "America/St_Johns", us("2010-11-06T23:45-03:30"))
@example("day", "America/Sao_Paulo", us("2018-11-04T01:00-02:00"))
@example("week", "Pacific/Apia", us("2011-12-31T12:00+14:00"))
def test_windows_tile_time(period: Period, zone: str, now: int) -> None:
    """Every instant is in exactly one window, and the next one begins where it ends."""
    check_neighbours(period, zone, now)


def check_neighbours(period: Period, zone: str, now: int) -> None:
    """The window of an instant holds it, is found from both its ends, and touches its neighbours."""
    this = window(period, zone, now)
    assert this.end_us is not None
    assert this.start_us <= now < this.end_us
    assert window(period, zone, this.start_us) == this
    assert window(period, zone, this.end_us - 1) == this
    assert window(period, zone, this.end_us).start_us == this.end_us
    assert window(period, zone, this.start_us - 1).end_us == this.start_us


def changes(zone: str) -> list[int]:
    """Seconds at which the clocks of a zone changed, from 2009 to 2027."""
    info, found, step = ZoneInfo(zone), [], 86_400
    for day in range(us("2009-01-01T00:00+00:00") // SECOND, us("2027-01-01T00:00+00:00") // SECOND, step):
        low, high = day, day + step
        if offset(info, low) == offset(info, high):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset(info, middle) == offset(info, low) else (low, middle)
        found.append(high)
    return found


def offset(zone: tzinfo, second: int) -> timedelta | None:
    """Offset of a zone at an instant."""
    return to_datetime(second * SECOND).astimezone(zone).utcoffset()


@pytest.mark.parametrize("zone", ZONES[1:])
def test_windows_tile_time_around_every_clock_change(zone: str) -> None:
    """No clock change from 2009 to 2027 leaves a gap or an overlap."""
    for change in changes(zone):
        for period in BOUNDED:
            for near in (-5400, -1, 0, 1, 1800, 5400):
                check_neighbours(period, zone, (change + near) * SECOND)


@given(st.sampled_from(ZONES), instants)
def test_hours_are_3600_seconds(zone: str, now: int) -> None:
    """An hour is 3600 s; only a clock change by part of an hour can cut one."""
    start, end = window("hour", zone, now)
    assert end is not None
    halves = ("Australia/Lord_Howe", "Asia/Pyongyang")
    assert end - start == HOUR or (zone in halves and end - start == HOUR // 2)


@given(st.sampled_from(ZONES), instants)
def test_windows_start_at_local_boundaries(zone: str, now: int) -> None:
    """Days, weeks and months start with a new local date, a new ISO week and a new month."""
    for period in BOUNDED[1:]:
        start = window(period, zone, now).start_us
        assert window("day", zone, start).start_us == start
        local, before = (to_datetime(at).astimezone(ZoneInfo(zone)).date() for at in (start, start - 1))
        assert before < local
        assert period != "week" or before.isocalendar()[:2] != local.isocalendar()[:2]
        assert period != "month" or (before.year, before.month) != (local.year, local.month)


@pytest.mark.parametrize(
    ("period", "zone", "at", "expected"),
    [
        ("hour", "UTC", "2026-11-29T13:59:59.999999+00:00", ("2026-11-29T13:00", "2026-11-29T14:00")),
        ("hour", "Asia/Kathmandu", "2026-11-29T12:00+00:00", ("2026-11-29T11:15", "2026-11-29T12:15")),
        ("day", "Asia/Kathmandu", "2026-11-29T18:14+00:00", ("2026-11-28T18:15", "2026-11-29T18:15")),
        ("day", "Asia/Tokyo", "2026-03-01T13:00-08:00", ("2026-03-01T15:00", "2026-03-02T15:00")),
        ("week", "Europe/Berlin", "2026-11-29T12:00+01:00", ("2026-11-22T23:00", "2026-11-29T23:00")),
        ("month", "America/New_York", "2026-02-28T23:59-05:00", ("2026-02-01T05:00", "2026-03-01T05:00")),
        ("month", "UTC", "2028-02-29T00:00+00:00", ("2028-02-01T00:00", "2028-03-01T00:00")),
        ("month", "UTC", "2026-12-31T23:59+00:00", ("2026-12-01T00:00", "2027-01-01T00:00")),
        # 23 hours, 25 hours, and a month and week that hold a change
        ("day", "America/New_York", "2026-03-08T12:00-04:00", ("2026-03-08T05:00", "2026-03-09T04:00")),
        ("day", "America/New_York", "2026-11-01T00:30-04:00", ("2026-11-01T04:00", "2026-11-02T05:00")),
        ("week", "America/New_York", "2026-03-08T12:00-04:00", ("2026-03-02T05:00", "2026-03-09T04:00")),
        ("month", "America/New_York", "2026-03-20T12:00-04:00", ("2026-03-01T05:00", "2026-04-01T04:00")),
        # The hour from 1 to 2 comes twice and is two windows
        ("hour", "America/New_York", "2026-11-01T01:30-04:00", ("2026-11-01T05:00", "2026-11-01T06:00")),
        ("hour", "America/New_York", "2026-11-01T01:30-05:00", ("2026-11-01T06:00", "2026-11-01T07:00")),
        # Half an hour is skipped at 2:00, or repeated before 2:00
        ("hour", "Australia/Lord_Howe", "2026-10-04T01:59+10:30", ("2026-10-03T14:30", "2026-10-03T15:30")),
        ("hour", "Australia/Lord_Howe", "2026-10-04T02:31+11:00", ("2026-10-03T15:30", "2026-10-03T16:00")),
        ("hour", "Australia/Lord_Howe", "2026-04-05T01:31+10:30", ("2026-04-04T15:00", "2026-04-04T15:30")),
        ("hour", "Asia/Pyongyang", "2018-05-04T23:10+08:30", ("2018-05-04T14:30", "2018-05-04T15:00")),
        ("hour", "Asia/Pyongyang", "2018-05-05T00:10+09:00", ("2018-05-04T15:00", "2018-05-04T16:00")),
        ("day", "Australia/Lord_Howe", "2026-10-04T12:00+11:00", ("2026-10-03T13:30", "2026-10-04T13:00")),
        # Midnight does not exist; a date comes twice; midnight is inside what is skipped; a date is skipped
        ("day", "America/Sao_Paulo", "2018-11-04T12:00-02:00", ("2018-11-04T03:00", "2018-11-05T02:00")),
        ("day", "America/St_Johns", "2010-11-06T23:30-03:30", ("2010-11-07T02:30", "2010-11-08T03:30")),
        ("day", "America/Toronto", "1919-03-31T00:40-04:00", ("1919-03-30T05:00", "1919-03-31T05:00")),
        ("day", "Pacific/Apia", "2011-12-31T12:00+14:00", ("2011-12-30T10:00", "2011-12-31T10:00")),
    ],
)
def test_known_windows(period: Period, zone: str, at: str, expected: tuple[str, str]) -> None:
    """Windows worked out by hand from the rules of each zone."""
    assert bounds(period, zone, at) == expected


def test_no_period_never_ends() -> None:
    """Without a period there is one window, from 0 on."""
    assert window("none", "UTC", us("2026-11-29T12:00+00:00")) == Window(0, None)


def test_a_clock_stepped_back_gives_the_earlier_window() -> None:
    """A clock that goes back an hour names a window that ends later than the instant; nothing is negative."""
    now = us("2026-11-29T00:30+00:00")
    today, yesterday = window("day", "UTC", now), window("day", "UTC", now - HOUR)
    assert yesterday.end_us == today.start_us
    assert yesterday.start_us <= now - HOUR < today.start_us


def test_windows_do_not_depend_on_the_zone_of_the_process() -> None:
    """A process that runs under TZ=Asia/Tokyo computes the same window."""
    program = (
        "from memoflow.periods import window as w; print(*w('day', 'America/New_York', 1772380800000000))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "TZ": zone},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for zone in ("UTC", "Asia/Tokyo", "America/New_York")
    }
    assert len(printed) == 1


@pytest.mark.parametrize("value", PERIODS)
def test_known_periods_pass(value: str) -> None:
    """The five periods are accepted as they are."""
    assert check_period(value) == value


@pytest.mark.parametrize(
    ("value", "shown"), [("year", "'year'"), ("Day", "'Day'"), ("", "''"), (None, "NoneType"), (1, "int")]
)
def test_other_periods_are_refused(value: object, shown: str) -> None:
    """The refusal names the choices and what was given."""
    with pytest.raises(InvalidBudget, match=f"none, hour, day, week, month, not {shown}"):
        check_period(value)
    with pytest.raises(InvalidBudget):
        window(value, "UTC", 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Etc/GMT+5"])
def test_known_zones_pass(zone: str) -> None:
    """IANA names are accepted as they are."""
    assert check_time_zone(zone) == zone


@pytest.mark.parametrize(
    "zone",
    [
        "",
        "Nowhere/City",
        "America",
        "../etc/passwd",
        "/etc/localtime",
        "localtime",
        "a\0b",
        "\ud800",
        "+02:00",
        None,
        2,
    ],
)
def test_other_zones_are_refused(zone: object) -> None:
    """Names that are not in the database, paths, and names that mean another zone on each machine."""
    with pytest.raises(InvalidBudget, match="IANA"):
        check_time_zone(zone)
    with pytest.raises(InvalidBudget, match="IANA"):
        window("none", zone, 0)  # type: ignore[arg-type]


@given(st.integers(-62_135_596_800 * SECOND, 253_402_300_799 * SECOND))
def test_microseconds_survive_the_round_trip(at: int) -> None:
    """Integer microseconds become a UTC datetime and come back exactly, years 1 to 9999."""
    moment = to_datetime(at)
    assert moment.tzinfo is UTC
    assert from_datetime(moment) == at


@given(st.datetimes(timezones=st.timezones()))
def test_an_instant_does_not_depend_on_how_it_is_written(moment: datetime) -> None:
    """A datetime in any zone is the microseconds of the same instant in UTC."""
    try:
        expected = moment.astimezone(UTC)
    except OverflowError:
        return
    assert to_datetime(from_datetime(moment)) == expected


def test_offsets_are_applied_once() -> None:
    """13:00 at -08:00 is 21:00 UTC, not 13:00 and not 05:00."""
    moment = datetime(2026, 3, 1, 13, tzinfo=timezone(timedelta(hours=-8)))
    assert to_datetime(from_datetime(moment)) == datetime(2026, 3, 1, 21, tzinfo=UTC)


class Unsure(tzinfo):
    """A zone that does not know its offset: such a datetime is naive too."""

    def utcoffset(self, moment: datetime | None) -> None:
        return None


@pytest.mark.parametrize("zone", [None, Unsure()])
def test_naive_datetimes_are_refused(zone: tzinfo | None) -> None:
    """A datetime that names no instant is refused with the remedy."""
    with pytest.raises(InvalidRequest, match=r"datetime\.now\(timezone\.utc\)"):
        from_datetime(datetime(2026, 3, 1, 13, tzinfo=zone))


def test_instants_outside_the_calendar_are_refused() -> None:
    """Microseconds beyond the years 1 to 9999 are a sentence, not an OverflowError."""
    for at in (2**63 - 1, -(2**63), 10**30):
        with pytest.raises(InvalidRequest, match=f"{at}.*years 1 to 9999"):
            to_datetime(at)
