"""The training run: warm start, first values, then rollouts and updates in turn."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from spo_fast.envs.protocol import TaskSet
from spo_fast.ops import normalize_advantages
from spo_fast.rollout.chat import ChatFormat
from spo_fast.rollout.collector import Collector, Request, Trajectory
from spo_fast.rollout.transformers_engine import TransformersEngine
from spo_fast.train.baselines import Baseline, ReceiptOrderBaseline, StreamAlignedBaseline
from spo_fast.train.config import TrainConfig
from spo_fast.train.evaluation import evaluate
from spo_fast.train.learner import Learner
from spo_fast.train.policy import load_policy, warm_start
from spo_fast.train.progress import Progress
from spo_fast.train.run_folder import RunFolder
from spo_fast.train.seeds import EVALUATION, FIRST_VALUES, MINIBATCHES, ROLLOUT, SCHEDULE, stream_seed
from spo_fast.train.stream import RolloutStream
from spo_fast.train.summary import Summary, summarise
from spo_fast.train.tasks import held_out_tasks, training_tasks
from spo_fast.train.tiny_policy import save_policy


def train(
    config: TrainConfig, *, tasks: TaskSet | None = None, held_out: TaskSet | None = None, quiet: bool = False
) -> Summary:
    """Trains a policy; everything it leaves is in ``config.output``, or the folder that ``with_output`` names.

    Args:
        config: see ``TrainConfig``.
        tasks: tasks of one's own to train on, instead of the games that ``config.tasks`` says; needs
            ``config.policy.model``, since the tiny model's expert knows ALFWorld alone.
        held_out: tasks of one's own to be judged by; given together with ``tasks``.
        quiet: no progress bars.

    Returns:
        the summary, also written to summary.json.

    Raises:
        ValueError: a setting out of range, unreadable games or model, an output folder that holds a run.
    """
    config = config.with_output()
    config.validate()
    if (tasks is None) != (held_out is None):
        raise ValueError("tasks, held_out: expected both or neither")
    if tasks is not None and config.policy.model is None:
        raise ValueError("policy.model: tasks of one's own need a model, got None")
    if config.threads:
        torch.set_num_threads(config.threads)
    progress = Progress(quiet)
    if tasks is None or held_out is None:
        tasks = training_tasks(config.tasks, config.seed)
        held_out = held_out_tasks(config.tasks, config.seed)
    run = RunFolder(config)
    try:
        if config.policy.model is None:
            model, tokenizer = warm_start(config, progress)
            save_policy(model, tokenizer, run.path / "warm_start")
        else:
            model, tokenizer = load_policy(config.policy.model)
        return Trainer(config, run, model, tokenizer, tasks, held_out, progress).run()
    finally:
        run.close()


class Trainer:
    """One run's moving parts. It knows nothing of how the model was made or what its tasks are about."""

    def __init__(
        self,
        config: TrainConfig,
        run: RunFolder,
        model: Any,
        tokenizer: Any,
        tasks: TaskSet,
        held_out: TaskSet,
        progress: Progress,
    ):
        self._config = config
        self._run = run
        self._model = model
        self._tokenizer = tokenizer
        self._tasks = tasks
        self._held_out = held_out
        self._progress = progress
        self._chat = ChatFormat(tokenizer, config.policy.system_prompt)
        self._learner = Learner(model, config)
        self._baseline: Baseline = (
            StreamAlignedBaseline(config.objective.rho)
            if config.algorithm == "spo++"
            else ReceiptOrderBaseline(self._learner.logprobs)
        )
        self._engine, self._collector = self._make_collector(ROLLOUT)
        self._rng = np.random.default_rng(stream_seed(config.seed, MINIBATCHES))

    def run(self) -> Summary:
        before = self._evaluate("evaluate before")
        self._first_values()
        self._train()
        self._learner.take_average()
        after = self._evaluate("evaluate after")
        save_policy(self._model, self._tokenizer, self._run.path / "model")
        return summarise(self._run.path, self._config, before, after, self._progress.seconds)

    def _make_collector(self, purpose: int) -> tuple[TransformersEngine, Collector]:
        rollout = self._config.rollout
        engine = TransformersEngine(
            self._model,
            stop_ids=self._chat.stop_ids,
            slots=min(rollout.slots, self._config.optimisation.prompts_per_step),
            temperature=rollout.temperature,
            seed=stream_seed(self._config.seed, purpose),
        )
        collector = Collector(
            engine,
            self._tasks,
            self._chat,
            max_tokens=rollout.max_tokens,
            max_action_tokens=rollout.max_action_tokens,
        )
        return engine, collector

    def _evaluate(self, name: str) -> list[Trajectory]:
        return evaluate(
            self._model,
            self._chat,
            self._held_out,
            self._config.rollout,
            seed=stream_seed(self._config.seed, EVALUATION),
            progress=self._progress,
            phase=name,
        )

    def _first_values(self) -> None:
        """Offline initialisation: rollouts of the starting policy give every task its first estimate."""
        tasks = list(self._tasks.task_ids)
        rollouts = self._config.objective.initial_rollouts
        successes = dict.fromkeys(tasks, 0.0)
        _, collector = self._make_collector(FIRST_VALUES)
        requests = (Request(i, task) for i, task in enumerate(t for t in tasks for _ in range(rollouts)))
        with self._progress.phase("first values", len(tasks) * rollouts, "game") as bar:
            for trajectory in collector.play(requests):
                successes[trajectory.request.task_id] += trajectory.outcome
                bar.update()
        self._baseline.tracker.register(
            tasks,
            [successes[task] for task in tasks],
            [rollouts] * len(tasks),
            mass=self._config.objective.initial_mass,
        )

    def _train(self) -> None:
        settings = self._config.optimisation
        seed = stream_seed(self._config.seed, SCHEDULE)
        with self._progress.phase("train", settings.updates * settings.prompts_per_step, "game") as bar:
            stream = RolloutStream(
                self._collector,
                self._baseline,
                self._tasks.task_ids,
                np.random.default_rng(seed),
                on_episode=lambda trajectory: bar.update(min(1, bar.total - bar.n)),
            )
            for step in range(1, settings.updates + 1):
                record = self._update(stream, step)
                self._run.log(record)
                bar.set_postfix(
                    update=f"{step}/{settings.updates}",
                    reward=f"{record['reward']:.3f}",
                    tok_s=f"{record['tokens_per_s']:.0f}",
                    env_s=f"{record['env_steps_per_s']:.0f}",
                    refresh=False,
                )

    def _update(self, stream: RolloutStream, step: int) -> dict[str, Any]:
        """Collects a batch, learns from it, publishes; the line of metrics.jsonl."""
        settings = self._config.optimisation
        started, tokens, env_steps = (
            time.perf_counter(),
            self._engine.generated_tokens,
            self._collector.environment_steps,
        )
        batch = stream.batch(settings.prompts_per_step)
        if step < settings.updates:
            stream.settle(self._config.rollout.at_publication)
        generated = time.perf_counter()
        values, advantages = self._advantages(batch)
        loss = self._learner.update(batch, advantages, self._rng)
        staleness = [stream.version - t.request.version for t in batch]
        stream.publish()
        updated = time.perf_counter()
        generate_s = generated - started
        return {
            "step": step,
            **describe(batch),
            "value_mean": float(values.mean()),
            "tracker_value_mean": float(np.mean(self._baseline.tracker.values(list(self._tasks.task_ids)))),
            "staleness_mean": float(np.mean(staleness)),
            **loss,
            "tokens_seen": self._engine.generated_tokens,
            "env_steps_seen": self._collector.environment_steps,
            "generate_s": generate_s,
            "update_s": updated - generated,
            "tokens_per_s": (self._engine.generated_tokens - tokens) / generate_s,
            "env_steps_per_s": (self._collector.environment_steps - env_steps) / generate_s,
        }

    def _advantages(self, batch: list[Trajectory]) -> tuple[np.ndarray, np.ndarray]:
        """(values, normalised advantages), one a trajectory."""
        raw = self._baseline.advantages(batch)
        values = np.array([t.outcome for t in batch]) - raw
        normalised = normalize_advantages(
            raw, lengths=np.array([t.action_tokens for t in batch]), measure=self._config.advantage_measure
        )
        return values, np.asarray(normalised)


def describe(batch: list[Trajectory]) -> dict[str, float]:
    """What the episodes of a batch were like."""
    actions = sum(t.action_tokens for t in batch)
    return {
        "reward": float(np.mean([t.outcome for t in batch])),
        "turns_mean": float(np.mean([len(t.commands) for t in batch])),
        "action_tokens_mean": actions / len(batch),
        "tokens_mean": float(np.mean([len(t.token_ids) for t in batch])),
        "truncated_fraction": float(np.mean([t.truncated for t in batch])),
        # the mean negative log-prob of sampled tokens estimates the policy's entropy
        "entropy_estimate": -sum(sum(t.logprobs) for t in batch) / max(actions, 1),
    }
