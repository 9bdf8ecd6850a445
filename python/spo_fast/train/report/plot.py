"""Charts as inline SVG in one style. The legend is HTML, so that it wraps and its words are escaped by the page."""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

BLUE, ORANGE, TEAL, PURPLE = "#2563eb", "#ea580c", "#0d9488", "#7c3aed"
GREEN, RED, GREY, INK = "#16a34a", "#dc2626", "#94a3b8", "#334155"
SERIES = (BLUE, ORANGE, TEAL, PURPLE, "#db2777", "#65a30d", "#0891b2", "#a16207")

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, and in the page's own font
    "text.parse_math": False,  # a $ in a task type is a dollar
    "font.size": 9.5,
    "text.color": INK,
    "axes.titlesize": 8.8,
    "axes.titlecolor": "#64748b",
    "axes.edgecolor": "#cbd5e1",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e2e8f0",
    "grid.linewidth": 0.7,
    "xtick.color": "#cbd5e1",
    "ytick.color": "#cbd5e1",
    "xtick.labelcolor": "#475569",
    "ytick.labelcolor": "#475569",
    "lines.solid_capstyle": "round",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


@dataclass(frozen=True)
class Key:
    """An entry of a legend. ``mark``: "line", "dash", "dot" or "area"."""

    label: str
    colour: str
    mark: str = "line"


@dataclass(frozen=True)
class Chart:
    """A chart on the page.

    Attributes:
        reading: one plain sentence on how to read it.
        svg: the picture; None where there is nothing to draw yet.
        note: its figures in one line.
        missing: what is not there yet, where ``svg`` is None.
    """

    title: str
    reading: str
    svg: Markup | None = None
    keys: tuple[Key, ...] = ()
    note: str = ""
    missing: str = ""


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Charts are made inside; matplotlib's settings are as before afterwards."""
    with matplotlib.rc_context(_STYLE):
        yield


class Plot:
    """One picture being drawn: panels under each other over one x axis.

    Args:
        xlabel: of the lowest panel.
        ylabels: one a panel, written level above it.
        left: where the panels begin, as a part of the width; more where tick labels are words.
    """

    def __init__(self, xlabel: str, *ylabels: str, left: float = 0.105):
        self.figure = Figure(figsize=(5.7, 3.0))
        self.keys: list[Key] = []
        self.axes: list[Axes] = []
        gap, bottom, top = 0.12, 0.15, 0.92
        height = (top - bottom - gap * (len(ylabels) - 1)) / len(ylabels)
        for i, ylabel in enumerate(ylabels):
            low = top - height - i * (height + gap)
            axes = self.figure.add_axes((left, low, 0.975 - left, height))
            axes.set_title(ylabel, loc="left", pad=4)
            axes.yaxis.set_major_locator(MaxNLocator(6 if len(ylabels) == 1 else 4, steps=[1, 2, 2.5, 5, 10]))
            self.axes.append(axes)
        self.axes[-1].set_xlabel(xlabel)

    def key(self, label: str, colour: str, mark: str = "line") -> None:
        if label:
            self.keys.append(Key(label, colour, mark))

    def line(
        self,
        x: np.ndarray,
        y: np.ndarray,
        colour: str,
        label: str = "",
        *,
        panel: int = 0,
        faint: bool = False,
        dashed: bool = False,
    ) -> None:
        """A curve; a dot where there are too few points for one."""
        self.axes[panel].plot(
            x,
            y,
            color=colour,
            linewidth=1.0 if faint else 1.9,
            alpha=0.3 if faint else 1.0,
            linestyle="--" if dashed else "-",
            marker="o" if np.isfinite(y).sum() < 3 else None,
            markersize=4,
        )
        self.key(label, colour, "dash" if dashed else "line")

    def intervals(
        self,
        x: Sequence[float],
        y: Sequence[float],
        low: Sequence[float],
        high: Sequence[float],
        colour: str,
        label: str = "",
        *,
        horizontal: bool = False,
    ) -> None:
        """Dots with 95 % intervals, of y, or of x where ``horizontal``."""
        middle = np.asarray(x if horizontal else y, dtype=float)
        bars = [middle - np.asarray(low), np.asarray(high) - middle]
        self.axes[0].errorbar(
            x,
            y,
            xerr=bars if horizontal else None,
            yerr=None if horizontal else bars,
            fmt="o",
            color=colour,
            markersize=5.5,
            elinewidth=1.4,
            capsize=3,
            zorder=5,
        )
        self.key(label, colour, "dot")

    def over_updates(self) -> Plot:
        """Whole numbers along x; only the lowest panel names them."""
        for axes in self.axes:
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
            axes.tick_params(labelbottom=axes is self.axes[-1])
        return self

    def log_scale(self, panel: int, values: np.ndarray) -> None:
        """A logarithmic y axis where ``values`` span more than a decade."""
        positive = values[np.isfinite(values) & (values > 0)]
        if not len(positive) or positive.max() < 10 * positive.min():
            return
        axes = self.axes[panel]
        axes.set_yscale("log")
        subs = (1.0, 2.0, 5.0) if math.log10(positive.max() / positive.min()) < 2 else (1.0,)
        axes.yaxis.set_major_locator(LogLocator(subs=subs))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())

    def chart(self, title: str, reading: str, note: str = "") -> Chart:
        return Chart(title, reading, self._svg(title), tuple(self.keys), note)

    def _svg(self, title: str) -> Markup:
        # Ids are hashes with this salt: a chart's own, so that none refers into another chart of the page.
        matplotlib.rcParams["svg.hashsalt"] = title
        file = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        self.figure.savefig(file, format="svg", metadata=nothing)
        svg = file.getvalue()
        svg = svg[svg.index("<svg") :]
        # The page is HTML: no namespaces, no size of its own, and no group ids, which repeat in every chart.
        svg = re.sub(r'<g id="[^"]*"', "<g", svg)
        svg = re.sub(r' (?:xmlns(?::\w+)?|version)="[^"]*"', "", svg)
        svg = re.sub(
            r'<svg width="[^"]*" height="[^"]*"',
            f'<svg role="img" aria-label="{_attribute(title)}"',
            svg,
            count=1,
        )
        return Markup(svg)


def _attribute(text: str) -> str:
    return str(Markup.escape(text))
