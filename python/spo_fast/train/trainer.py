"""The training run: warm start, first values, then rollouts and updates in turn; stopped and gone on with at will."""

from __future__ import annotations

import errno
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from spo_fast._files import new_folder, remove_folder, write_text
from spo_fast.envs.protocol import TaskSet
from spo_fast.ops import normalize_advantages
from spo_fast.rollout.chat import ChatFormat
from spo_fast.rollout.collector import Collector, Request, Trajectory
from spo_fast.rollout.transformers_engine import TransformersEngine
from spo_fast.train import records
from spo_fast.train.baselines import Baseline, ReceiptOrderBaseline, StreamAlignedBaseline
from spo_fast.train.checkpoint import (
    fingerprint,
    read_tensors,
    save_checkpoint,
    sorted_checkpoints,
    verify,
    verify_parts,
    write_json,
    write_tensors,
)
from spo_fast.train.config import TrainConfig
from spo_fast.train.evaluation import evaluate
from spo_fast.train.learner import Learner, NonFiniteLossError
from spo_fast.train.metric_writers import MetricWriter, check_metric_writers, metric_writers
from spo_fast.train.policy import check_vocabulary, load_policy, warm_start
from spo_fast.train.progress import Progress
from spo_fast.train.report import write_report
from spo_fast.train.run_folder import RunFolder
from spo_fast.train.seeds import EVALUATION, FIRST_VALUES, MINIBATCHES, ROLLOUT, SCHEDULE, stream_seed
from spo_fast.train.stop_signal import StopSignal
from spo_fast.train.stream import RolloutStream
from spo_fast.train.summary import Summary, load_summary, summarise
from spo_fast.train.tasks import held_out_tasks, training_tasks
from spo_fast.train.tiny_policy import save_policy


