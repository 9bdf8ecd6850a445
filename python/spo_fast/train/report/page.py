"""Pages from templates: everything that is not a chart's SVG is escaped, and nothing is loaded from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from spo_fast._files import write_text
from spo_fast.train.report.wording import clean

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
