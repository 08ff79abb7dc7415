"""Durations, sizes and numbers as users write them: ``1h30m``, ``64KiB``, ``5k``, ``1e6``."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from mirrortest.errors import UsageError

_DURATION_NS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}
_SIZE = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)},
}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PART = re.compile(rf"({_NUMBER})(ns|us|ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_NUMBER}(?:ns|us|ms|s|m|h|d))+")
_SIZED = re.compile(rf"({_NUMBER})\s*([A-Za-z]*)")
_COUNTED = re.compile(rf"({_NUMBER})(?:[eE]([+-]?[0-9]{{1,3}}))?([kMG]?)")
_THOUSANDS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_LEAST_HEAP = 1 << 20
_HEAP = re.compile(r"[1-9][0-9]{0,11}[kKmMgGtT]?")
SECOND_NS = 1_000_000_000
MILLISECOND_NS = 1_000_000
MIB = 1 << 20
_LONGEST = (1 << 63) - 1
"""Nanoseconds that a clock can count: 292 years."""


def parse_duration(text: str, *, option: str) -> int:
    """Read a duration with its unit as int nanoseconds; ``0`` alone needs no unit.

    Raises UsageError with `option` for a missing or unknown unit, a fraction of a nanosecond, and
    more than any clock counts.
    """
    compact = text.strip()
    if compact == "0":
        return 0
    if _DURATION.fullmatch(compact) is None:
        raise UsageError(f"{option} {text!r}: {_why_no_duration(compact)}")
    total = sum(Fraction(number) * _DURATION_NS[unit] for number, unit in _PART.findall(compact))
    if total.denominator != 1:
        raise UsageError(f"{option} {text!r}: finer than a nanosecond")
    if total > _LONGEST:
        raise UsageError(f"{option} {text!r}: longer than 292 years")
    return int(total)


def _why_no_duration(text: str) -> str:
    if _DURATION.fullmatch(text.removeprefix("-")) is not None:
        return "a duration cannot be negative"
    meant = f"; did you mean {text}s?" if re.fullmatch(_NUMBER, text) else ", for example 1h30m"
    return f"must be a duration with its unit (ns, us, ms, s, m, h, d){meant}"


def parse_seconds(text: str, *, option: str) -> float:
    """Read a duration as `parse_duration` does, as seconds."""
    return parse_duration(text, option=option) / 1e9


def parse_positive_seconds(text: str, *, option: str) -> float:
    """Read a duration that is longer than 0, as seconds."""
    seconds = parse_seconds(text, option=option)
    if seconds == 0:
        raise UsageError(f"{option} must be longer than 0")
    return seconds


def parse_size(text: str, *, option: str) -> int:
    """Read a size in bytes, also with kB, MB, GB, TB (powers of 1000) or KiB ... (of 1024).

    Raises UsageError with `option` for anything else.
    """
    match = _SIZED.fullmatch(text.strip())
    factor = _SIZE.get(match[2].lower()) if match is not None else None
    if match is None or factor is None:
        raise UsageError(f"{option} {text!r}: must be a size, for example 900, 64KiB or 1MB")
    total = Fraction(match[1]) * factor
    if total.denominator != 1:
        raise UsageError(f"{option} {text!r}: a fraction of a byte")
    return int(total)


def parse_number(text: str, *, option: str) -> Fraction:
    """Read a number of 0 or more, also with k, M or G (powers of 1000) or as ``1e6``.

    Raises UsageError with `option` for anything else.
    """
    match = _COUNTED.fullmatch(text.strip())
    if match is None:
        negative = text.strip().startswith("-")
        why = "cannot be negative" if negative else "must be a number, for example 500, 5k or 1e6"
        raise UsageError(f"{option} {text!r}: {why}")
    return Fraction(match[1]) * Fraction(10) ** int(match[2] or 0) * _THOUSANDS[match[3]]


def parse_count(
    text: str, *, option: str, minimum: int | None = None, maximum: int | None = None
) -> int:
    """Read a whole number as `parse_number` does, within its bounds."""
    number = parse_number(text, option=option)
    if number.denominator != 1:
        raise UsageError(f"{option} {text!r}: must be a whole number")
    if minimum is not None and number < minimum:
        raise UsageError(f"{option} {text!r}: must be at least {minimum}")
    if maximum is not None and number > maximum:
        raise UsageError(f"{option} {text!r}: must be at most {maximum:,}")
    return int(number)


def checked_heap(text: str, *, option: str) -> str:
    """Return the size of a Java heap in Java's notation; else UsageError with `option`."""
    if _HEAP.fullmatch(text) is None:
        raise UsageError(f"{option} {text!r}: must be in Java's notation, for example 2g or 512m")
    if text.isdecimal() and int(text) < _LEAST_HEAP:
        raise UsageError(f"{option} {text!r}: that is in bytes; did you mean {text}g?")
    return text


def exact_duration(nanoseconds: int) -> str:
    """Write a duration of 0 or more in its largest unit, so that `parse_duration` reads it."""
    if not nanoseconds:
        return "0"
    units = reversed(_DURATION_NS.items())
    return next(f"{nanoseconds // ns}{unit}" for unit, ns in units if not nanoseconds % ns)


def exact_number(value: float) -> str:
    """Write a finite number so that `parse_number` reads the same."""
    return f"{value:.0f}" if value.is_integer() and value < 1e15 else repr(value)


def exact_seconds(seconds: float) -> str:
    """Write a time without an exponent: `parse_seconds` reads the same, once ``s`` follows."""
    return f"{Decimal(str(seconds)).normalize():f}"


def format_duration(nanoseconds: int) -> str:
    """Write a duration for users: three significant digits and the unit that fits."""
    sign, size = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    for unit, factor in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        # 999.6 ms rounds to 1000, so the next unit fits better.
        if size >= factor * 0.9995:
            value = size / factor
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{sign}{value:.{digits}f} {unit}"
    return f"{sign}{size} ns"


def format_seconds(seconds: float) -> str:
    """As `format_duration`, for a duration in seconds."""
    return format_duration(round(seconds * SECOND_NS))


def readable_number(value: float, digits: int, unlike: float | None = None) -> str:
    """Write a number with `digits` significant digits, or more to distinguish it from `unlike`."""
    while digits < 17 and value != unlike and float(f"{value:.{digits}g}") == unlike:
        digits += 1
    return f"{Decimal(f'{value:.{digits}g}'):,f}"


def span(nanoseconds: int) -> str:
    """A length of time for a reader: ``40 s``, ``1 h 30 min``, ``2 d 3 h``."""
    seconds = round(nanoseconds / 1e9)
    for (big, big_seconds), (small, small_seconds) in (
        (("d", 86_400), ("h", 3_600)),
        (("h", 3_600), ("min", 60)),
        (("min", 60), ("s", 1)),
    ):
        if seconds >= big_seconds:
            many, rest = divmod(seconds, big_seconds)
            less = rest // small_seconds
            return f"{many} {big} {less} {small}" if less else f"{many} {big}"
    in_seconds = nanoseconds % 10**9 == 0 or nanoseconds >= 10**10
    return f"{seconds} s" if in_seconds else format_duration(nanoseconds)


def number(count: int, word: str = "message") -> str:
    """A count with its word: ``1 message``, ``1,024 messages``."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
