"""Pages from templates: everything that is not a chart's SVG is escaped, and nothing is loaded from elsewhere."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from spo_fast._files import write_text
from spo_fast.train.report.plot import clean
from spo_fast.train.report.statistics import Difference
from spo_fast.train.summary import Rate

_PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def write_page(path: Path, template: str, **view: Any) -> Path:
    """Renders a template of this folder into ``path``, which holds either what it held or the whole page."""
    write_text(path, clean(_PAGES.get_template(template).render(view)))
    return path


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def rate_interval(rate: Rate) -> str:
    return f"[{100 * rate.low:.1f}, {100 * rate.high:.1f}]"


def points(difference: float) -> str:
    """A difference of shares in percentage points."""
    return f"{100 * difference:+.1f}"


def points_interval(difference: Difference) -> str:
    """Its interval; words where there is too little data for one."""
    _, low, high = difference
    if not math.isfinite(high - low):
        return "no interval"
    return f"[{100 * low:+.1f}, {100 * high:+.1f}]"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
