"""Bars of the newest results in a CSV: ``python -m benchmarks.plot results.csv picture.png``."""

from __future__ import annotations

import csv
import sys
from pathlib import Path


def newest(path: Path) -> dict[str, dict[str, float]]:
    """By task and case, by contender: times as long as ours; the last row of each counts."""
    result: dict[str, dict[str, float]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            details = [row["vocabulary"] and f"V = {row['vocabulary']}", row["dtype"]]
            details.append(row["mask_share"] and f"mask {row['mask_share']}")
            title = ", ".join(part for part in (row["task"], *details) if part)
            result.setdefault(title, {})[row["contender"]] = float(row["times_ours"])
    return result


def plot(source: Path, target: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = newest(source)
    contenders = sorted({name for ratios in cases.values() for name in ratios})
    bars = sum(len(ratios) + 1 for ratios in cases.values())
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.16 * bars))
    place, ticks = 0, []
    for title, ratios in cases.items():
        ticks.append((place + (len(ratios) - 1) / 2, title))
        for name, ratio in ratios.items():
            axes.barh(place, ratio, color=f"C{contenders.index(name)}")
            place += 1
        place += 1
    for i, name in enumerate(contenders):
        axes.barh(0, 0, color=f"C{i}", label=name)
    axes.set_yticks([tick for tick, _ in ticks], [title for _, title in ticks], fontsize=7)
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.7)
    axes.set_xlabel("median time, in times that of spo_fast")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(target, dpi=120)


if __name__ == "__main__":
    plot(Path(sys.argv[1]), Path(sys.argv[2]))
