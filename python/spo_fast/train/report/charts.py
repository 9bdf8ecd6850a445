"""The charts of one run. Each says in a sentence how it is read, and what is not there yet where it has no data."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from spo_fast.train.report import statistics
from spo_fast.train.report.logs import RunLogs
from spo_fast.train.report.plot import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SERIES,
    TEAL,
    Chart,
    Plot,
)
from spo_fast.train.report.wording import clean, count, signed
from spo_fast.train.summary import area_under_curve

_SCATTER_POINTS = 1200  # more only make the page heavy


def charts(run: RunLogs) -> list[Chart]:
    """All of them, in the page's order."""
    return [draw(run) for draw in _CHARTS]


def learning_curve(run: RunLogs) -> Chart:
    title = "Learning curve"
    reading = (
        "The share of games won in each update's batch: it should climb, and the held-out dots, games that "
        "training never sees, should climb with it."
    )
    step, reward = run.metrics.numbers("step"), run.metrics.numbers("success")
    if not np.isfinite(reward).any() and not run.evaluations:
        return Chart(title, reading, missing=_not_yet("metrics.jsonl", "no update yet"))
    plot = Plot("update", "success").over_updates()
    width = statistics.smoothing_width(len(step))
    if len(step):
        plot.axes[0].fill_between(step, reward, color=BLUE, alpha=0.06, linewidth=0)
        plot.line(step, reward, BLUE, faint=True)
        plot.line(step, statistics.moving_mean(reward, width), BLUE, f"training, mean of {width} updates")
    rates = [(e.step, e.rates()["all"]) for e in run.evaluations if e.outcomes]
    if rates:
        plot.intervals(
            [at for at, _ in rates],
            [rate.success for _, rate in rates],
            [rate.low for _, rate in rates],
            [rate.high for _, rate in rates],
            ORANGE,
            "held-out games, 95 % interval",
        )
    plot.axes[0].set_ylim(0, 1)
    finite = [float(r) for r in reward if math.isfinite(r)]
    note = f"area under the curve (AUC) {area_under_curve(finite):.3f}: the mean height" if finite else ""
    return plot.chart(title, reading, note)


def tracker(run: RunLogs) -> Chart:
    title = "Values of the prompt memory"
    reading = (
        "The values, which serve as baselines, should follow the success that they predict; a gap that stays open "
        "says that the memory lags behind the policy."
    )
    step, reward = run.metrics.numbers("step"), run.metrics.numbers("success")
    value, all_tasks = run.metrics.numbers("value_mean"), run.metrics.numbers("tracker_value_mean")
    if not np.isfinite(value).any() and not np.isfinite(all_tasks).any():
        return Chart(title, reading, missing=_not_yet("metrics.jsonl", "no update yet"))
    plot = Plot("update", "success, value").over_updates()
    width = statistics.smoothing_width(len(step))
    plot.line(step, reward, BLUE, faint=True)
    plot.line(step, statistics.moving_mean(reward, width), BLUE, f"observed, mean of {width} updates")
    when = "dispatch" if run.config.algorithm == "spo++" else "receipt"
    plot.line(step, value, ORANGE, f"value at {when}, mean of the batch")
    plot.line(step, all_tasks, TEAL, "value now, mean of all tasks")
    gap = float(np.nanmean(value - reward)) if np.isfinite(value - reward).any() else math.nan
    return plot.chart(title, reading, f"value minus observed success, mean of all updates {signed(gap)}")


