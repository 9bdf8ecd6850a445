"""What ``spo-fast eval`` does: a finished run's policy plays once more."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import torch

from spo_fast._files import write_text
from spo_fast.rollout.chat import ChatFormat
from spo_fast.train.config import EvalConfig, TrainConfig
from spo_fast.train.evaluation import evaluate
from spo_fast.train.policy import load_policy
from spo_fast.train.progress import Progress
from spo_fast.train.run_folder import load_finished
from spo_fast.train.seeds import EVALUATION, stream_seed
from spo_fast.train.summary import Rate, rates
from spo_fast.train.tasks import held_out_tasks, training_tasks


@dataclass(frozen=True)
class Evaluation:
    """How often a policy won.

    Attributes:
        games: the folder of games, or "generated".
        success: success rate by task type and under "all".
    """

    run: str
    games: str
    split: str
    engine: str
    max_steps: int
    temperature: float
    seed: int
    success: dict[str, Rate]

    def text(self) -> str:
        lines = [f"{'success on ' + self.split:<34} {'rate [95 % interval]':>22} {'games':>7}"]
        lines += [f"{kind:<34} {rate!s:>22} {rate.episodes:>7}" for kind, rate in self.success.items()]
        return "\n".join(lines)


def evaluate_run(config: EvalConfig, *, quiet: bool = False) -> Evaluation:
    """Plays a run's policy; by default exactly the evaluation that ended the run.

    Args:
        config: see ``EvalConfig``.
        quiet: no progress bar.

    Raises:
        ValueError: a setting out of range, no finished run, unreadable games or model.
    """
    config.validate()
    run, split = _settings(config, load_finished("run", config.run))
    if config.json is not None:
        if config.json.is_dir():
            raise ValueError(f"json: expected a file to write, got the folder {config.json}")
        config.json.parent.mkdir(parents=True, exist_ok=True)
    if run.threads:
        torch.set_num_threads(run.threads)
    tasks = (training_tasks if split == "train" else held_out_tasks)(run.tasks, run.seed)
    model, tokenizer = load_policy(config.run / "model")
    played = evaluate(
        model,
        ChatFormat(tokenizer, run.policy.system_prompt),
        tasks,
        run.rollout,
        seed=stream_seed(run.seed, EVALUATION),
        progress=Progress(quiet),
        phase="evaluate",
    )
    result = Evaluation(
        run=str(config.run),
        games=str(run.tasks.games or "generated"),
        split=split,
        engine=run.tasks.engine,
        max_steps=run.tasks.max_steps,
        temperature=run.rollout.eval_temperature,
        seed=run.seed,
        success=rates(played),
    )
    if config.json is not None:
        write_text(config.json, json.dumps(dataclasses.asdict(result), indent=2) + "\n")
    return result


def _settings(config: EvalConfig, run: TrainConfig) -> tuple[TrainConfig, str]:
    """The run's settings, with the evaluation's in their place; and what is played."""
    split = config.split or run.tasks.eval_split
    games = config.games or run.tasks.games
    count = 0 if config.tasks is None and config.games is not None else config.tasks
    if count == 0 and games is None:
        raise ValueError("tasks: 0 (all of a folder) needs games; generated games have no end")
    tasks: dict[str, Any] = {"games": games, "engine": config.engine, "max_steps": config.max_steps}
    if split == "train":
        tasks |= {"train_tasks": count}
    else:
        tasks |= {"eval_tasks": count, "eval_split": split}
    rollout = {
        "eval_temperature": config.temperature,
        "max_tokens": config.max_tokens,
        "slots": config.slots,
    }
    settings = dataclasses.replace(
        run,
        seed=run.seed if config.seed is None else config.seed,
        threads=run.threads if config.threads is None else config.threads,
        tasks=dataclasses.replace(run.tasks, **_given(tasks)),
        rollout=dataclasses.replace(run.rollout, **_given(rollout)),
    )
    settings.validate()
    return settings, split


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
