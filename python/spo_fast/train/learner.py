"""From trajectories and advantages to gradient steps: padding, micro-batches, the loss, AdamW."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from spo_fast.ops import SPOLoss, linear_token_logprobs, token_logprobs
from spo_fast.rollout.collector import Trajectory
from spo_fast.train.config import OptimisationConfig, TrainConfig


@dataclass
class PaddedBatch:
    """Trajectories padded on the right; column t scores token t + 1 of a trajectory."""

    indices: list[int]
    inputs: torch.Tensor  # [B, T] int64
    targets: torch.Tensor  # [B, T] int64
    action_mask: torch.Tensor  # [B, T] bool
    rollout_logprobs: torch.Tensor  # [B, T] float32


def pad_trajectories(
    trajectories: Sequence[Trajectory], indices: list[int], device: torch.device
) -> PaddedBatch:
    width = max(len(trajectories[i].token_ids) for i in indices) - 1
    shape = (len(indices), width)
    inputs, targets = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    mask, logprobs = np.zeros(shape, bool), np.zeros(shape, np.float32)
    for row, i in enumerate(indices):
        t = trajectories[i]
        n = len(t.token_ids) - 1
        inputs[row, :n], targets[row, :n] = t.token_ids[:-1], t.token_ids[1:]
        mask[row, :n], logprobs[row, :n] = t.action_mask[1:], t.logprobs[1:]
    tensors = (torch.from_numpy(a).to(device) for a in (inputs, targets, mask, logprobs))
    return PaddedBatch(indices, *tensors)


def microbatches(lengths: Sequence[int], indices: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Splits ``indices`` into groups of similar length whose padded size stays within ``tokens``.

    A single sequence longer than ``tokens`` makes a group of its own.
    """
    group: list[int] = []
    for i in sorted(indices, key=lambda i: (-lengths[i], i)):
        if group and (len(group) + 1) * lengths[group[0]] > tokens:
            yield group
            group = []
        group.append(i)
    if group:
        yield group


class NonFiniteLossError(ValueError):
    """A gradient step's loss or gradient is NaN or infinite; that step was not taken.

    Attributes:
        part: which of the update's trajectories the step was on.
        figures: the step's metrics.
        where: the file that has the batch, if it was written down.
    """

    def __init__(self, part: list[int], figures: dict[str, float], where: Path | None = None):
        said = f"the loss is {figures['loss']:g}, the norm of its gradient {figures['grad_norm']:g}"
        super().__init__(said + (f"; the batch is in {where}" if where else ""))
        self.part = part
        self.figures = figures


