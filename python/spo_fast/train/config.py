"""Every setting of a run, in small dataclasses. ``TrainConfig`` is what ``spo-fast train --help`` shows."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import time
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


def _bounded(
    default: Any, low: float = -math.inf, high: float = math.inf, *, above: float | None = None
) -> Any:
    """A dataclass field whose value must lie in [low, high], or above ``above``; ``validate`` checks it."""
    parts = [f"more than {above:g}" if above is not None else f"at least {low:g}" if low > -math.inf else ""]
    parts.append(f"at most {high:g}" if high < math.inf else "")

    def accepts(value: float) -> bool:
        return (value > above if above is not None else value >= low) and value <= high

    expected = " and ".join(part for part in parts if part)
    return field(default=default, metadata={"accepts": accepts, "expected": expected})


@dataclass(frozen=True)
class TaskConfig:
    """Which games are played.

    Attributes:
        games: folder of game.tw-pddl files in ALFWorld's layout; without it games are generated.
        engine: what plays them: our own engine, or the public one (extra "alfworld"; slow).
        train_tasks: how many training tasks; of a folder at most all that it has, and 0 takes all.
        eval_tasks: how many held-out tasks, likewise.
        eval_split: the split that is held out.
        max_steps: longest episode, in environment steps.
        min_receptacles: fewest receptacles of a generated room, 5 to 15.
        max_receptacles: most receptacles of a generated room.
        min_objects: fewest objects of a generated room, 4 to 60.
        max_objects: most objects of a generated room.
    """

    games: Path | None = None
    engine: Literal["native", "textworld"] = "native"
    train_tasks: int = _bounded(96, 0)
    eval_tasks: int = _bounded(256, 0)
    eval_split: Literal["valid_seen", "valid_unseen"] = "valid_unseen"
    max_steps: int = _bounded(30, 1)
    min_receptacles: int = _bounded(8, 5, 15)
    max_receptacles: int = _bounded(12, 5, 15)
    min_objects: int = _bounded(6, 4, 60)
    max_objects: int = _bounded(10, 4, 60)


@dataclass(frozen=True)
class PolicyConfig:
    """Which model is trained.

    Attributes:
        model: folder of a causal LM and a tokenizer with a chat template; without it a tiny Qwen3 model is made
            and first taught to imitate the expert.
        system_prompt: goes before the first observation where the chat template has room for it.
        demonstrations: how many of the expert's episodes the tiny model imitates; 0 leaves its weights random.
        demonstration_epochs: passes over them.
        mistakes: how often the expert errs before it acts, so that going on after an error is learned too.
        imitation_learning_rate: peak learning rate of imitation.
        hidden_size: width of the tiny model, a multiple of 32.
        layers: layers of the tiny model.
    """

    model: Path | None = None
    system_prompt: str = (
        "You are playing a household text game. Answer each observation with one command and nothing else. "
        "The commands: look, inventory, go to X, open X, close X, take X from Y, move X to Y, examine X, use X, "
        "heat X with Y, clean X with Y, cool X with Y, slice X with Y."
    )
    demonstrations: int = _bounded(1200, 0)
    demonstration_epochs: int = _bounded(2, 1)
    mistakes: float = _bounded(0.15, 0, 1)
    imitation_learning_rate: float = _bounded(3e-3, above=0)
    hidden_size: int = _bounded(128, 32)
    layers: int = _bounded(2, 1)


@dataclass(frozen=True)
class RolloutConfig:
    """How episodes are collected.

    Attributes:
        slots: how many episodes are in flight at once; while training at most prompts_per_step, so that those in
            flight at a publication fit into the next batch.
        temperature: of sampling during training.
        eval_temperature: of sampling during evaluation; 0 is greedy.
        max_action_tokens: longest turn of the policy, in tokens.
        max_tokens: longest conversation, in tokens; an episode that could exceed it is cut.
        at_publication: what happens to the episodes in flight when the policy is published: "join" lets them
            finish under the policy that dispatched them and join the next batch, "discard" cancels them.
    """

    slots: int = _bounded(64, 1)
    temperature: float = _bounded(1.0, above=0)
    eval_temperature: float = _bounded(1.0, 0)
    max_action_tokens: int = _bounded(12, 1)
    max_tokens: int = _bounded(2048, 2)
    at_publication: Literal["join", "discard"] = "join"


@dataclass(frozen=True)
class OptimisationConfig:
    """How the policy is updated.

    Attributes:
        updates: how many updates; each ends in a publication.
        prompts_per_step: trajectories that an update learns from; one rollout a prompt.
        optimizer_steps: gradient steps of an update, each on its share of the trajectories.
        tokens_per_microbatch: padded tokens that go through the model at once.
        learning_rate: of AdamW.
        warmup_updates: updates over which the learning rate rises to its value.
        schedule: after them it stays ("constant") or falls to a tenth at the last update ("linear").
        weight_decay: of AdamW.
        max_grad_norm: a gradient with a larger norm is scaled down to it.
        weight_average: decay of the average of the weights over updates that is judged and saved at the end; 0 takes
            the last weights. The policy that generates is always the last one.
    """

    updates: int = _bounded(40, 0)
    prompts_per_step: int = _bounded(64, 1)
    optimizer_steps: int = _bounded(1, 1)
    tokens_per_microbatch: int = _bounded(16384, 1)
    learning_rate: float = _bounded(1e-3, above=0)
    warmup_updates: int = _bounded(0, 0)
    schedule: Literal["constant", "linear"] = "constant"
    weight_decay: float = _bounded(0.01, 0)
    max_grad_norm: float = _bounded(1.0, above=0)
    weight_average: float = _bounded(0.0, 0, 0.999)


@dataclass(frozen=True)
class ObjectiveConfig:
    """The objective's constants; None takes the algorithm's own.

    Attributes:
        initial_rollouts: rollouts a task before training, for the first estimate of its value.
        initial_mass: weight of that estimate, in rollouts.
        rho: SPO++: factor on an outcome's weight at each publication.
        clip_low: ratios below 1 - clip_low are clipped.
        clip_high: ratios above 1 + clip_high are clipped.
        dual_clip: the loss at a negative advantage is capped at this multiple of it (spo++ 2, spo 10).
        rollout_is_cap: cap of the importance weight from recorded log-probs; 0 leaves the weight out.
        advantage_measure: measure of normalisation (spo++ action_token, spo trajectory).
    """

    initial_rollouts: int = _bounded(8, 0)
    initial_mass: float = _bounded(8.0, above=0)
    rho: float = _bounded(0.875, high=1, above=0)
    clip_low: float = _bounded(0.2, 0, 1)
    clip_high: float = _bounded(0.28, 0)
    dual_clip: float | None = _bounded(None, above=1)
    rollout_is_cap: float = _bounded(2.0, 0)
    advantage_measure: Literal["action_token", "trajectory"] | None = None


@dataclass(frozen=True)
class RecordConfig:
    """What a run leaves behind besides its metrics.

    Attributes:
        checkpoint_every: updates between two checkpoints; a report is written with each.
        keep_checkpoints: how many of the latest checkpoints stay.
        transcripts: episodes of an update that comes with a checkpoint which the report shows token by token.
        tensorboard: also write the metrics for TensorBoard, to RUN/tensorboard (needs the package tensorboard).
        wandb: also send the metrics to Weights & Biases, to the project of this name (needs the package wandb).
    """

    checkpoint_every: int = _bounded(10, 1)
    keep_checkpoints: int = _bounded(2, 1)
    transcripts: int = _bounded(4, 0)
    tensorboard: bool = False
    wandb: str | None = None


@dataclass(frozen=True)
class TrainConfig:
    """A training run.

    Attributes:
        algorithm: spo++ (values frozen at dispatch, event-time evidence, action-token normalisation) or its
            baseline spo (receipt order, drift retention, trajectory whitening).
        output: the run's folder; one that already holds a run is refused. Without it
            runs/<algorithm>-seed<seed>-<date>-<time>.
        seed: names the games, the initial weights and all sampling.
        threads: CPU threads of PyTorch; 0 leaves its default.
    """

    algorithm: Literal["spo++", "spo"] = "spo++"
    output: Path | None = None
    seed: int = _bounded(0, 0)
    threads: int = _bounded(0, 0)
    tasks: TaskConfig = TaskConfig()
    policy: PolicyConfig = PolicyConfig()
    rollout: RolloutConfig = RolloutConfig()
    optimisation: OptimisationConfig = OptimisationConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    record: RecordConfig = RecordConfig()

    def with_output(self) -> TrainConfig:
        """The same with a folder of its own, where ``output`` names none, and inputs found from any directory."""
        name = f"{self.algorithm}-seed{self.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
        games, model = self.tasks.games, self.policy.model
        return dataclasses.replace(
            self,
            output=Path("runs", name) if self.output is None else self.output,
            tasks=dataclasses.replace(self.tasks, games=games and games.resolve()),
            policy=dataclasses.replace(self.policy, model=model and model.resolve()),
        )

    def validate(self) -> None:
        """Raises ValueError that names every value out of range."""
        faults = _faults(self, "")
        if self.optimisation.optimizer_steps > self.optimisation.prompts_per_step:
            faults.append(
                f"optimizer_steps: expected at most prompts_per_step ({self.optimisation.prompts_per_step}), "
                f"got {self.optimisation.optimizer_steps}"
            )
        tasks = self.tasks
        if tasks.min_receptacles > tasks.max_receptacles or tasks.min_objects > tasks.max_objects:
            faults.append("min_receptacles, min_objects: expected at most max_receptacles, max_objects")
        if self.policy.hidden_size % 32:
            faults.append(f"hidden_size: expected a multiple of 32, got {self.policy.hidden_size}")
        if self.rollout.max_tokens <= self.rollout.max_action_tokens:
            faults.append(
                f"max_tokens: expected more than max_action_tokens ({self.rollout.max_action_tokens}), "
                f"got {self.rollout.max_tokens}"
            )
        if self.tasks.games is None and 0 in (self.tasks.train_tasks, self.tasks.eval_tasks):
            faults.append(
                "train_tasks, eval_tasks: 0 (all of a folder) needs games; generated games have no end"
            )
        if faults:
            raise ValueError("; ".join(faults))

    @property
    def dual_clip(self) -> float:
        if self.objective.dual_clip is not None:
            return self.objective.dual_clip
        return 2.0 if self.algorithm == "spo++" else 10.0

    @property
    def advantage_measure(self) -> Literal["action_token", "trajectory"]:
        if self.objective.advantage_measure is not None:
            return self.objective.advantage_measure
        return "action_token" if self.algorithm == "spo++" else "trajectory"

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), default=str, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> TrainConfig:
        """Reads ``to_json``'s text. Unknown keys and values out of range are errors."""
        config: TrainConfig = _build(cls, json.loads(text), "")
        config.validate()
        return config


