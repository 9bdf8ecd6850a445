"""The files of a run: config.json, metrics.jsonl, checkpoints/, model/, summary.json, report.html and the others."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, ClassVar

from spo_fast._files import write_text
from spo_fast.train.config import TrainConfig

LOGS = ("metrics", "episodes", "transcripts", "evaluations", "resources")
"""What a run appends to, as NAME.jsonl: a line an update; a training episode; an episode as tokens; an evaluation; memory."""


class RunFolder:
    """A run's folder, held by one process at a time.

    ``RunFolder.create`` starts a run and refuses a folder that holds one; ``RunFolder.open`` goes on with one.
    """

    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = path / "checkpoints"
        self._lock = (path / ".lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise ValueError(f"{path}: another process is training this run") from None
        self._logs = {name: Log(path / f"{name}.jsonl") for name in LOGS}

    @classmethod
    def create(cls, config: TrainConfig) -> RunFolder:
        if config.output is None:
            raise ValueError("output: expected a folder, got None; TrainConfig.with_output names one")
        if (config.output / "config.json").exists():
            raise ValueError(
                f"output: {config.output} already holds a run; name another folder, or go on with that run: "
                f"--resume {config.output}"
            )
        for folder in (config.output, *config.output.parents):
            if folder.exists() and not folder.is_dir():
                raise ValueError(f"output: expected a folder, got {config.output}, where {folder} is a file")
        names = [*(f"{log}.jsonl" for log in LOGS), "checkpoints"]
        left = [n for n in names if (p := config.output / n).is_dir() or (p.is_file() and p.stat().st_size)]
        if left:
            raise ValueError(
                f"output: {config.output} holds {', '.join(left)} of something else; name another folder"
            )
        config.output.mkdir(parents=True, exist_ok=True)
        run = cls(config.output)
        write_text(run.path / "config.json", config.to_json())
        return run

    @classmethod
    def open(cls, path: Path) -> tuple[RunFolder, TrainConfig]:
        """The folder of a run that was stopped, and its configuration."""
        config = load_config(path)
        run = cls(path)
        for leftover in (*path.glob(".*.tmp"), *path.glob(".*.part"), *run.checkpoints.glob(".*.part")):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()  # of a killed process
        return run, config

    def log(self, name: str, record: dict[str, Any]) -> None:
        """Appends a line to NAME.jsonl."""
        self._logs[name].add(record)

    def marks(self) -> dict[str, Any]:
        """Where each log ends now, its bytes on the disk."""
        return {name: log.mark() for name, log in self._logs.items()}

    def cut(self, marks: dict[str, Any]) -> None:
        """Forgets what was appended after ``marks``, all of a log that they do not name; of no log if one is damaged."""
        digests = {name: log.check(marks.get(name, Log.START)) for name, log in self._logs.items()}
        for name, log in self._logs.items():
            log.cut(marks.get(name, Log.START), digests[name])

    def close(self) -> None:
        for log in self._logs.values():
            log.close()
        self._lock.close()


class Log:
    """An append-only file of JSON lines that can be cut back to a mark: a length and the SHA-256 of what is before."""

    START: ClassVar = {"bytes": 0, "sha256": hashlib.sha256().hexdigest()}

    def __init__(self, path: Path):
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._written = 0
        self._digest = hashlib.sha256()

    def add(self, record: dict[str, Any]) -> None:
        line = json.dumps(record).encode() + b"\n"
        rest = memoryview(line)
        while rest:  # an unbuffered file may take a part of a line where the disk is nearly full
            rest = rest[self._file.write(rest) :]
        self._written += len(line)
        self._digest.update(line)

    def mark(self) -> dict[str, Any]:
        os.fsync(self._file.fileno())
        return {"bytes": self._written, "sha256": self._digest.hexdigest()}

    def check(self, mark: dict[str, Any]) -> Any:
        """The digest of what is before a mark; ValueError if it is not what the mark remembers."""
        with self._path.open("rb") as file:
            kept = file.read(mark["bytes"])
        digest = hashlib.sha256(kept)
        if len(kept) < mark["bytes"] or digest.hexdigest() != mark["sha256"]:
            raise ValueError(
                f"{self._path} is damaged: expected the {mark['bytes']} bytes that the checkpoint remembers, "
                + (f"got {len(kept)}" if len(kept) < mark["bytes"] else "got others")
            )
        return digest

    def cut(self, mark: dict[str, Any], digest: Any) -> None:
        self._file.truncate(mark["bytes"])
        self._written, self._digest = mark["bytes"], digest

    def close(self) -> None:
        self._file.close()


def load_config(run: Path) -> TrainConfig:
    """The configuration of a run folder."""
    path = run / "config.json"
    if not path.is_file():
        raise ValueError(f"{run}: not a run folder, it has no config.json")
    try:
        return TrainConfig.from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def load_log(run: Path, name: str) -> list[dict[str, Any]]:
    """The records of NAME.jsonl; none where there is no such file. A last line still being written is left out.

    Raises:
        ValueError: naming the file and the line that is no JSON.
    """
    path = run / f"{name}.jsonl"
    if not path.is_file():
        return []
    records = []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{path}: line {number} is damaged: {error}") from error
    return records


def load_finished(argument: str, run: Path) -> TrainConfig:
    """The configuration of a finished run; a ValueError that names ``argument`` for anything else."""
    if not (run / "summary.json").is_file() or not (run / "model").is_dir():
        raise ValueError(
            f"{argument}: {run} is not the folder of a finished run, which holds a summary.json and a model/"
        )
    return load_config(run)