class Learner:
    """Owns the optimiser; turns trajectories into updates of ``model``.

    The loss is SPO's clipped policy gradient in token mean: exact for any split into micro-batches, since every
    part is divided by the number of action tokens of the whole gradient step.
    """

    def __init__(self, model: Any, config: TrainConfig):
        settings = config.optimisation
        self._model = model
        self._settings = settings
        self._temperature = config.rollout.temperature
        cap = config.objective.rollout_is_cap
        self._loss = SPOLoss(
            clip_low=config.objective.clip_low,
            clip_high=config.objective.clip_high,
            dual_clip=config.dual_clip,
            rollout_is_cap=cap if cap > 0 else None,
        )
        self._optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            betas=(0.9, 0.95),
        )
        decay = settings.weight_average
        self._average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay)) if decay > 0 else None
        self._updates = 0
        self._head = _head_options(model)

    def _scoring(self, batch: PaddedBatch) -> dict[str, Any]:
        """What scores this batch's tokens: hidden states and the head's weight, or logits."""
        # no attention mask: with padding on the right, causality hides it from every real token
        if self._head is None:
            return {"logits": self._model(input_ids=batch.inputs, use_cache=False).logits}
        hidden = self._model.base_model(input_ids=batch.inputs, use_cache=False).last_hidden_state
        head = self._model.get_output_embeddings()
        return {
            "hidden": hidden,
            "lm_head_weight": head.weight,
            "bias": getattr(head, "bias", None),
            **self._head,
        }

    @torch.no_grad()
    def logprobs(self, trajectories: Sequence[Trajectory]) -> list[np.ndarray]:
        """The current policy's log-prob of each action token, one float32 array a trajectory."""
        self._model.eval()
        lengths = [len(t.token_ids) for t in trajectories]
        out: list[np.ndarray] = [np.zeros(0, np.float32)] * len(trajectories)
        for group in microbatches(lengths, range(len(trajectories)), self._settings.tokens_per_microbatch):
            batch = pad_trajectories(trajectories, group, self._model.device)
            options = {"action_mask": batch.action_mask, "temperature": self._temperature}
            scoring = self._scoring(batch)
            if "logits" in scoring:
                scores = token_logprobs(scoring.pop("logits"), batch.targets, **options)
            else:
                scores = linear_token_logprobs(
                    scoring.pop("hidden"), scoring.pop("lm_head_weight"), batch.targets, **scoring, **options
                )
            for row, i in enumerate(group):
                out[i] = scores[row][batch.action_mask[row]].cpu().numpy()
        return out

    def update(
        self, trajectories: Sequence[Trajectory], advantages: np.ndarray, rng: np.random.Generator
    ) -> dict[str, float]:
        """One update: ``optimizer_steps`` gradient steps, each on its share of the trajectories.

        Args:
            advantages: [S], one a trajectory, normalised.
            rng: assigns trajectories to gradient steps where there are several.

        Returns:
            the loss's metrics and ``grad_norm``: averaged over action tokens in each gradient step, then over the steps
            by their trajectories; ``ratio_max`` is the largest.
        """
        steps = self._settings.optimizer_steps
        # with several steps the ratio is taken to the policy that the update started from
        old = self.logprobs(trajectories) if steps > 1 else None
        order = rng.permutation(len(trajectories)) if steps > 1 else np.arange(len(trajectories))
        totals: dict[str, float] = {}
        for part in np.array_split(order, steps):
            for name, value in self._gradient_step(trajectories, advantages, part.tolist(), old).items():
                if name == "ratio_max":
                    totals[name] = max(totals.get(name, value), value)
                else:
                    totals[name] = totals.get(name, 0.0) + value * len(part) / len(trajectories)
        self._updates += 1
        if self._average is not None:
            self._average.update_parameters(self._model)
        return totals

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Weights, optimiser and average as flat tensors; one of several tied weights stands for all."""
        state = {f"model.{name}": tensor for name, tensor in _untied(self._model).items()}
        if self._average is not None:
            state |= {f"average.{name}": tensor for name, tensor in _untied(self._average).items()}
        for i, moments in self._optimizer.state_dict()["state"].items():
            state |= {f"optimizer.{i}.{name}": tensor for name, tensor in moments.items()}
        state["updates"] = torch.tensor(self._updates)
        return state

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Takes what ``state_dict`` gave; a state of another model or other settings is refused, and nothing changed.

        Raises:
            ValueError: naming the first tensor that is missing, superfluous or of another shape.
        """
        own = {f"model.{name}": tensor for name, tensor in _untied(self._model).items()}
        if self._average is not None:
            own |= {f"average.{name}": tensor for name, tensor in _untied(self._average).items()}
        given = {name: tuple(t.shape) for name, t in state.items() if name.startswith(("model.", "average."))}
        expected = {name: tuple(t.shape) for name, t in own.items()}
        for name in sorted(given.keys() ^ expected.keys()):
            raise ValueError(f"learner: the tensor {name} is {'missing' if name in expected else 'unknown'}")
        for name, shape in expected.items():
            if given[name] != shape:
                raise ValueError(f"learner: expected {name} of shape {shape}, got {given[name]}")
        moments = self._checked_moments(state)
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": moments, "param_groups": groups})
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(state[name])
        self._updates = int(state["updates"])

    def _checked_moments(self, state: Mapping[str, torch.Tensor]) -> dict[int, dict[str, torch.Tensor]]:
        """AdamW's state by parameter, which has none before its first gradient."""
        parameters = list(self._model.parameters())
        moments: dict[int, dict[str, torch.Tensor]] = {}
        for name, tensor in state.items():
            if name.startswith("optimizer."):
                _, number, moment = name.split(".")
                moments.setdefault(int(number), {})[moment] = tensor
        for i, given in moments.items():
            if i >= len(parameters):
                raise ValueError(f"learner: the tensor optimizer.{i} is unknown")
            shapes = {"step": (), "exp_avg": parameters[i].shape, "exp_avg_sq": parameters[i].shape}
            for moment in sorted(given.keys() ^ shapes.keys()):
                raise ValueError(f"learner: the tensor optimizer.{i}.{moment} is missing or unknown")
            for moment, shape in shapes.items():
                if given[moment].shape != shape:
                    raise ValueError(
                        f"learner: expected optimizer.{i}.{moment} of shape {tuple(shape)}, got {tuple(given[moment].shape)}"
                    )
        return moments

    def take_average(self) -> None:
        """Ends training: the model gets the average of its weights, where one was kept."""
        if self._average is not None:
            self._model.load_state_dict(self._average.module.state_dict())

    def _gradient_step(
        self,
        trajectories: Sequence[Trajectory],
        advantages: np.ndarray,
        part: list[int],
        old: list[np.ndarray] | None,
    ) -> dict[str, float]:
        self._model.eval()  # dropout would put the ratio between two different policies
        self._optimizer.zero_grad(set_to_none=True)
        lengths = [len(t.token_ids) for t in trajectories]
        count = sum(trajectories[i].action_tokens for i in part)
        sums: dict[str, torch.Tensor] = {}
        for group in microbatches(lengths, part, self._settings.tokens_per_microbatch):
            batch = pad_trajectories(trajectories, group, self._model.device)
            out = self._loss(
                **self._scoring(batch),
                token_ids=batch.targets,
                temperature=self._temperature,
                advantages=torch.as_tensor(advantages[group], dtype=torch.float32, device=self._model.device),
                action_mask=batch.action_mask,
                old_logprobs=None if old is None else _spread(old, batch),
                rollout_logprobs=batch.rollout_logprobs,
                normalizer=count,
            )
            out.loss.backward()
            tokens = out.metrics["tokens"]
            for name, value in out.metrics.items():
                if name == "ratio_max":
                    sums[name] = torch.maximum(sums.get(name, value), value)
                elif name != "tokens":
                    sums[name] = sums.get(name, torch.zeros_like(value)) + value * tokens / count
            sums["loss"] = sums.get("loss", torch.zeros_like(out.loss)) + out.loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._settings.max_grad_norm)
        sums["grad_norm"] = norm
        figures = {name: float(value) for name, value in sums.items()}
        if not math.isfinite(figures["loss"]) or not math.isfinite(figures["grad_norm"]):
            raise NonFiniteLossError(part, figures)
        for group_options in self._optimizer.param_groups:
            group_options["lr"] = learning_rate(self._settings, self._updates)
        self._optimizer.step()
        return figures


