"""Copies of the metrics for tools that people watch runs with. Neither is ever needed: metrics.jsonl has everything."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spo_fast.train.config import TrainConfig

MetricWriter = Callable[[dict[str, Any]], None]
"""Takes a line of metrics.jsonl."""


def check_metric_writers(config: TrainConfig) -> None:
    """Raises ImportError, before anything is computed, if a tool that ``config`` asks for is not installed."""
    for wanted, package in ((config.record.tensorboard, "tensorboard"), (config.record.wandb, "wandb")):
        if wanted and importlib.util.find_spec(package) is None:
            raise ImportError(f"record.{package} needs the package {package}: pip install {package}")


@contextlib.contextmanager
def metric_writers(config: TrainConfig, run: Path, first_step: int) -> Iterator[list[MetricWriter]]:
    """The writers that ``config.record`` asks for.

    Args:
        first_step: the update that comes next; what TensorBoard shows of it and of later ones, written before the
            run was stopped, is hidden.
    """
    with contextlib.ExitStack() as stack:
        writers = []
        if config.record.tensorboard:
            writers.append(stack.enter_context(_tensorboard(run, first_step)))
        if config.record.wandb:
            writers.append(stack.enter_context(_wandb(config, run)))
        yield writers


@contextlib.contextmanager
def _tensorboard(run: Path, first_step: int) -> Iterator[MetricWriter]:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(run / "tensorboard"), purge_step=first_step) as writer:

        def write(record: dict[str, Any]) -> None:
            for name, value in record.items():
                if name != "step":
                    writer.add_scalar(name, value, record["step"])

        yield write


@contextlib.contextmanager
def _wandb(config: TrainConfig, run: Path) -> Iterator[MetricWriter]:
    import wandb

    path = run.resolve()
    identity = (
        f"{path.name}-{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"  # the same when it is resumed
    )
    settings = json.loads(json.dumps(dataclasses.asdict(config), default=str))
    with wandb.init(
        project=config.record.wandb,
        name=path.name,
        id=identity,
        dir=str(run),
        config=settings,
        resume="allow",
    ) as session:
        yield lambda record: session.log(record, step=record["step"])