def calibration(run: RunLogs) -> Chart:
    title = "Calibration of the values"
    reading = (
        "Episodes grouped by the value predicted before they started: on the diagonal, games said to be won 70 % of "
        "the time are won 70 % of the time; below it the memory hopes too much."
    )
    values, outcomes = run.episodes.numbers("value"), run.episodes.numbers("outcome")
    known = np.isfinite(values) & np.isfinite(outcomes)
    if not known.any():
        return Chart(title, reading, missing=_not_yet("episodes.jsonl", "no training episode yet"))
    result = statistics.calibration(values[known], outcomes[known])
    plot = Plot("value (predicted success)", "observed success")
    axes = plot.axes[0]
    share = [b.episodes / result.episodes for b in result.bins]
    axes.bar([b.predicted for b in result.bins], share, width=0.05, color=GREY, alpha=0.35, linewidth=0)
    plot.key("share of the episodes", GREY, "area")
    plot.line(np.array([0.0, 1.0]), np.array([0.0, 1.0]), GREY, "perfect", dashed=True)
    plot.intervals(
        [b.predicted for b in result.bins],
        [b.observed for b in result.bins],
        [b.low for b in result.bins],
        [b.high for b in result.bins],
        TEAL,
        "observed, 95 % interval",
    )
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    note = (
        f"Brier score {result.brier:.3f} (a constant guess: {result.constant_brier:.3f}) · "
        f"expected calibration error {result.ece:.3f} · {count(result.episodes)} episodes"
    )
    return plot.chart(title, reading, note)


def task_types(run: RunLogs) -> Chart:
    title = "Success by task type, in training"
    reading = "One line a kind of task: which kinds are learned first, and which ones lag."
    step, won = run.episodes.numbers("step"), run.episodes.numbers("outcome")
    known = np.isfinite(step) & np.isfinite(won)
    if not known.any():
        return Chart(title, reading, missing=_not_yet("episodes.jsonl", "no training episode yet"))
    types = np.array(run.episodes.texts("task_type"))
    updates = np.unique(step[known])
    width = statistics.smoothing_width(len(updates))
    plot = Plot("update", f"success, mean of {width} updates").over_updates()
    for i, name in enumerate(np.unique(types[known])):
        mine = known & (types == name)
        at = np.searchsorted(updates, step[mine])
        sums = np.bincount(at, weights=won[mine], minlength=len(updates))
        counts = np.bincount(at, minlength=len(updates)).astype(float)
        curve = statistics.pooled_mean(sums, counts, width)
        plot.line(
            updates, curve, SERIES[i % len(SERIES)], str(name) or "without a type", dashed=i >= len(SERIES)
        )
    plot.axes[0].set_ylim(0, 1)
    return plot.chart(title, reading)


def held_out(run: RunLogs) -> Chart:
    title = "Held-out success by task type"
    reading = (
        "Each dot is the success on games that training never sees; where the bars of before and after overlap, "
        "the change of that one type may be chance."
    )
    before, after = run.held_out_rates()
    if not before and not after:
        return Chart(title, reading, missing=_not_yet("evaluations.jsonl", "no evaluation yet"))
    names = list(before or after)
    plot = Plot("success", "", left=0.4)
    for rates, offset, colour, label in ((before, 0.14, GREY, "before"), (after, -0.14, GREEN, "after")):
        there = [(i, rates[name]) for i, name in enumerate(reversed(names)) if name in rates]
        if there:
            plot.intervals(
                [rate.success for _, rate in there],
                [i + offset for i, _ in there],
                [rate.low for _, rate in there],
                [rate.high for _, rate in there],
                colour,
                f"{label} training, 95 % interval",
                horizontal=True,
            )
    axes = plot.axes[0]
    axes.set_yticks(range(len(names)), [_label(name) for name in reversed(names)], fontsize=8.5)
    axes.set(xlim=(0, 1), ylim=(-0.6, len(names) - 0.4))
    axes.grid(axis="y", visible=False)
    return plot.chart(title, reading)


def entropy_and_kl(run: RunLogs) -> Chart:
    title = "Entropy and KL"
    reading = (
        "Entropy is how undecided the policy is, and falls as it learns; a fall to nearly 0 means that it no longer "
        "explores. KL is how far it moved from the update's start, on the mean of its gradient steps; it should stay "
        "small and steady, and is 0 where an update is one step."
    )
    step, entropy = run.metrics.numbers("step"), run.metrics.numbers("entropy_estimate")
    if not np.isfinite(entropy).any():
        return Chart(title, reading, missing=_not_yet("metrics.jsonl", "no update yet"))
    plot = Plot("update", "entropy, nats a token", "KL, nats a token").over_updates()
    plot.line(step, entropy, PURPLE, "entropy")
    plot.line(step, run.metrics.numbers("approx_kl"), ORANGE, "KL of the update (below)", panel=1)
    reference = run.metrics.numbers("kl_mean")
    if np.nanmax(np.abs(np.append(reference, 0.0))) > 0:
        plot.line(step, reference, TEAL, "KL to the reference model (below)", panel=1)
    return plot.chart(title, reading)


