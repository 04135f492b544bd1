"""Moments as the database has them: microseconds since 1970 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def stored(moment: datetime) -> int:
    """A moment with its zone, as a number."""
    return (moment.astimezone(UTC) - _FIRST) // _MICROSECOND


def read(number: int) -> datetime:
    """The moment of a number, in UTC."""
    return _FIRST + timedelta(microseconds=number)


def microseconds(time: timedelta) -> int:
    return time // _MICROSECOND
