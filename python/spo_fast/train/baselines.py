"""What SPO++ and SPO do differently around the same loss: when a value is read and when an outcome is filed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from spo_fast.memory.prompt_tracker import PromptTracker
from spo_fast.memory.receipt_order_tracker import ReceiptOrderTracker
from spo_fast.rollout.collector import Trajectory
from spo_fast.train.checkpoint import write_json

LogprobFunction = Callable[[Sequence[Trajectory]], list[np.ndarray]]
"""The current policy's log-probs of trajectories' action tokens."""

_TRACKER, _PREVIOUS = "tracker.record", "previous.json"


class Baseline(Protocol):
    """A prompt memory together with the moments at which it is asked and told."""

    tracker: Any

    def dispatch(self, task_ids: Sequence[str]) -> list[int]:
        """Called when requests start; a ticket each (-1 where none is needed)."""
        ...

    def cancel(self, tickets: Sequence[int]) -> None:
        """Called when requests are dropped unfinished."""
        ...

    def advantages(self, trajectories: Sequence[Trajectory]) -> np.ndarray:
        """Files the outcomes; [S] float64: outcome minus value."""
        ...

    def publish(self) -> None:
        """Called when an updated policy starts to generate."""
        ...

    def parts(self) -> dict[str, Callable[[Path], None]]:
        """What a checkpoint keeps of it: file name -> what writes that file."""
        ...

    def restore(self, checkpoint: Path) -> None:
        """Reads the files that ``parts`` wrote."""
        ...


class StreamAlignedBaseline:
    """SPO++: the value frozen at dispatch; evidence aged by the publications since the policy that made it."""

    def __init__(self, rho: float):
        self.tracker = PromptTracker(rho=rho)

    def dispatch(self, task_ids: Sequence[str]) -> list[int]:
        return [int(ticket) for ticket in self.tracker.dispatch(list(task_ids))]

    def cancel(self, tickets: Sequence[int]) -> None:
        self.tracker.cancel(list(tickets))

    def advantages(self, trajectories: Sequence[Trajectory]) -> np.ndarray:
        tickets = [t.request.ticket for t in trajectories]
        return np.asarray(self.tracker.complete(tickets, [t.outcome for t in trajectories]))

    def publish(self) -> None:
        self.tracker.publish()

    def parts(self) -> dict[str, Callable[[Path], None]]:
        return {_TRACKER: self.tracker.save}

    def restore(self, checkpoint: Path) -> None:
        self.tracker = PromptTracker.load(checkpoint / _TRACKER)


class ReceiptOrderBaseline:
    """SPO: the value read when the outcome arrives; retention from the drift on the prompt's previous trajectory.

    Drift is the mean over a trajectory's action tokens of |recorded - current| log-prob. Keeps one trajectory a
    task. At a task's first visit the drift of its own trajectory is taken.
    """

    def __init__(self, logprobs: LogprobFunction):
        self.tracker = ReceiptOrderTracker()
        self._logprobs = logprobs
        self._previous: dict[str, Trajectory] = {}

    def dispatch(self, task_ids: Sequence[str]) -> list[int]:
        return [-1] * len(task_ids)

    def cancel(self, tickets: Sequence[int]) -> None:
        pass

    def advantages(self, trajectories: Sequence[Trajectory]) -> np.ndarray:
        measured = []
        latest = dict(self._previous)
        for trajectory in trajectories:
            task = trajectory.request.task_id
            measured.append(latest.get(task, trajectory))
            latest[task] = trajectory
        drift = [_drift(t, current) for t, current in zip(measured, self._logprobs(measured), strict=True)]
        advantages = self.tracker.update(
            [t.request.task_id for t in trajectories], [t.outcome for t in trajectories], drift
        )
        self._previous = latest
        return np.asarray(advantages)

    def publish(self) -> None:
        pass

    def parts(self) -> dict[str, Callable[[Path], None]]:
        previous = [dataclasses.asdict(trajectory) for trajectory in self._previous.values()]
        return {_TRACKER: self.tracker.save, _PREVIOUS: write_json(previous)}

    def restore(self, checkpoint: Path) -> None:
        self.tracker = ReceiptOrderTracker.load(checkpoint / _TRACKER)
        previous = json.loads((checkpoint / _PREVIOUS).read_text(encoding="utf-8"))
        self._previous = {t["request"]["task_id"]: Trajectory.from_dict(t) for t in previous}


def _drift(trajectory: Trajectory, current: np.ndarray) -> float:
    recorded = np.asarray(trajectory.logprobs)[np.asarray(trajectory.action_mask, dtype=bool)]
    return float(np.abs(recorded - current).mean()) if len(recorded) else 0.0
