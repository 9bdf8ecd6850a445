"""The end of a run: success before and after with intervals, and the picture of the learning curve."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spo_fast._files import write_text
from spo_fast.rollout.collector import Trajectory
from spo_fast.train.config import TrainConfig
from spo_fast.train.evaluation import paired_difference, success_by_type, wilson_interval
from spo_fast.train.records import evaluated
from spo_fast.train.run_folder import load_log


@dataclass(frozen=True)
class Rate:
    """A success rate with its 95 % interval."""

    success: float
    low: float
    high: float
    episodes: int

    def __str__(self) -> str:
        return f"{self.success:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Summary:
    """What a run achieved.

    Attributes:
        before: success rate on the held-out tasks by task type and under "all", before training.
        after: the same after training.
        difference: (after - before, low, high), paired over the held-out tasks.
        auc: trapezoid area under the reward of successive updates, divided by its width.
        seconds: wall-clock seconds of each phase.
    """

    algorithm: str
    seed: int
    before: dict[str, Rate]
    after: dict[str, Rate]
    difference: tuple[float, float, float]
    auc: float
    seconds: dict[str, float]

    def text(self) -> str:
        lines = [f"{'held-out success':<34} {'before':>22} {'after':>22}"]
        for kind, before in self.before.items():
            lines.append(f"{kind:<34} {before!s:>22} {self.after[kind]!s:>22}")
        d, low, high = (100 * x for x in self.difference)
        lines.append(f"difference {d:+.1f} points, 95 % interval [{low:+.1f}, {high:+.1f}], paired by game")
        lines.append(f"area under the reward curve {self.auc:.3f}")
        times = ", ".join(f"{name} {seconds:.0f}" for name, seconds in self.seconds.items())
        lines.append(f"seconds: {times}; {sum(self.seconds.values()):.0f} in all")
        return "\n".join(lines)


def rates(trajectories: list[Trajectory]) -> dict[str, Rate]:
    """Success rates by task type in the order of their names, and last of all under "all"."""
    table = success_by_type(trajectories)
    return {
        kind: Rate(wins / n, *wilson_interval(wins, n), n)
        for kind, (wins, n) in sorted(table.items(), key=lambda item: (item[0] == "all", item[0]))
    }


def area_under_curve(rewards: list[float]) -> float:
    """Trapezoid area divided by its width; the value itself for one point, 0 for none."""
    if len(rewards) < 2:
        return float(sum(rewards))
    return (sum(rewards) - (rewards[0] + rewards[-1]) / 2) / (len(rewards) - 1)


def summarise(run: Path, config: TrainConfig, seconds: dict[str, float]) -> Summary:
    """Writes learning_curve.png and, last of all that a run writes, summary.json."""
    metrics = load_log(run, "metrics")
    before, after = (evaluated(record) for record in load_log(run, "evaluations"))
    summary = Summary(
        algorithm=config.algorithm,
        seed=config.seed,
        before=rates(before),
        after=rates(after),
        difference=paired_difference([t.outcome for t in before], [t.outcome for t in after]),
        auc=area_under_curve([m["success"] for m in metrics]),
        seconds=dict(seconds),
    )
    draw_learning_curve(run / "learning_curve.png", summary, metrics)
    write_text(run / "summary.json", json.dumps(dataclasses.asdict(summary), indent=2) + "\n")
    return summary


def load_summary(run: Path) -> Summary:
    """The summary of a finished run.

    Raises:
        ValueError: naming the file if it is damaged.
    """
    path = run / "summary.json"
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        for name in ("before", "after"):
            fields[name] = {kind: Rate(**rate) for kind, rate in fields[name].items()}
        return Summary(**{**fields, "difference": tuple(fields["difference"])})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def draw_learning_curve(path: Path, summary: Summary, metrics: list[dict]) -> None:
    """Success of each update's batch, with the held-out success before and after."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    steps = [m["step"] for m in metrics]
    successes = np.array([m["success"] for m in metrics])
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(steps, successes, color="tab:blue", alpha=0.35, linewidth=1, label="training batches")
    if len(successes) >= 5:
        kernel = np.ones(5) / 5
        smooth = np.convolve(np.pad(successes, 2, mode="edge"), kernel, mode="valid")
        axes.plot(steps, smooth, color="tab:blue", linewidth=2, label="mean of 5 batches")
    for rates_, x, label in ((summary.before, 0, "held-out games"), (summary.after, len(steps), None)):
        rate = rates_["all"]
        bars = [[rate.success - rate.low], [rate.high - rate.success]]
        axes.errorbar([x], [rate.success], yerr=bars, fmt="o", color="tab:orange", capsize=4, label=label)
    axes.set(
        xlabel="update", ylabel="success", ylim=(0, 1), title=f"{summary.algorithm}, seed {summary.seed}"
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
    plt.close(figure)
