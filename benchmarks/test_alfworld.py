"""The ALFWorld engine under pytest-benchmark: pytest benchmarks/test_alfworld.py

SPO_FAST_GAMES names a folder of game.tw-pddl files (default: $ALFWORLD_DATA). The table beside the public engine
comes from benchmarks/alfworld_engine.py.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from spo_fast.envs.alfworld import AlfworldBatch, AlfworldGame, find_games

sys.path.insert(0, str(Path(__file__).parent))
from alfworld_engine import EPISODE, record_commands

FOLDER = os.environ.get("SPO_FAST_GAMES") or os.environ.get("ALFWORLD_DATA")
pytestmark = pytest.mark.skipif(not FOLDER, reason="set SPO_FAST_GAMES to a folder of game.tw-pddl files")


@pytest.fixture(scope="module")
def paths() -> list[Path]:
    return find_games(str(FOLDER))


@pytest.mark.parametrize("size", [1, 16, 64, 256])
def test_batched_step(benchmark: Any, paths: list[Path], size: int) -> None:
    loaded = [AlfworldGame(path, max_steps=None) for path in paths[:size]]
    games = [loaded[i % len(loaded)].copy() for i in range(size)]
    commands = itertools.cycle(record_commands(games, EPISODE))
    batch = AlfworldBatch(games)
    batch.reset()
    benchmark.extra_info["games"] = size
    benchmark(lambda: batch.step(next(commands)))


def test_load(benchmark: Any, paths: list[Path]) -> None:
    files = itertools.cycle(paths)
    benchmark(lambda: AlfworldGame(next(files)))


@pytest.mark.parametrize("operation", ["reset", "snapshot", "copy", "facts"])
def test_one_game(benchmark: Any, paths: list[Path], operation: str) -> None:
    benchmark(getattr(AlfworldGame(paths[0]), operation))


def test_restore(benchmark: Any, paths: list[Path]) -> None:
    game = AlfworldGame(paths[0])
    benchmark(game.restore, game.snapshot())