@dataclass(frozen=True)
class EvalConfig:
    """An evaluation of a run's policy. None: as in the run.

    Attributes:
        run: the folder of a finished run.
        games: folder of game.tw-pddl files in ALFWorld's layout.
        split: what is played; train: the tasks that the run was trained on.
        engine: what plays them: our own engine, or the public one (extra "alfworld"; slow).
        tasks: how many tasks; 0 takes all that the folder has, which is the default where games is given.
        max_steps: longest episode, in environment steps.
        max_tokens: longest conversation, in tokens; an episode that could exceed it is cut.
        temperature: of sampling; 0 is greedy.
        slots: how many episodes are in flight at once.
        seed: names the generated games or the choice from a folder, and all sampling.
        threads: CPU threads of PyTorch; 0 leaves its default.
        json: a file to write the result to.
    """

    run: Path
    games: Path | None = None
    split: Literal["train", "valid_seen", "valid_unseen"] | None = None
    engine: Literal["native", "textworld"] | None = None
    tasks: int | None = _bounded(None, 0)
    max_steps: int | None = _bounded(None, 1)
    max_tokens: int | None = _bounded(None, 2)
    temperature: float | None = _bounded(None, 0)
    slots: int | None = _bounded(None, 1)
    seed: int | None = _bounded(None, 0)
    threads: int | None = _bounded(None, 0)
    json: Path | None = None

    def validate(self) -> None:
        """Raises ValueError that names every value out of range."""
        if faults := _faults(self, ""):
            raise ValueError("; ".join(faults))