def clipping(run: RunLogs) -> Chart:
    title = "Clipped tokens"
    reading = (
        "The share of action tokens whose gradient the clip range stopped; some per cent are usual, much more says "
        "that updates are too large or episodes too old."
    )
    step, clipped = run.metrics.numbers("step"), run.metrics.numbers("clip_fraction")
    dual = run.metrics.numbers("dual_clip_fraction")
    if not np.isfinite(clipped).any():
        return Chart(title, reading, missing=_not_yet("metrics.jsonl", "no update yet"))
    objective = run.config.objective
    plot = Plot("update", "% of action tokens").over_updates()
    plot.line(
        step, 100 * clipped, BLUE, f"clipped to [{1 - objective.clip_low:g}, {1 + objective.clip_high:g}]"
    )
    plot.line(step, 100 * dual, RED, f"dual clip, at {run.config.dual_clip:g}")
    plot.axes[0].set_ylim(bottom=0)
    note = f"mean of all updates {100 * _mean(clipped):.2f} %, dual clip {100 * _mean(dual):.3f} %"
    return plot.chart(title, reading, note)


def importance_weights(run: RunLogs) -> Chart:
    title = "Importance weights"
    reading = (
        "Above, both lines should stay near 1: the learner then agrees with the policy that played, and every token "
        "counts. Below, the largest single ratio of an update; its peaks are what clipping is for."
    )
    step, ess = run.metrics.numbers("step"), run.metrics.numbers("ess")
    weight, largest = run.metrics.numbers("rollout_is_mean"), run.metrics.numbers("ratio_max")
    if not np.isfinite(ess).any() and not np.isfinite(largest).any():
        return Chart(title, reading, missing=_not_yet("metrics.jsonl", "no update yet"))
    plot = Plot("update", "mean weight, effective sample size", "largest ratio").over_updates()
    plot.line(step, weight, BLUE, "mean rollout weight")
    plot.line(step, ess, TEAL, "effective sample size, a part of the tokens")
    plot.line(step, largest, ORANGE, "largest ratio (below)", panel=1)
    plot.log_scale(1, largest)
    return plot.chart(title, reading)


def length_and_advantage(run: RunLogs) -> Chart:
    title = "Episode length against advantage"
    reading = (
        "Each dot is an episode; the line is the mean at that length. Where it slopes, long and short episodes are "
        "pushed differently, and it matters whether the advantages are centred over episodes or over tokens."
    )
    length, advantage = run.episodes.numbers("action_tokens"), run.episodes.numbers("advantage")
    known = np.flatnonzero(np.isfinite(length) & np.isfinite(advantage))
    if not len(known):
        return Chart(title, reading, missing=_not_yet("episodes.jsonl", "no training episode yet"))
    plot = Plot("action tokens of the episode", "advantage in the loss")
    axes = plot.axes[0]
    shown = known[:: max(1, math.ceil(len(known) / _SCATTER_POINTS))]
    won = run.episodes.numbers("outcome") >= 0.5
    for mask, colour, label in ((won, GREEN, "won"), (~won, RED, "lost")):
        points = shown[mask[shown]]
        axes.plot(
            length[points], advantage[points], ".", color=colour, alpha=0.3, markersize=4, rasterized=True
        )
        plot.key(label, colour, "dot")
    x, y, error = statistics.binned_means(length[known], advantage[known])
    axes.errorbar(
        x, y, yerr=1.96 * np.nan_to_num(error), fmt="o-", color="#0f172a", markersize=4, linewidth=1.6
    )
    plot.key("mean at this length, 95 % interval", "#0f172a")
    note = (
        ""
        if len(shown) == len(known)
        else f"{count(len(shown))} of {count(len(known))} episodes drawn; means of all"
    )
    return plot.chart(title, reading, note)


