"""Numbers and foreign text as the pages show them."""

from __future__ import annotations

import math
import re

from spo_fast.train.report.statistics import Difference
from spo_fast.train.summary import Rate

_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)


def clean(text: str) -> str:
    """Without what no page can hold or show in its place: control characters, lone surrogates, forced directions."""
    return _UNSAFE.sub("\ufffd", text)


def count(number: float) -> str:
    """A whole number with narrow spaces between thousands."""
    return f"{number:,.0f}".replace(",", "\u202f")


def signed(number: float, digits: int = 3) -> str:
    """With its sign, which a zero has only as +."""
    return f"{round(number, digits) + 0.0:+.{digits}f}"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def rate_interval(rate: Rate) -> str:
    return f"[{100 * rate.low:.1f}, {100 * rate.high:.1f}]"


def points(difference: float) -> str:
    """A difference of shares in percentage points."""
    return signed(100 * difference, 1)


def points_interval(difference: Difference) -> str:
    """Its interval; words where there is too little data for one."""
    _, low, high = difference
    if not math.isfinite(high - low):
        return "no interval"
    return f"[{points(low)}, {points(high)}]"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
