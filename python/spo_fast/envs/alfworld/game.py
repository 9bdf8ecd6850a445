"""A running ALFWorld game: the public engine's texts from our own engine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from spo_fast import _core
from spo_fast._core import AlfworldBatch, GameState

__all__ = ["SPLITS", "TASK_TYPES", "AlfworldBatch", "AlfworldGame", "GameState", "Goal", "game_mapping"]

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
SPLITS = ("train", "valid_seen", "valid_unseen")

_UNKNOWN_TASK = "Your task is to: UNKNOWN GOAL."


@dataclass(frozen=True)
class Goal:
    """What a game asks for, read from its goal formula. Types are ids as ``facts()`` holds them ("mugtype").

    Attributes:
        task_type: one of `TASK_TYPES`.
        object_type: the type of the object (of both, for pick_two_obj_and_place).
        receptacle_type: where it must be; None for look_at_obj_in_light.
        lamp_type: what must have been switched on; only for look_at_obj_in_light.
        conditions: facts of one argument that the object must satisfy, such as "isclean" or "issliced".
    """

    task_type: str
    object_type: str
    receptacle_type: str | None
    lamp_type: str | None
    conditions: tuple[str, ...]


class AlfworldGame(_core.AlfworldGame):
    """One ALFWorld game, answering as the public engine (alfworld 0.4.2) does, text for text.

    Args:
        path_or_mapping: a ``game.tw-pddl``, or a mapping with its members ``pddl_domain``, ``grammar``,
            ``pddl_problem`` and, if at hand, ``gamefile``, ``id`` and ``task_type``.
        max_steps: `step` says truncated from this many steps on; None for no limit.

    Raises:
        ValueError: the game is malformed or of a domain or grammar other than the supported one; the message
            names the file, the place and what differs.
        OSError: the file cannot be read.

    Differs: ``step`` follows Gymnasium (observation, reward, terminated, truncated, info). ``reward`` and
    ``terminated`` say whether the goal holds now, and a game may be played on after it ends.
    """

    id: str
    """The name of the task: "split/task/trial" for a file in ALFWorld's layout."""

    def __init__(
        self, path_or_mapping: str | os.PathLike[str] | Mapping[str, Any], max_steps: int | None = 50
    ) -> None:
        if isinstance(path_or_mapping, Mapping):
            world, self.id = _load_mapping(path_or_mapping)
            asked = path_or_mapping.get("task_type")
            if asked is not None and asked != world.goal["task_type"]:
                raise ValueError(
                    f"{self.id}: the task_type says {asked!r}, the goal formula {world.goal['task_type']!r}"
                )
        else:
            path = os.fspath(path_or_mapping)
            with open(path, "rb") as file:
                world = _core.AlfworldWorld.from_file(file.read(), path, path)
            self.id = id_of_path(path)
        super().__init__(world, max_steps)

    @property
    def gamefile(self) -> str:
        """The file the game came from, or its id."""
        return self.world.gamefile

    @property
    def task(self) -> str:
        """The task in words, without "Your task is to: "."""
        return self.world.task

    @property
    def task_type(self) -> str:
        """One of `TASK_TYPES`, read from the goal formula."""
        return str(self.world.goal["task_type"])

    @property
    def goal(self) -> Goal:
        goal = self.world.goal
        return Goal(**{**goal, "conditions": tuple(goal["conditions"])})

    @property
    def entities(self) -> dict[str, str]:
        """The name in texts and commands ("drawer 3") of each id in `facts`."""
        return self.world.entities

    def copy(self) -> AlfworldGame:
        """An independent running game in the same state; the loaded game is shared."""
        other = type(self).__new__(type(self))
        _core.AlfworldGame.__init__(other, self)
        other.id = self.id
        return other

    def with_max_steps(self, max_steps: int | None) -> AlfworldGame:
        """Another running game of the same loaded game, just reset, with its own limit."""
        other = type(self).__new__(type(self))
        _core.AlfworldGame.__init__(other, self.world, max_steps)
        other.id = self.id
        return other

    def __repr__(self) -> str:
        return f"AlfworldGame({self.id!r}, steps={self.steps})"

    def __reduce__(self) -> Any:
        raise TypeError("an AlfworldGame cannot be pickled; pickle its file's path and its snapshot()")


def game_mapping(pddl_problem: str, task: str, **members: Any) -> dict[str, Any]:
    """A game of the supported domain, as a mapping that `AlfworldGame` takes and ``game.tw-pddl`` holds.

    Args:
        pddl_problem: the problem's text.
        task: the task in words, without "Your task is to: ".
        members: what else the mapping shall have, such as id, task_type, walkthrough.
    """
    data = resources.files("spo_fast.envs.alfworld").joinpath("data")
    grammar = data.joinpath("grammar.twl2").read_text(encoding="utf-8")
    return {
        "pddl_domain": data.joinpath("domain.pddl").read_text(encoding="utf-8"),
        "grammar": grammar.replace(_UNKNOWN_TASK, f"Your task is to: {task}"),
        "pddl_problem": pddl_problem,
        "task": task,
        **members,
    }


def _load_mapping(game: Mapping[str, Any]) -> tuple[_core.AlfworldWorld, str]:
    name = game.get("id") or game.get("gamefile") or "the game"
    texts = []
    for key in ("pddl_domain", "grammar", "pddl_problem"):
        text = game.get(key)
        if not isinstance(text, str):
            raise ValueError(f"{name}: expected a str under {key!r}, got {type(text).__name__}")
        try:
            texts.append(text.encode())
        except UnicodeEncodeError as error:
            raise ValueError(f"{name}: {key!r} is not valid Unicode: {error}") from None
    gamefile = str(game.get("gamefile") or game.get("id") or "")
    world = _core.AlfworldWorld(texts[0], texts[1], texts[2], str(name), gamefile)
    return world, str(game.get("id") or gamefile or world.identity.hex())


def id_of_path(path: str) -> str:
    parts = Path(path).parts
    if len(parts) >= 4 and parts[-4] in SPLITS:
        return "/".join(parts[-4:-1])
    return path