class RunStopped(KeyboardInterrupt):
    """A run was asked to stop (Ctrl-C, SIGTERM) and has done so; its message says how to go on."""


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
        ValueError: a setting out of range, unreadable games or model, an output folder that holds a run; a loss that
            is not finite (``NonFiniteLossError``; the batch is in RUN/nonfinite_batch.json).
        RunStopped: Ctrl-C or SIGTERM; ``resume`` goes on.
        OSError: the disk is full; ``resume`` goes on.
    """
    config = config.with_output()
    config.validate()
    check_metric_writers(config)
    tasks, held_out = _task_sets(config, tasks, held_out)
    policy = _given_policy(config, tasks)  # before there is a folder: a model that cannot be used leaves none
    run = RunFolder.create(config)
    return _run(run, config, policy, tasks, held_out, quiet)


def resume(
    path: Path, *, tasks: TaskSet | None = None, held_out: TaskSet | None = None, quiet: bool = False
) -> Summary:
    """Goes on with a stopped run from its last checkpoint, or from the start where it has none yet.

    At an equal number of threads the run ends as if it had never been stopped: metrics.jsonl is the same in every
    field but those that end in ``_s``.

    Args:
        path: the run's folder.
        tasks, held_out: as in ``train``, where the run was started with tasks of one's own.
        quiet: no progress bars.

    Returns:
        the summary; of a finished run the one that it has.

    Raises:
        ValueError: no run, one that another process is training, or a damaged checkpoint; the message names the part.
    """
    run, config = RunFolder.open(path)
    if (path / "summary.json").is_file():
        summary = load_summary(path)
        write_report(path)  # a run may have been killed between the two
        run.close()
        return summary
    try:
        check_metric_writers(config)
        tasks, held_out = _task_sets(config, tasks, held_out)
        policy = _given_policy(config, tasks)
    except BaseException:
        run.close()
        raise
    return _run(run, config, policy, tasks, held_out, quiet)


def _task_sets(
    config: TrainConfig, tasks: TaskSet | None, held_out: TaskSet | None
) -> tuple[TaskSet, TaskSet]:
    if (tasks is None) != (held_out is None):
        raise ValueError("tasks, held_out: expected both or neither")
    if tasks is not None and config.policy.model is None:
        raise ValueError("policy.model: tasks of one's own need a model, got None")
    if tasks is None or held_out is None:
        return training_tasks(config.tasks, config.seed), held_out_tasks(config.tasks, config.seed)
    return tasks, held_out


def _given_policy(config: TrainConfig, tasks: TaskSet) -> tuple[Any, Any] | None:
    """(model, tokenizer) of ``policy.model``, found fit for these tasks; None where the run makes its own."""
    if config.policy.model is None:
        return None
    model, tokenizer = load_policy(config.policy.model)
    check_vocabulary(model, tokenizer, tasks)
    ChatFormat(tokenizer, config.policy.system_prompt)
    return model, tokenizer


def _run(
    run: RunFolder,
    config: TrainConfig,
    policy: tuple[Any, Any] | None,
    tasks: TaskSet,
    held_out: TaskSet,
    quiet: bool,
) -> Summary:
    """Makes or restores the trainer and lets it run to the end."""
    go_on = f"spo-fast train --resume {run.path}"
    stop = StopSignal()
    try:
        with stop:
            return _start(run, config, policy, tasks, held_out, Progress(quiet), stop).run()
    except KeyboardInterrupt:
        saved = sorted_checkpoints(run.checkpoints)
        kept = f"all until update {int(saved[-1].name)} is saved" if saved else "nothing was learned yet"
        raise RunStopped(f"stopped; {kept}. To go on: {go_on}") from None
    except OSError as error:
        if error.errno not in (None, errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise OSError(f"{error}. What was saved before is whole; to go on from there: {go_on}") from error
    finally:
        run.close()


def _start(
    run: RunFolder,
    config: TrainConfig,
    policy: tuple[Any, Any] | None,
    tasks: TaskSet,
    held_out: TaskSet,
    progress: Progress,
    stop: StopSignal,
) -> Trainer:
    """The trainer of a new run, or of one that goes on from its last checkpoint."""
    checkpoint = _last_checkpoint(run)
    if config.threads:
        torch.set_num_threads(config.threads)
    elif checkpoint is not None:
        torch.set_num_threads(_state(checkpoint)["threads"])
    model, tokenizer = policy or _own_policy(config, run, progress, resumed=checkpoint is not None)
    trainer = Trainer(config, run, model, tokenizer, tasks, held_out, progress, stop)
    if checkpoint is None:
        run.cut({})
    else:
        trainer.restore(checkpoint)
    return trainer


def _last_checkpoint(run: RunFolder) -> Path | None:
    """The latest checkpoint; every byte of it, and of the files that it builds on, verified."""
    checkpoints = sorted_checkpoints(run.checkpoints)
    if not checkpoints:
        return None
    verify(checkpoints[-1])
    verify_parts(run.path, _state(checkpoints[-1])["files"])
    return checkpoints[-1]


def _state(checkpoint: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    return state


def _own_policy(config: TrainConfig, run: RunFolder, progress: Progress, *, resumed: bool) -> tuple[Any, Any]:
    """(model, tokenizer) of the run's warm start; a resumed run's weights come from its checkpoint instead."""
    folder = run.path / "warm_start"
    if resumed:
        return load_policy(folder)
    model, tokenizer = warm_start(config, progress)
    _save_policy(model, tokenizer, folder)
    return model, tokenizer


def _save_policy(model: Any, tokenizer: Any, folder: Path) -> None:
    """A Hugging Face folder that is there whole or not at all, in the place of one that an earlier try left."""
    if folder.exists():
        remove_folder(folder)
    with new_folder(folder) as temporary:
        save_policy(model, tokenizer, temporary)


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
        stop: StopSignal,
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
        self._stream = RolloutStream(
            self._collector,
            self._baseline,
            tasks.task_ids,
            np.random.default_rng(stream_seed(config.seed, SCHEDULE)),
        )
        self._rng = np.random.default_rng(stream_seed(config.seed, MINIBATCHES))
        self._step: int | None = None  # updates done; None: the values are not initialised yet
        self._updated: float | None = None  # when the last update ended
        self._stop = stop

    def run(self) -> Summary:
        if self._step is None:
            self._evaluate(0, "evaluate before")
            self._first_values()
            self._step = 0
            self._save()
            write_report(self._run.path)
        with metric_writers(self._config, self._run.path, self._step + 1) as writers:
            self._train(writers)
        self._learner.take_average()
        self._evaluate(self._step, "evaluate after")
        _save_policy(self._model, self._tokenizer, self._run.path / "model")
        summary = summarise(self._run.path, self._config, self._progress.seconds)
        write_report(self._run.path)
        return summary

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

    def _evaluate(self, step: int, name: str) -> None:
        played = evaluate(
            self._model,
            self._chat,
            self._held_out,
            self._config.rollout,
            seed=stream_seed(self._config.seed, EVALUATION),
            progress=self._progress,
            phase=name,
        )
        self._run.log("evaluations", records.evaluation(step, played))

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

    def _train(self, writers: list[MetricWriter]) -> None:
        settings = self._config.optimisation
        size = settings.prompts_per_step
        assert self._step is not None
        with self._stop.waiting(), self._progress.phase("train", settings.updates * size, "game") as bar:
            bar.update(self._step * size)
            self._stream.on_episode = lambda trajectory: bar.update(min(1, bar.total - bar.n))
            while self._step < settings.updates:
                record = self._update(self._step + 1)
                self._step += 1
                self._run.log("metrics", record)
                self._run.log("resources", records.resources(self._step))
                for write in writers:
                    write(record)
                bar.set_postfix(
                    update=f"{self._step}/{settings.updates}",
                    reward=f"{record['reward']:.3f}",
                    success=f"{record['success']:.3f}",
                    tok_s=f"{record['tokens_per_s']:.0f}",
                    env_s=f"{record['env_steps_per_s']:.0f}",
                    refresh=False,
                )
                if self._stop.requested or self._checkpoint_due(self._step):
                    self._save()
                if self._stop.requested:
                    raise KeyboardInterrupt
                if self._checkpoint_due(self._step):
                    write_report(self._run.path)

    def _checkpoint_due(self, step: int) -> bool:
        return step % self._config.record.checkpoint_every == 0 or step == self._config.optimisation.updates

    def _update(self, step: int) -> dict[str, Any]:
        """Collects a batch, learns from it, publishes; the line of metrics.jsonl."""
        settings = self._config.optimisation
        last, began, before = self._updated, time.perf_counter(), self._counters()
        batch = self._stream.batch(settings.prompts_per_step)
        if step < settings.updates:
            self._stream.settle(self._config.rollout.at_publication)
        collected, after = time.perf_counter(), self._counters()
        values, advantages = self._advantages(batch)
        staleness = [self._stream.version - t.request.version for t in batch]
        loss = self._learn(batch, advantages)
        self._stream.publish()
        self._updated = time.perf_counter()
        self._log_episodes(step, batch, values, advantages)
        rollout_s = collected - began
        env_s = after["env_s"] - before["env_s"]
        return {
            "step": step,
            **records.describe(batch),
            "value_mean": float(values.mean()),
            "tracker_value_mean": float(np.mean(self._baseline.tracker.values(list(self._tasks.task_ids)))),
            "staleness_mean": float(np.mean(staleness)),
            **loss,
            "tokens_seen": after["tokens"],
            "env_steps_seen": after["env_steps"],
            "generate_s": rollout_s - env_s,
            "env_s": env_s,
            "update_s": self._updated - collected,
            "other_s": 0.0 if last is None else began - last,
            "tokens_per_s": (after["tokens"] - before["tokens"]) / rollout_s,
            "env_steps_per_s": (after["env_steps"] - before["env_steps"]) / rollout_s,
        }

    def _counters(self) -> dict[str, float]:
        return {
            "tokens": self._engine.generated_tokens,
            "env_steps": self._collector.environment_steps,
            "env_s": self._collector.environment_seconds,
        }

    def _advantages(self, batch: list[Trajectory]) -> tuple[np.ndarray, np.ndarray]:
        """(values, normalised advantages), one a trajectory."""
        raw = self._baseline.advantages(batch)
        values = np.array([t.outcome for t in batch]) - raw
        normalised = normalize_advantages(
            raw, lengths=np.array([t.action_tokens for t in batch]), measure=self._config.advantage_measure
        )
        return values, np.asarray(normalised)

    def _learn(self, batch: list[Trajectory], advantages: np.ndarray) -> dict[str, float]:
        """The learner's update; a batch that breaks it is written down before the run ends."""
        try:
            return self._learner.update(batch, advantages, self._rng)
        except NonFiniteLossError as error:
            path = self._run.path / "nonfinite_batch.json"
            write_text(path, json.dumps(records.batch_dump(batch, advantages, error.part, error.figures)))
            raise NonFiniteLossError(error.part, error.figures, where=path) from None

    def _log_episodes(
        self, step: int, batch: list[Trajectory], values: np.ndarray, advantages: np.ndarray
    ) -> None:
        for record in records.episodes(step, batch, values, advantages):
            self._run.log("episodes", record)
        if self._checkpoint_due(step):
            for i in range(min(self._config.record.transcripts, len(batch))):
                record = records.transcript(
                    step, batch[i], float(values[i]), float(advantages[i]), self._tokenizer
                )
                self._run.log("transcripts", record)

    def _save(self) -> None:
        """Writes a checkpoint. Nothing is in flight here, but after the last update, where nothing follows."""
        assert self._step is not None
        state = {
            "threads": torch.get_num_threads(),
            "minibatch_rng": self._rng.bit_generator.state,
            "stream": self._stream.state_dict(),
            "decode_steps": self._engine.decode_steps,
            "generated_tokens": self._engine.generated_tokens,
            "environment_steps": self._collector.environment_steps,
            "seconds": self._progress.seconds_so_far(),
            "logs": self._run.marks(),
            "files": {str(path.relative_to(self._run.path)): fingerprint(path) for path in self._built_on()},
        }
        parts = {
            "state.json": write_json(state),
            "learner.safetensors": write_tensors(
                self._learner.state_dict() | {"torch_rng": torch.get_rng_state()}
            ),
            **self._baseline.parts(),
        }
        save_checkpoint(self._run.checkpoints, self._step, parts, self._config.record.keep_checkpoints)

    def _built_on(self) -> list[Path]:
        """The files of the run's folder that a checkpoint needs and does not hold."""
        return [self._run.path / "config.json", *sorted((self._run.path / "warm_start").glob("*"))]

    def restore(self, checkpoint: Path) -> None:
        """Takes up where a verified checkpoint left off; forgets what the logs say of later updates."""
        state = _state(checkpoint)
        self._baseline.restore(checkpoint)
        if set(self._baseline.tracker.task_ids) != set(self._tasks.task_ids):
            raise ValueError(f"tasks: expected those that {self._run.path} was started with, got others")
        tensors = read_tensors(checkpoint / "learner.safetensors")
        torch.set_rng_state(tensors.pop("torch_rng"))
        self._learner.load_state_dict(tensors)
        self._rng.bit_generator.state = state["minibatch_rng"]
        self._stream.load_state_dict(state["stream"])
        self._engine.decode_steps = state["decode_steps"]
        self._engine.generated_tokens = state["generated_tokens"]
        self._collector.environment_steps = state["environment_steps"]
        self._progress.seconds = state["seconds"]
        self._step = int(checkpoint.name)
        self._run.cut(state["logs"])
