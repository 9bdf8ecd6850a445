"""ALFWorld games as the trainer's task set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spo_fast.envs.alfworld.game import AlfworldBatch, AlfworldGame
from spo_fast.envs.protocol import Environment, Step

__all__ = ["AlfworldTasks"]


class AlfworldTasks:
    """A `TaskSet` of ALFWorld games. A task's id is its game's: "split/task/trial" for files.

    Args:
        games: `AlfworldGame` objects, or what one is made from (paths, mappings).
        max_steps: after how many steps an episode is truncated; also of games given ready-made.
        threads: how many threads may step large batches.

    Raises:
        ValueError: two games have one id.
    """

    def __init__(
        self,
        games: Iterable[AlfworldGame | Mapping[str, Any] | str],
        max_steps: int | None = 50,
        threads: int = 1,
    ) -> None:
        self._templates: dict[str, AlfworldGame] = {}
        self._threads = threads
        for game in games:
            if isinstance(game, AlfworldGame):
                template = game.with_max_steps(max_steps)
            else:
                template = AlfworldGame(game, max_steps)
            if template.id in self._templates:
                raise ValueError(f"games: two have the id {template.id!r}")
            self._templates[template.id] = template
        self._types = {name: template.task_type for name, template in self._templates.items()}

    @property
    def task_ids(self) -> Sequence[str]:
        """In the order of the games given."""
        return tuple(self._templates)

    def __len__(self) -> int:
        return len(self._templates)

    def task_type(self, task_id: str) -> str:
        """One of `spo_fast.envs.alfworld.TASK_TYPES`."""
        return self._types[task_id]

    def game(self, task_id: str) -> AlfworldGame:
        """The task's game itself, for reading; `make` gives one to play."""
        return self._templates[task_id]

    def make(self, task_id: str) -> AlfworldGame:
        """A new running game of that task; cheap, since the loaded game is shared."""
        return self._templates[task_id].copy()

    def step(self, environments: Sequence[Environment], commands: Sequence[str]) -> list[Step]:
        """Steps each game once, together and without the GIL."""
        batch = AlfworldBatch(environments, self._threads)  # type: ignore[arg-type]  # this set's own games
        return list(zip(*batch.step(commands), strict=True))
