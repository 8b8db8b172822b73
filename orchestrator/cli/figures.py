"""Numbers as people read them."""

from __future__ import annotations

import time

_UNITS = ("B", "kB", "MB", "GB", "TB")


def size(count: int) -> str:
    """Bytes with three digits, in powers of 1000: 47.2 MB."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{count} B" if unit == 0 else f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f} {_UNITS[unit]}"


def count(number: int, noun: str, nouns: str | None = None) -> str:
    """1 segment, 20,031 tokens; `nouns` is the plural where it is not formed with an s."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def duration(seconds: float) -> str:
    """0.3 s, 41 s, 2 min 05 s, 3 h 07 min, 7 days."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 2 * 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{round(seconds / 86400)} days"


def moment(epoch_seconds: float) -> str:
    """Local date and time to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(epoch_seconds))


def ratio(large: int, small: int) -> str:
    """How many times smaller `small` is."""
    times = large / small if small else 0.0
    return f"{times:,.0f}×" if times >= 10 else f"{times:.1f}×"
