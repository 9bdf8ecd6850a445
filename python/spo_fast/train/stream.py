"""The single stream of rollouts: which task starts next, which episodes make a batch, what publication waits for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from spo_fast.rollout.collector import Collector, Request, Trajectory
from spo_fast.train.baselines import Baseline


class RolloutStream:
    """Keeps the slots full and hands out batches of the episodes that finished first.

    One request a task is in flight at most. "First" counts the engine's decode steps, then request numbers; wall
    clock plays no part, so a run repeats exactly.

    Args:
        on_episode: called with each episode as it ends; may be changed.
    """

    def __init__(
        self,
        collector: Collector,
        baseline: Baseline,
        task_ids: Sequence[str],
        rng: np.random.Generator,
        *,
        on_episode: Callable[[Trajectory], None] = lambda trajectory: None,
    ):
        self._collector = collector
        self._baseline = baseline
        self._task_ids = list(task_ids)
        self._rng = rng
        self.on_episode = on_episode
        self._finished: list[Trajectory] = []
        self._next_number = 0
        self.version = 0

    def batch(self, size: int) -> list[Trajectory]:
        """The next ``size`` episodes, in the order they finished."""
        while len(self._finished) < size:
            self._fill()
            self._take(self._collector.step())
        batch, self._finished = self._finished[:size], self._finished[size:]
        return batch

    def settle(self, at_publication: str) -> None:
        """Ends all that is in flight, before a policy is published.

        "join": the episodes finish under the policy that dispatched them and join the next batch.
        "discard": they are dropped and their tickets cancelled.
        """
        if at_publication == "join":
            self._take(self._collector.drain())
            return
        dropped = self._collector.in_flight
        for request in dropped:
            self._collector.cancel(request.number)
        self._baseline.cancel([request.ticket for request in dropped])

    def publish(self) -> None:
        """A new policy generates from here on."""
        self.version += 1
        self._baseline.publish()

    def state_dict(self) -> dict[str, Any]:
        """What a stream with nothing in flight remembers, as JSON can hold it."""
        return {
            "finished": [dataclasses.asdict(trajectory) for trajectory in self._finished],
            "next_number": self._next_number,
            "version": self.version,
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._finished = [Trajectory.from_dict(trajectory) for trajectory in state["finished"]]
        self._next_number = state["next_number"]
        self.version = state["version"]
        self._rng.bit_generator.state = state["rng"]

    def _take(self, trajectories: Iterable[Trajectory]) -> None:
        for trajectory in trajectories:
            self._finished.append(trajectory)
            self.on_episode(trajectory)

    def _fill(self) -> None:
        busy = {request.task_id for request in self._collector.in_flight}
        idle = [task for task in self._task_ids if task not in busy]
        count = min(self._collector.free_slots, len(idle))
        if count == 0:
            return
        weights = np.asarray(self._baseline.tracker.sampling_weights(idle))
        picks = self._rng.choice(len(idle), size=count, replace=False, p=weights / weights.sum())
        tasks = [idle[i] for i in picks]
        for task, ticket in zip(tasks, self._baseline.dispatch(tasks), strict=True):
            self._collector.start(Request(self._next_number, task, ticket, self.version))
            self._next_number += 1
