"""How often a policy wins, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from spo_fast.envs.protocol import TaskSet
from spo_fast.rollout.chat import ChatFormat
from spo_fast.rollout.collector import Collector, Request, Trajectory
from spo_fast.rollout.transformers_engine import TransformersEngine
from spo_fast.train.config import RolloutConfig
from spo_fast.train.progress import Progress


def evaluate(
    model: Any,
    chat: ChatFormat,
    tasks: TaskSet,
    rollout: RolloutConfig,
    *,
    seed: int,
    progress: Progress,
    phase: str,
) -> list[Trajectory]:
    """Plays every task once; trajectories in the order of ``tasks.task_ids``. Deterministic by seed.

    Args:
        phase: what the progress bar is called.
    """
    engine = TransformersEngine(
        model, stop_ids=chat.stop_ids, slots=rollout.slots, temperature=rollout.eval_temperature, seed=seed
    )
    collector = Collector(
        engine, tasks, chat, max_tokens=rollout.max_tokens, max_action_tokens=rollout.max_action_tokens
    )
    out: dict[int, Trajectory] = {}
    won = 0.0
    with progress.phase(phase, len(tasks.task_ids), "game") as bar:
        for trajectory in collector.play(Request(i, task) for i, task in enumerate(tasks.task_ids)):
            out[trajectory.request.number] = trajectory
            won += trajectory.outcome
            bar.update()
            bar.set_postfix(success=f"{won / len(out):.3f}", refresh=False)
    return [out[i] for i in range(len(tasks.task_ids))]


def wilson_interval(successes: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a proportion that stays right near 0 and 1 (Wilson 1927)."""
    if n == 0:
        return 0.0, 1.0
    p = successes / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    # at 0 and 1 rounding may put an end of the interval beyond the proportion itself
    return max(0.0, min(p, middle - half)), min(1.0, max(p, middle + half))


def paired_difference(
    before: Sequence[float], after: Sequence[float], z: float = 1.96
) -> tuple[float, float, float]:
    """Mean difference over the same tasks and its 95 % normal interval: (difference, low, high)."""
    d = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    half = z * d.std(ddof=1) / math.sqrt(len(d)) if len(d) > 1 else math.inf
    return float(d.mean()), float(d.mean() - half), float(d.mean() + half)


def success_by_type(trajectories: Sequence[Trajectory]) -> dict[str, tuple[float, int]]:
    """(successes, episodes) of each task type, and of all under "all"."""
    table: dict[str, tuple[float, int]] = {}
    for t in trajectories:
        for key in (t.task_type, "all"):
            wins, n = table.get(key, (0.0, 0))
            table[key] = (wins + t.outcome, n + 1)
    return table
