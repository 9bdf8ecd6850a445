"""What a run folder holds, read for the report. Any log may be missing or short: the run may just have started."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spo_fast.train.config import TrainConfig
from spo_fast.train.records import evaluated
from spo_fast.train.run_folder import load_config, load_log
from spo_fast.train.summary import Rate, Summary, load_summary, rates


@dataclass(frozen=True)
class Table:
    """The records of a log, read by column."""

    path: Path
    rows: list[dict[str, Any]]

    def __len__(self) -> int:
        return len(self.rows)

    def numbers(self, key: str) -> np.ndarray:
        """A column, ``[rows]`` float64; NaN where a record lacks it.

        Raises:
            ValueError: naming the file and the line that holds something else.
        """
        return np.array(
            [_number(row.get(key), self.path, line, key) for line, row in enumerate(self.rows, start=1)],
            dtype=float,
        )

    def texts(self, key: str) -> list[str]:
        return [str(row.get(key, "")) for row in self.rows]


@dataclass(frozen=True)
class Evaluation:
    """Held-out games, played once each.

    Attributes:
        step: updates before it; 0: the policy that training started from.
        outcomes: by task id, each in [0, 1].
        task_types: by task id.
    """

    step: int
    outcomes: dict[str, float]
    task_types: dict[str, str]

    def rates(self) -> dict[str, Rate]:
        """Success by task type in the order of their names, and last of all under "all"."""
        return rates(evaluated(dataclasses.asdict(self)))


@dataclass(frozen=True)
class RunLogs:
    """A run folder's contents; ``summary`` is None until the run has ended."""

    folder: Path
    config: TrainConfig
    summary: Summary | None
    metrics: Table
    episodes: Table
    transcripts: Table
    resources: Table
    evaluations: list[Evaluation]

    @property
    def before(self) -> Evaluation | None:
        """The evaluation before training."""
        return next((e for e in self.evaluations if e.step == 0), None)

    @property
    def after(self) -> Evaluation | None:
        """The last evaluation that is not the one before training."""
        return self.evaluations[-1] if len(self.evaluations) > 1 else None

    def held_out_rates(self) -> tuple[dict[str, Rate], dict[str, Rate]]:
        """Held-out success by type (before, after training), of the evaluations, else of the summary; empty: not yet."""
        before = self.before.rates() if self.before else self.summary.before if self.summary else {}
        after = self.after.rates() if self.after else self.summary.after if self.summary else {}
        return before, after

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def steps_done(self) -> int:
        steps = self.metrics.numbers("step")
        return int(np.nanmax(steps)) if np.isfinite(steps).any() else 0


def load_run(folder: Path) -> RunLogs:
    """Reads a run folder.

    Raises:
        ValueError: the folder holds no run, or a file of it is damaged; names the file.
    """
    config = load_config(folder)
    tables = {name: _table(folder, name) for name in ("metrics", "episodes", "transcripts", "resources")}
    evaluations = _table(folder, "evaluations")
    return RunLogs(
        folder=folder,
        config=config,
        summary=load_summary(folder) if (folder / "summary.json").is_file() else None,
        **tables,
        evaluations=[
            _evaluation(row, evaluations.path, line) for line, row in enumerate(evaluations.rows, start=1)
        ],
    )


def _table(folder: Path, name: str) -> Table:
    path = folder / f"{name}.jsonl"
    rows = load_log(folder, name)
    for line, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise ValueError(f"{path}: line {line} is damaged: expected an object, got {type(row).__name__}")
    return Table(path, rows)


def _evaluation(row: dict[str, Any], path: Path, line: int) -> Evaluation:
    outcomes, types = row.get("outcomes"), row.get("task_types", {})
    if not isinstance(outcomes, dict) or not isinstance(types, dict):
        raise ValueError(f"{path}: line {line} is damaged: expected outcomes and task_types by task")
    step = _number(row.get("step"), path, line, "step")
    if math.isnan(step):
        raise ValueError(f"{path}: line {line} is damaged: it has no step")
    return Evaluation(
        step=int(step),
        outcomes={task: _number(outcome, path, line, "outcomes") for task, outcome in outcomes.items()},
        task_types={task: str(types.get(task, "")) for task in outcomes},
    )


def _number(value: Any, path: Path, line: int, key: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, (int, float)):
        return float(value)
    raise ValueError(f"{path}: line {line} is damaged: {key}: expected a number, got {value!r:.60}")
