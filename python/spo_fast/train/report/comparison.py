"""The page that lays runs over each other, with what sets them apart and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from spo_fast.train.evaluation import paired_difference
from spo_fast.train.report import statistics
from spo_fast.train.report.logs import Evaluation, RunLogs, load_run
from spo_fast.train.report.page import write_page
from spo_fast.train.report.plot import SERIES, Chart, Plot, style
from spo_fast.train.report.statistics import Difference
from spo_fast.train.report.wording import (
    duration,
    percent,
    points,
    points_interval,
    rate_interval,
)
from spo_fast.train.summary import area_under_curve


@dataclass(frozen=True)
class Shown:
    """A run on the page. Each has its colour; the first algorithm's curves are solid, others dashed."""

    logs: RunLogs
    name: str
    colour: str
    dashed: bool

    @property
    def algorithm(self) -> str:
        return self.logs.config.algorithm

    @property
    def seed(self) -> int:
        return self.logs.config.seed

    @property
    def batch(self) -> int:
        """Episodes of an update."""
        return self.logs.config.optimisation.prompts_per_step

    @property
    def rewards(self) -> list[float]:
        return [float(r) for r in self.logs.metrics.numbers("success") if math.isfinite(r)]


def write_comparison(runs: Sequence[Path], output: Path) -> Path:
    """Writes a page that compares runs: their curves, and differences with 95 % intervals.

    Every run is held against the first. Where the runs are of two algorithms with the same seeds, the algorithms are
    compared too, paired by seed.

    Args:
        runs: at least two run folders; they may still be running.
        output: the page, one HTML file that needs no other.

    Returns:
        ``output``.

    Raises:
        ValueError: fewer than two runs, one named twice, a folder without a run, or a damaged file in one.
    """
    runs = [Path(run) for run in runs]
    if len(runs) < 2:
        raise ValueError(f"runs: expected at least two run folders to compare, got {len(runs)}")
    places = [run.resolve() for run in runs]
    for i, place in enumerate(places):
        if place in places[:i]:
            raise ValueError(f"runs: {runs[i]} is named twice")
    shown = _shown([load_run(run) for run in runs])
    with style():
        charts = [_overlay(shown, *curve) for curve in _CURVES]
    pairing, because = _pair_by_seed(shown)
    return write_page(
        output,
        "comparison.html.jinja",
        title=f"{len(shown)} runs compared",
        refresh=None,
        width=_width(shown),
        unfinished=[run.name for run in shown if run.logs.summary is None],
        runs=[_row(run) for run in shown],
        reference=shown[0].name,
        differences=[_against(shown[0], run) for run in shown[1:]],
        paired=pairing,
        unpaired_because=because,
        charts=charts,
    )


def _shown(runs: list[RunLogs]) -> list[Shown]:
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in runs]
    palette: Sequence[Any] = SERIES
    if len(runs) > len(SERIES):
        shades = matplotlib.colormaps["turbo"](np.linspace(0.05, 0.95, len(runs)))
        palette = [matplotlib.colors.to_hex(shade) for shade in shades]
    first = runs[0].config.algorithm
    return [
        Shown(run, name, colour, run.config.algorithm != first)
        for run, name, colour in zip(runs, names, palette, strict=False)
    ]


# title, column, label of the axis, reading, factor
_CURVES: tuple[tuple[str, str, str, str, float], ...] = (
    (
        "Success in training",
        "success",
        "success",
        "Higher and sooner is better; the dots at the ends are held-out games, with their intervals.",
        1,
    ),
    (
        "Values of all tasks",
        "tracker_value_mean",
        "value",
        "What the prompt memory expects of the tasks: it should follow the success of its own run.",
        1,
    ),
    (
        "Entropy",
        "entropy_estimate",
        "nats a token",
        "A run whose entropy falls much faster than the others' may have stopped exploring.",
        1,
    ),
    (
        "KL of the update",
        "approx_kl",
        "nats a token",
        "How far each update moves the policy; peaks mark unsteady training.",
        1,
    ),
    (
        "Clipped tokens",
        "clip_fraction",
        "% of action tokens",
        "The share of tokens that the clip range stops; compare runs at the same learning rate.",
        100,
    ),
    (
        "Effective sample size",
        "ess",
        "part of the tokens",
        "1: all tokens weigh the same; lower: a few tokens decide the update.",
        1,
    ),
    (
        "Action tokens of an episode",
        "action_tokens_mean",
        "tokens",
        "Shorter episodes at the same success are a policy that wastes fewer commands.",
        1,
    ),
    (
        "Generated tokens per second",
        "tokens_per_s",
        "tokens/s",
        "The speed of the rollouts: comparable only on the same machine with nothing else running.",
        1,
    ),
)