def residual_centre(run: RunLogs) -> Chart:
    title = "Centre of the advantages, over tokens"
    measure = run.config.advantage_measure
    reading = (
        "The mean advantage of an action token, the push that all tokens of an update share: 0 is right. Whitening "
        "over trajectories leaves the first line; what this run used is the second."
    )
    columns = ("step", "outcome", "value", "action_tokens", "advantage")
    table = np.stack([run.episodes.numbers(key) for key in columns])
    table = table[:, np.isfinite(table).all(axis=0)]
    if not table.shape[1]:
        return Chart(title, reading, missing=_not_yet("episodes.jsonl", "no training episode yet"))
    centres = statistics.residual_centres(*table)
    plot = Plot("update", "mean over tokens, in deviations").over_updates()
    plot.axes[0].axhline(0, color=GREY, linewidth=1)
    plot.line(centres.steps, centres.whitened, RED, "left by trajectory whitening")
    plot.line(
        centres.steps, centres.used, GREEN, f"as used ({measure} measure)", dashed=measure == "trajectory"
    )
    note = f"mean of all updates {signed(_mean(centres.whitened))} by trajectory whitening, {signed(_mean(centres.used))} as used"
    return plot.chart(title, reading, note)


def timing(run: RunLogs) -> Chart:
    title = "Where the time goes"
    reading = (
        "Seconds of each update, stacked: the model writing commands, the games answering, the gradient steps, and "
        "the rest."
    )
    step = run.metrics.numbers("step")
    parts = [
        (run.metrics.numbers(key), colour, label)
        for key, colour, label in (
            ("generate_s", BLUE, "generate"),
            ("env_s", ORANGE, "environment"),
            ("update_s", TEAL, "update"),
            ("other_s", GREY, "other"),
        )
    ]
    parts = [
        (np.nan_to_num(seconds), colour, label)
        for seconds, colour, label in parts
        if np.isfinite(seconds).any()
    ]
    if not parts:
        return Chart(title, reading, missing=_not_yet("metrics.jsonl", "no update yet"))
    plot = Plot("update", "seconds").over_updates()
    total = sum(seconds.sum() for seconds, _, _ in parts)
    edges, base = np.append(step - 0.5, step[-1] + 0.5), np.zeros(len(step))
    for seconds, colour, label in parts:
        plot.axes[0].stairs(
            base + seconds, edges, baseline=base, fill=True, color=colour, alpha=0.8, linewidth=0
        )
        plot.key(f"{label} {100 * seconds.sum() / total:.1f} %" if total else label, colour, "area")
        base = base + seconds
    rates = (run.metrics.numbers("tokens_per_s"), run.metrics.numbers("env_steps_per_s"))
    note = f"median {np.median(base):.1f} s an update"
    if all(np.isfinite(rate).any() for rate in rates):
        tokens, env_steps = (count(float(np.nanmedian(rate))) for rate in rates)
        note += f" · {tokens} tokens/s · {env_steps} environment steps/s"
    return plot.chart(title, reading, note)


def memory(run: RunLogs) -> Chart:
    title = "Memory"
    reading = "The most memory that the process has held so far: it should level off; a climb without end is a leak."
    step, rss, gpu = (run.resources.numbers(key) for key in ("step", "rss_mb", "gpu_mb"))
    if not np.isfinite(rss).any():
        return Chart(title, reading, missing=_not_yet("resources.jsonl", "no update yet"))
    plot = Plot("update", "MB").over_updates()
    plot.line(step, rss, BLUE, "main memory (RSS)")
    if np.nan_to_num(gpu).any():
        plot.line(step, gpu, PURPLE, "GPU memory")
    plot.axes[0].set_ylim(0, 1.15 * np.nanmax(np.append(rss, gpu)))
    return plot.chart(title, reading, f"peak {count(float(np.nanmax(rss)))} MB")


_CHARTS: tuple[Callable[[RunLogs], Chart], ...] = (
    learning_curve,
    tracker,
    calibration,
    residual_centre,
    task_types,
    held_out,
    length_and_advantage,
    clipping,
    entropy_and_kl,
    importance_weights,
    timing,
    memory,
)


def _not_yet(file: str, what: str) -> str:
    return f"Not there yet: {what} in {file}."


def _mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else math.nan


def _label(name: str, limit: int = 30) -> str:
    """A task type as a tick label: one line that fits beside the axis."""
    name = " ".join(clean(name).split())
    return name if len(name) <= limit else name[: limit - 1] + "…"
