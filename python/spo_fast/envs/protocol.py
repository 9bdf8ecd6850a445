"""What the trainer asks of an environment: text in, text out, and tasks that can be named again.

An environment of your own needs two small classes; ``docs/environments.md`` shows one in 30 lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

Step: TypeAlias = tuple[str, float, bool, bool, dict[str, Any]]
"""(observation, reward, terminated, truncated, info), Gymnasium's convention. ``info["won"]`` says success."""


@runtime_checkable
class Environment(Protocol):
    """One episode of one task."""

    def reset(self) -> tuple[str, dict[str, Any]]:
        """Starts the episode over; returns (observation, info)."""
        ...

    def step(self, command: str) -> Step:
        """Acts once. An impossible command is answered in text; it never raises."""
        ...


@runtime_checkable
class TaskSet(Protocol):
    """A fixed set of tasks. The same id always names the same task: the prompt memory relies on it."""

    @property
    def task_ids(self) -> Sequence[str]: ...

    def task_type(self, task_id: str) -> str:
        """The kind of task, for reports."""
        ...

    def make(self, task_id: str) -> Environment:
        """A new, independent environment of that task, not yet reset."""
        ...

    def step(self, environments: Sequence[Environment], commands: Sequence[str]) -> list[Step]:
        """Steps several environments of this set, each once, in parallel if it can."""
        ...