def _overlay(shown: list[Shown], title: str, key: str, ylabel: str, reading: str, factor: float) -> Chart:
    """One metric of every run."""
    by_episodes = len({run.batch for run in shown}) > 1  # updates of different sizes are not one unit
    plot = Plot("training episodes" if by_episodes else "update", ylabel).over_updates()
    width = _width(shown)
    longest = max(run.logs.config.optimisation.updates for run in shown)
    for i, run in enumerate(shown):
        unit = run.batch if by_episodes else 1
        x, y = unit * run.logs.metrics.numbers("step"), factor * run.logs.metrics.numbers(key)
        if np.isfinite(y).any():
            plot.line(x, statistics.moving_mean(y, width), run.colour, run.name, dashed=run.dashed)
        if key == "success":
            # side by side, so that the intervals do not hide each other
            _held_out_dots(plot, run, unit, (i - (len(shown) - 1) / 2) * 0.013 * unit * longest)
    if not plot.keys:
        return Chart(title, reading, missing=f"Not there yet: no {key} in any run's metrics.jsonl.")
    if key == "success":
        plot.axes[0].set_ylim(0, 1)
    return plot.chart(title, reading)


def _held_out_dots(plot: Plot, run: Shown, unit: int, shift: float) -> None:
    rates = [(unit * e.step + shift, e.rates()["all"]) for e in run.logs.evaluations if e.outcomes]
    if rates:
        plot.intervals(
            [x for x, _ in rates],
            [rate.success for _, rate in rates],
            [rate.low for _, rate in rates],
            [rate.high for _, rate in rates],
            run.colour,
        )


def _width(shown: list[Shown]) -> int:
    return statistics.smoothing_width(max(len(run.logs.metrics) for run in shown))


def _row(run: Shown) -> dict[str, Any]:
    """A run's line in the table of results."""
    logs, rewards = run.logs, run.rewards
    before, after = (rates.get("all") for rates in logs.held_out_rates())
    values, outcomes = logs.episodes.numbers("value"), logs.episodes.numbers("outcome")
    known = np.isfinite(values) & np.isfinite(outcomes)
    brier = f"{statistics.calibration(values[known], outcomes[known]).brier:.3f}" if known.any() else "—"
    return {
        "name": run.name,
        "colour": run.colour,
        "mark": "dash" if run.dashed else "line",
        "algorithm": run.algorithm,
        "seed": run.seed,
        "updates": f"{logs.steps_done} of {logs.config.optimisation.updates}",
        "auc": f"{area_under_curve(rewards):.3f}" if rewards else "—",
        "before": percent(before.success) if before else "—",
        "before_interval": rate_interval(before) if before else "",
        "after": percent(after.success) if after else "not yet",
        "after_interval": rate_interval(after) if after else "",
        "brier": brier,
        "time": duration(sum(logs.summary.seconds.values())) if logs.summary else "—",
    }


def _against(first: Shown, run: Shown) -> dict[str, str]:
    """A run's line in the table of differences from the first."""
    row = {"name": run.name}
    held_out, how = held_out_difference(first.logs, run.logs)
    row |= _cells("held_out", held_out, how)
    a, b = first.rewards, run.rewards
    if a and b:
        updates = min(len(a), len(b))
        auc = statistics.auc_difference(a, first.batch, b, run.batch)
        sizes = "" if first.batch == run.batch else f", of {first.batch} and {run.batch} episodes"
        return row | _cells("auc", auc, f"the first {updates} updates of both{sizes}")
    return row | _cells("auc", None, "not there yet")


