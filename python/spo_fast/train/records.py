"""What a run writes down of a batch: the figures of its episodes, a line each, some as tokens; and the memory in use."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch

from spo_fast.rollout.collector import Request, Trajectory


def describe(batch: Sequence[Trajectory]) -> dict[str, float]:
    """What the episodes of a batch were like."""
    actions = sum(t.action_tokens for t in batch)
    return {
        "reward": float(np.mean([t.reward for t in batch])),
        "success": float(np.mean([t.outcome for t in batch])),
        "turns_mean": float(np.mean([len(t.commands) for t in batch])),
        "action_tokens_mean": actions / len(batch),
        "tokens_mean": float(np.mean([len(t.token_ids) for t in batch])),
        "truncated_fraction": float(np.mean([t.truncated for t in batch])),
        # the mean negative log-prob of sampled tokens estimates the policy's entropy
        "entropy_estimate": -sum(sum(t.logprobs) for t in batch) / max(actions, 1),
    }


def episodes(
    step: int, batch: Sequence[Trajectory], values: np.ndarray, advantages: np.ndarray
) -> Iterator[dict[str, Any]]:
    """A record an episode. ``advantages`` are those that the loss got, normalised."""
    for trajectory, value, advantage in zip(batch, values.tolist(), advantages.tolist(), strict=True):
        yield {
            "step": step,
            **_identity(trajectory),
            "version": trajectory.request.version,
            "value": value,
            "advantage": advantage,
            "turns": len(trajectory.commands),
            "action_tokens": trajectory.action_tokens,
            "truncated": trajectory.truncated,
        }


def transcript(
    step: int, trajectory: Trajectory, value: float, advantage: float, tokenizer: Any
) -> dict[str, Any]:
    """An episode as text: each observation, and each token that answered it with its log-prob."""
    turns = []
    said = _runs_of_ones(trajectory.action_mask)
    for observation, (begin, end) in zip(trajectory.observations, said, strict=False):
        turns.append(
            {
                "observation": observation,
                "tokens": [tokenizer.decode([token]) for token in trajectory.token_ids[begin:end]],
                "logprobs": trajectory.logprobs[begin:end],
            }
        )
    return {
        "step": step,
        **_identity(trajectory),
        "value": value,
        "advantage": advantage,
        "turns": turns,
        "end": trajectory.observations[-1],
    }


def batch_dump(
    batch: Sequence[Trajectory], advantages: np.ndarray, part: Sequence[int], figures: dict[str, float]
) -> dict[str, Any]:
    """What a gradient step was on, and what it gave: its trajectories, their advantages, its figures."""
    return {
        "trajectories": [dataclasses.asdict(batch[i]) for i in part],
        "advantages": [float(advantages[i]) for i in part],
        "figures": figures,
    }


def evaluation(step: int, played: Sequence[Trajectory]) -> dict[str, Any]:
    """How each held-out task ended."""
    return {
        "step": step,
        "outcomes": {t.request.task_id: t.outcome for t in played},
        "task_types": {t.request.task_id: t.task_type for t in played},
    }


def evaluated(record: dict[str, Any]) -> list[Trajectory]:
    """The episodes of an ``evaluation`` record, their outcomes and task types alone."""
    return [
        Trajectory(Request(i, task), record["task_types"][task], outcome=outcome)
        for i, (task, outcome) in enumerate(record["outcomes"].items())
    ]


def resources(step: int) -> dict[str, Any]:
    """Most memory that this process has had so far, in MB: of the host and of the GPU (0 without one)."""
    gpu = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return {"step": step, "rss_mb": _peak_rss_mb(), "gpu_mb": gpu / 1e6}


def _peak_rss_mb() -> float:
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _identity(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "number": trajectory.request.number,
        "task_id": trajectory.request.task_id,
        "task_type": trajectory.task_type,
        "outcome": trajectory.outcome,
    }


def _runs_of_ones(mask: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(begin, end) of each stretch of ones."""
    begin = 0
    for value, group in groupby(mask):
        end = begin + sum(1 for _ in group)
        if value:
            yield begin, end
        begin = end