@dataclass(frozen=True)
class ReportConfig:
    """Which runs a report is about.

    Attributes:
        runs: the folders of one or more runs.
        output: the page that compares several runs; the report of one is its report.html.
    """

    runs: tuple[Path, ...]
    output: Path = Path("comparison.html")


@dataclass(frozen=True)
class PlayConfig:
    """A game in the terminal. None: as in the policy's run, or the defaults of a run.

    Attributes:
        games: folder of game.tw-pddl files in ALFWorld's layout; without it games are generated.
        policy: the folder of a finished run whose policy plays; without it you do.
        split: which games; train: those that the run was trained on.
        game: which of them, from 0.
        admissible: show what is possible before each command.
        max_steps: longest episode, in environment steps.
        temperature: of the policy's sampling; 0 is greedy.
        seed: names the generated games or the choice from a folder, and the policy's sampling.
    """

    games: Path | None = None
    policy: Path | None = None
    split: Literal["train", "valid_seen", "valid_unseen"] | None = None
    game: int = _bounded(0, 0)
    admissible: bool = False
    max_steps: int | None = _bounded(None, 1)
    temperature: float | None = _bounded(None, 0)
    seed: int | None = _bounded(None, 0)

    def validate(self) -> None:
        """Raises ValueError that names every value out of range."""
        if faults := _faults(self, ""):
            raise ValueError("; ".join(faults))