def _cells(name: str, difference: Difference | None, how: str) -> dict[str, str]:
    return {
        name: points(difference[0]) if difference else "—",
        f"{name}_interval": points_interval(difference) if difference else "",
        f"{name}_how": how,
    }


def held_out_difference(a: RunLogs, b: RunLogs) -> tuple[Difference | None, str]:
    """(success after training of b minus that of a, over what it is taken); None where one has no such evaluation.

    Paired by game over the games that both played; unpaired where they share none.
    """
    if a.after and b.after:
        shared = [task for task in a.after.outcomes if task in b.after.outcomes]
        if shared:
            one, two = ([e.outcomes[task] for task in shared] for e in (a.after, b.after))
            return paired_difference(
                one, two
            ), f"paired by game: {_shared_games(a.after, b.after, len(shared))}"
    rates = [rate for run in (a, b) if (rate := run.held_out_rates()[1].get("all"))]
    if len(rates) < 2:
        return None, "not there yet"
    (won_a, n_a), (won_b, n_b) = ((rate.success * rate.episodes, rate.episodes) for rate in rates)
    why = "they share no game" if a.after and b.after else "without evaluations.jsonl of both"
    how = f"unpaired, {why}: {n_a} and {n_b} games"
    return statistics.unpaired_difference(won_a, n_a, won_b, n_b), how


def _shared_games(a: Evaluation, b: Evaluation, shared: int) -> str:
    if shared == len(a.outcomes) == len(b.outcomes):
        return f"{shared} games"
    return f"the {shared} games that both played, of {len(a.outcomes)} and {len(b.outcomes)}"


def _pair_by_seed(shown: list[Shown]) -> tuple[dict[str, Any] | None, str]:
    """(the table of differences paired by seed or None, why there is none)."""
    algorithms = list(dict.fromkeys(run.algorithm for run in shown))
    if len(algorithms) != 2:
        return (
            None,
            "All these runs are of one algorithm; name runs of two, with the same seeds, to compare them.",
        )
    by_seed = [{run.seed: run for run in shown if run.algorithm == name} for name in algorithms]
    if sum(map(len, by_seed)) < len(shown):
        return (
            None,
            "An algorithm has several runs with one seed, so that there is no telling which belong together.",
        )
    if by_seed[0].keys() != by_seed[1].keys():
        lists = [", ".join(map(str, sorted(seeds))) for seeds in by_seed]
        return None, (
            f"The algorithms have different seeds ({algorithms[0]}: {lists[0]}; {algorithms[1]}: {lists[1]}); "
            "only runs with the same seeds can be paired."
        )
    seeds = sorted(by_seed[0])
    pairs = [(by_seed[0][seed], by_seed[1][seed]) for seed in seeds]
    rows = [_paired_row(name, pairs, measure) for name, measure in _MEASURES]
    return {"algorithms": algorithms, "seeds": seeds, "rows": rows}, ""


def _after(run: Shown) -> float:
    rate = run.logs.held_out_rates()[1].get("all")
    return rate.success if rate else math.nan


def _gain(run: Shown) -> float:
    before = run.logs.held_out_rates()[0].get("all")
    return _after(run) - before.success if before else math.nan


def _auc(run: Shown) -> float:
    return area_under_curve(run.rewards) if run.rewards else math.nan


_MEASURES = (
    ("held-out success after training", _after),
    ("its gain over before", _gain),
    ("area under the curve", _auc),
)


def _paired_row(name: str, pairs: list[tuple[Shown, Shown]], measure: Any) -> dict[str, Any]:
    a, b = ([measure(pair[i]) for pair in pairs] for i in (0, 1))
    if not np.isfinite(a + b).all():
        return {"name": name, "mean": "not there yet", "interval": "", "by_seed": ["—"] * len(pairs)}
    difference = statistics.t_difference(a, b)
    return {
        "name": name,
        "mean": points(difference[0]),
        "interval": points_interval(difference),
        "by_seed": [points(two - one) for one, two in zip(a, b, strict=True)],
    }
