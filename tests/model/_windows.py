"""Windows of periods, worked out from the label that a local clock shows, second by second."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

__all__ = ["window_of"]

SECOND = 1_000_000
FAR = 40 * 86_400


def _label(period: str, zone: ZoneInfo, second: int) -> Hashable:
    """What a local calendar and clock call the period that a second falls in."""
    local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)).astimezone(zone)
    if period == "hour":
        return local.date(), local.hour, local.utcoffset()
    if period == "day":
        return local.date()
    if period == "week":
        return local.isocalendar()[:2]
    return local.year, local.month


@lru_cache(maxsize=4096)
def window_of(period: str, time_zone: str, now: int) -> tuple[int, int | None]:
    """The window around an instant (UTC microseconds): all seconds with the same label.

    Only for zones in which no date comes twice.
    """
    if period == "none":
        return 0, None
    zone, second = ZoneInfo(time_zone), now // SECOND
    label = _label(period, zone, second)
    first = _nearest_other(period, zone, label, second, -1) + 1
    after = _nearest_other(period, zone, label, second, 1)
    return first * SECOND, after * SECOND


def _nearest_other(period: str, zone: ZoneInfo, label: Hashable, second: int, direction: int) -> int:
    """The nearest second in one direction with another label."""
    near, far = 0, FAR
    while far - near > 1:
        middle = (near + far) // 2
        if _label(period, zone, second + direction * middle) == label:
            near = middle
        else:
            far = middle
    return second + direction * far
