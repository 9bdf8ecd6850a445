"""ALFWorld's text games: a native engine, the public one behind the same calls, games on disk and made here, an expert."""

from spo_fast.envs.alfworld.expert import Demonstration, demonstration, expert_plan
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
from spo_fast.envs.alfworld.generator import generate_games
from spo_fast.envs.alfworld.tasks import AlfworldTasks
from spo_fast.envs.alfworld.textworld import TextworldError, TextworldGame, TextworldTasks
from spo_fast.envs.alfworld.vocabulary import FILLER_WORDS, vocabulary

__all__ = [
    "FILLER_WORDS",
    "SPLITS",
    "TASK_TYPES",
    "AlfworldBatch",
    "AlfworldGame",
    "AlfworldTasks",
    "Demonstration",
    "GameState",
    "Goal",
    "TextworldError",
    "TextworldGame",
    "TextworldTasks",
    "demonstration",
    "expert_plan",
    "find_games",
    "game_mapping",
    "generate_games",
    "load_games",
    "save_games",
    "vocabulary",
]
