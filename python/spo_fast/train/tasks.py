"""Which games a run trains on, is judged by, and imitates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spo_fast.envs.alfworld import AlfworldGame, AlfworldTasks, find_games, generate_games
from spo_fast.envs.protocol import TaskSet
from spo_fast.train.config import TaskConfig

# Seeds of generated games: apart from each other for every seed of a run.
_TRAINING, _HELD_OUT, _IMITATION = 0, 1, 2


def training_tasks(config: TaskConfig, seed: int) -> TaskSet:
    """The tasks that a run trains on."""
    return _task_set(config, _games(config, seed, config.train_tasks, "train", _TRAINING))


def held_out_tasks(config: TaskConfig, seed: int) -> TaskSet:
    """The tasks that a run is judged by; no layout of theirs is trained on."""
    return _task_set(config, _games(config, seed, config.eval_tasks, config.eval_split, _HELD_OUT))


def imitation_games(config: TaskConfig, seed: int, count: int) -> list[AlfworldGame]:
    """Games for the expert to show: of the training split, or generated where there is no folder."""
    if config.games is None:
        return [
            AlfworldGame(game, config.max_steps)
            for game in _generated(config, seed, count, "train", _IMITATION)
        ]
    paths = find_games(config.games, "train")
    order = np.random.default_rng([seed, _IMITATION]).permutation(len(paths))[:count]
    games = [AlfworldGame(paths[i], config.max_steps) for i in order]
    return [games[i % len(games)].copy() for i in range(count)]


def _games(
    config: TaskConfig, seed: int, count: int, split: str, purpose: int
) -> Sequence[Mapping[str, Any]] | Sequence[Path]:
    if config.games is None:
        return _generated(config, seed, count, split, purpose)
    paths = find_games(config.games, split)
    if count == 0 or count >= len(paths):
        return paths
    picks = np.random.default_rng([seed, purpose]).choice(len(paths), size=count, replace=False)
    return [paths[i] for i in sorted(picks)]


def _generated(
    config: TaskConfig, seed: int, count: int, split: str, purpose: int
) -> Sequence[Mapping[str, Any]]:
    return generate_games(
        count,
        3 * seed + purpose,
        split=split,
        receptacles=(config.min_receptacles, config.max_receptacles),
        objects=(config.min_objects, config.max_objects),
    )


def _task_set(config: TaskConfig, games: Any) -> TaskSet:
    if config.engine == "textworld":
        from spo_fast.envs.alfworld.textworld import TextworldTasks

        return TextworldTasks(games, max_steps=config.max_steps)
    return AlfworldTasks(games, max_steps=config.max_steps)
