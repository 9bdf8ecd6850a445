"""A warm start: a policy with random weights learns to imitate the expert's episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from spo_fast.envs.protocol import Environment
from spo_fast.ops import linear_token_logprobs
from spo_fast.rollout.chat import ChatFormat
from spo_fast.rollout.collector import Request, Trajectory
from spo_fast.train.learner import pad_trajectories


@dataclass
class Demonstrated(Trajectory):
    """A demonstration as tokens. ``action_mask`` marks what to imitate, ``mistake_mask`` what was said by mistake."""

    mistake_mask: list[int] = field(default_factory=list)


def record(
    environment: Environment,
    commands: Sequence[str],
    mistakes: Sequence[bool],
    chat: ChatFormat,
    encode: Callable[[str], list[int]],
) -> Demonstrated:
    """Plays ``commands`` and writes the conversation as the collector would have, had the policy said them."""
    trajectory = Demonstrated(Request(-1, ""), "")

    def add(tokens: list[int], action: int, mistake: int = 0) -> None:
        trajectory.token_ids += tokens
        trajectory.action_mask += [action] * len(tokens)
        trajectory.mistake_mask += [mistake] * len(tokens)
        trajectory.logprobs += [0.0] * len(tokens)

    observation, _ = environment.reset()
    add(chat.opening(observation), 0)
    stop = min(chat.stop_ids)
    for command, mistake in zip(commands, mistakes, strict=True):
        action = [*encode(command), stop]
        add(action, int(not mistake), int(mistake))
        observation, _, _, _, _ = environment.step(command)
        trajectory.commands.append(command)
        if len(trajectory.commands) < len(commands):
            add(chat.turn(observation, action), 0)
    return trajectory


def imitate(
    model: Any,
    demonstrations: Sequence[Demonstrated],
    *,
    epochs: int,
    learning_rate: float,
    batch_size: int = 4,
    observation_weight: float = 1.0,
    seed: int = 0,
    on_step: Callable[[int, int, float], None] = lambda step, steps, loss: None,
) -> None:
    """Minimises the negative log-likelihood of the expert's action tokens.

    Matrices are trained by Muon (Jordan et al. 2024), which needs about half of AdamW's steps here; embeddings and
    gains by AdamW. Both rates warm up over 5 % of the steps and fall linearly over the last 60 %.

    Args:
        learning_rate: of AdamW; Muon's is `_MUON_RATE`.
        observation_weight: weight of the other tokens' likelihood. Predicting what rooms say teaches a model with
            random weights to copy names from its context long before the actions alone would.
        on_step: called with (step, steps, mean negative log-likelihood of an action token).
    """
    rng = np.random.default_rng(seed)
    lengths = [len(t.token_ids) for t in demonstrations]
    steps = -(-len(demonstrations) // batch_size) * epochs
    optimizers = _optimizers(model, learning_rate)
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda step: _rate(step / steps)) for o in optimizers]
    model.train()
    for done, group in enumerate(_batches(lengths, batch_size, epochs, rng), start=1):
        loss, total = _likelihoods(model, demonstrations, group, observation_weight)
        model.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        on_step(done, steps, float(loss.detach()))


_MUON_RATE = 0.02


def _optimizers(model: Any, learning_rate: float) -> list[torch.optim.Optimizer]:
    embedding = model.get_input_embeddings().weight
    matrices = [p for p in model.parameters() if p.ndim == 2 and p is not embedding]
    others = [p for p in model.parameters() if p.ndim != 2 or p is embedding]
    return [
        torch.optim.Muon(matrices, lr=_MUON_RATE, weight_decay=0.01),
        torch.optim.AdamW(others, lr=learning_rate, weight_decay=0.01, betas=(0.9, 0.98)),
    ]


def _rate(progress: float) -> float:
    return min(1.0, progress / 0.05 + 1e-3, max(0.02, (1 - progress) / 0.6))


def _batches(
    lengths: Sequence[int], batch_size: int, epochs: int, rng: np.random.Generator
) -> Iterator[list[int]]:
    """Batches of similar length, which waste little on padding, in shuffled order."""
    for _ in range(epochs):
        noisy = np.asarray(lengths) * (1 + 0.1 * rng.standard_normal(len(lengths)))
        order = np.argsort(noisy, kind="stable")
        groups = [order[i : i + batch_size].tolist() for i in range(0, len(order), batch_size)]
        for index in rng.permutation(len(groups)):
            yield groups[index]


def _likelihoods(
    model: Any, demonstrations: Sequence[Demonstrated], group: list[int], observation_weight: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(mean negative log-likelihood of action tokens, the same with the weighted other tokens' added)."""
    batch = pad_trajectories(demonstrations, group, model.device)
    ends = torch.tensor([len(demonstrations[i].token_ids) - 1 for i in group], device=model.device)
    real = torch.arange(batch.inputs.shape[1], device=model.device)[None] < ends[:, None]
    hidden = model.base_model(input_ids=batch.inputs, use_cache=False).last_hidden_state
    scores = linear_token_logprobs(
        hidden, model.get_output_embeddings().weight, batch.targets, action_mask=real
    )
    loss = -(scores * batch.action_mask).sum() / batch.action_mask.sum()
    others = real & ~batch.action_mask
    for row, i in enumerate(group):
        others[row, : len(demonstrations[i].token_ids) - 1] &= ~torch.tensor(
            demonstrations[i].mistake_mask[1:], dtype=torch.bool, device=model.device
        )
    return loss, loss - observation_weight * (scores * others).sum() / others.sum().clamp(min=1)