def _untied(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A module's state without the second names of tied weights, which share their first one's storage."""
    first: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        first.setdefault(id(tensor), (name, tensor))
    return dict(first.values())


def learning_rate(settings: OptimisationConfig, update: int) -> float:
    """The learning rate of an update; the first one's number is 0."""
    done, warmup = update + 1, settings.warmup_updates
    if done < warmup:
        return settings.learning_rate * done / warmup
    if settings.schedule == "constant":
        return settings.learning_rate
    left = (settings.updates - done) / max(1, settings.updates - warmup)
    return settings.learning_rate * (0.1 + 0.9 * max(0.0, left))


def _spread(values: list[np.ndarray], batch: PaddedBatch) -> torch.Tensor:
    """Per-action-token values back to the padded layout."""
    out = torch.zeros_like(batch.rollout_logprobs)
    for row, i in enumerate(batch.indices):
        out[row][batch.action_mask[row]] = torch.from_numpy(values[i]).to(out.device)
    return out


def _head_options(model: Any) -> dict[str, Any] | None:
    """How this model's logits follow from its last hidden states; None where they don't by any rule known here.

    Tried out on the model itself: a wrong rule would train on wrong probabilities without a sign.
    """
    config = model.config.get_text_config()
    scale = getattr(config, "logit_scale", None) or 1.0
    if getattr(config, "logits_scaling", None):
        scale = 1.0 / config.logits_scaling
    cap = getattr(config, "final_logit_softcapping", None)
    options = {"logit_scale": float(scale), "logit_softcap": cap}
    head = model.get_output_embeddings()
    if head is None or not isinstance(getattr(head, "weight", None), torch.Tensor):
        return None
    model.eval()
    with torch.no_grad():
        ids = torch.arange(4, device=model.device)[None] % config.vocab_size
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        z = scale * torch.nn.functional.linear(hidden, head.weight, getattr(head, "bias", None))
        z = z if cap is None else cap * torch.tanh(z / cap)
        want = model(input_ids=ids, use_cache=False).logits
    if z.shape != want.shape:
        return None
    tolerance = 1e-3 if model.dtype == torch.float32 else 5e-2
    close = (z - want).abs().max() <= tolerance * max(1.0, float(want.abs().max()))
    return options if bool(close) else None
