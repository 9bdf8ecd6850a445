"""ALFWorld's text games: a native engine, files, and task sets for the trainer."""

from spo_fast.envs.alfworld.files import find_games, load_games, save_games
from spo_fast.envs.alfworld.game import (
    SPLITS,
    TASK_TYPES,
    AlfworldBatch,
    AlfworldGame,
    GameState,
    Goal,
    game_mapping,
)
from spo_fast.envs.alfworld.tasks import AlfworldTasks

__all__ = [
    "SPLITS",
    "TASK_TYPES",
    "AlfworldBatch",
    "AlfworldGame",
    "AlfworldTasks",
    "GameState",
    "Goal",
    "find_games",
    "game_mapping",
    "load_games",
    "save_games",
]