def _faults(part: Any, prefix: str) -> list[str]:
    faults = []
    hints = typing.get_type_hints(type(part))
    for f in dataclasses.fields(part):
        value = getattr(part, f.name)
        if dataclasses.is_dataclass(value):
            faults += _faults(value, f"{f.name}.")
            continue
        choices = [c for c in _choices(hints[f.name]) if c is not None]
        if choices and value is not None and value not in choices:
            faults.append(f"{prefix}{f.name}: expected one of {', '.join(map(repr, choices))}, got {value!r}")
        accepts = f.metadata.get("accepts")
        if accepts and value is not None and not accepts(value):
            faults.append(f"{prefix}{f.name}: expected {f.metadata['expected']}, got {value!r}")
    return faults


def _choices(hint: Any) -> list[Any]:
    if typing.get_origin(hint) is Literal:
        return list(typing.get_args(hint))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [c for arg in typing.get_args(hint) for c in _choices(arg)]
    return []


def _build(cls: type, values: Any, where: str) -> Any:
    """A dataclass from nested mappings, as JSON gives them."""
    if not isinstance(values, dict):
        raise ValueError(f"{where.rstrip('.') or 'config'}: expected a mapping, got {type(values).__name__}")
    hints = typing.get_type_hints(cls)
    for key in values.keys() - hints.keys():
        near = difflib.get_close_matches(key, hints, n=1)
        raise ValueError(f"{where}{key}: no such setting" + (f"; did you mean {near[0]!r}?" if near else ""))
    return cls(**{key: _convert(hints[key], value, f"{where}{key}") for key, value in values.items()})


def _convert(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return _build(typing.cast(type, hint), value, f"{where}.")
    kinds = (
        set(typing.get_args(hint)) if typing.get_origin(hint) in (typing.Union, types.UnionType) else {hint}
    )
    if value is None and type(None) in kinds:
        return None
    if isinstance(value, str) and Path in kinds:
        return Path(value)
    if isinstance(value, int) and not isinstance(value, bool) and float in kinds:
        return float(value)
    plain = tuple(kind for kind in kinds if kind in (int, float, str, bool))
    if plain and (not isinstance(value, plain) or (isinstance(value, bool) and bool not in plain)):
        raise ValueError(f"{where}: expected {' or '.join(kind.__name__ for kind in plain)}, got {value!r}")
    return value


PRESETS: dict[str, TrainConfig] = {
    # Sized so that two CPU cores finish in minutes.
    "demo": TrainConfig(
        tasks=TaskConfig(train_tasks=128),
        policy=PolicyConfig(demonstrations=1600),
        rollout=RolloutConfig(max_action_tokens=8),
        optimisation=OptimisationConfig(
            updates=60,
            prompts_per_step=128,
            optimizer_steps=4,
            tokens_per_microbatch=4096,
            learning_rate=5e-4,
            warmup_updates=3,
            schedule="linear",
            weight_average=0.85,
        ),
        objective=ObjectiveConfig(initial_rollouts=4),
        record=RecordConfig(checkpoint_every=20),
    ),
    # SPO++'s published ALFWorld settings (128 tasks, 50 interactions, 8 x 128 initial rollouts, 6,400 online
    # trajectories, 128 an update); the model and the games are the user's.
    "paper": TrainConfig(
        tasks=TaskConfig(train_tasks=128, eval_tasks=0, max_steps=50),
        rollout=RolloutConfig(slots=64, max_action_tokens=64, max_tokens=8192),
        optimisation=OptimisationConfig(
            updates=50, prompts_per_step=128, learning_rate=1e-6, weight_decay=0.1, optimizer_steps=1
        ),
        objective=ObjectiveConfig(initial_rollouts=8),
    ),
}
