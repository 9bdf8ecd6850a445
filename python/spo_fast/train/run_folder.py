"""The files of a run: config.json, metrics.jsonl, summary.json, model/, learning_curve.png."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from spo_fast.train.config import TrainConfig


class RunFolder:
    """Creates a run's folder; refuses one that holds a run already."""

    def __init__(self, config: TrainConfig):
        if config.output is None:
            raise ValueError("output: expected a folder, got None; TrainConfig.with_output names one")
        self.path = config.output
        if (self.path / "config.json").exists():
            raise ValueError(f"output: {self.path} already holds a run; name another folder or remove it")
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / "config.json", config.to_json())
        self._metrics = (self.path / "metrics.jsonl").open("a", encoding="utf-8")

    def log(self, record: dict[str, Any]) -> None:
        """Appends a line to metrics.jsonl."""
        self._metrics.write(json.dumps(record) + "\n")
        self._metrics.flush()

    def close(self) -> None:
        self._metrics.close()


def write_atomically(path: Path, text: str) -> None:
    """Writes beside ``path``, syncs and renames: readers see the old file or the new one."""
    temporary = path.with_name(path.name + ".part")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def load_config(run: Path) -> TrainConfig:
    """The configuration of a run folder."""
    path = run / "config.json"
    if not path.is_file():
        raise ValueError(f"{run}: not a run folder, it has no config.json")
    try:
        return TrainConfig.from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def load_metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
