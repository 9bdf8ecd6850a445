"""A warm start: a policy with random weights learns to imitate the expert's episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from spo_fast.envs.protocol import Environment
from spo_fast.ops import linear_token_logprobs
from spo_fast.rollout.chat import ChatFormat
from spo_fast.rollout.collector import Request, Trajectory
from spo_fast.train.learner import pad_trajectories


def record(
    environment: Environment, commands: Sequence[str], chat: ChatFormat, encode: Callable[[str], list[int]]
) -> Trajectory:
    """Plays ``commands`` and writes the conversation as the collector would have, had the policy said them."""
    trajectory = Trajectory(Request(-1, ""), "")

    def add(tokens: list[int], action: int) -> None:
        trajectory.token_ids += tokens
        trajectory.action_mask += [action] * len(tokens)
        trajectory.logprobs += [0.0] * len(tokens)

    observation, _ = environment.reset()
    add(chat.opening(observation), 0)
    stop = min(chat.stop_ids)
    for i, command in enumerate(commands):
        action = [*encode(command), stop]
        add(action, 1)
        observation, reward, _, _, info = environment.step(command)
        trajectory.outcome = float(info.get("won", reward > 0))
        if i + 1 < len(commands):
            add(chat.turn(observation, action), 0)
    return trajectory


def imitate(
    model: Any,
    demonstrations: Sequence[Trajectory],
    *,
    epochs: int,
    learning_rate: float,
    batch_size: int = 16,
    observation_weight: float = 0.1,
    seed: int = 0,
    on_step: Callable[[int, int, float], None] = lambda step, steps, loss: None,
) -> None:
    """Minimises the negative log-likelihood of the expert's action tokens.

    Args:
        observation_weight: weight of the other tokens' likelihood. Predicting what rooms say teaches a model with
            random weights to copy names from its context long before the actions alone would.
        on_step: called with (step, steps, mean negative log-likelihood of an action token).
    """
    rng = np.random.default_rng(seed)
    lengths = [len(t.token_ids) for t in demonstrations]
    per_epoch = -(-len(demonstrations) // batch_size)
    steps = per_epoch * epochs
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=learning_rate, total_steps=steps, pct_start=0.1, cycle_momentum=False
    )
    model.train()
    done = 0
    for _ in range(epochs):
        # batches of similar length waste little on padding; their order is shuffled
        noisy = [
            length * (1 + 0.1 * x)
            for length, x in zip(lengths, rng.standard_normal(len(lengths)), strict=True)
        ]
        order = np.argsort(noisy, kind="stable")
        groups = [order[i : i + batch_size].tolist() for i in range(0, len(order), batch_size)]
        for index in rng.permutation(len(groups)):
            batch = pad_trajectories(demonstrations, groups[index], model.device)
            real = (
                torch.arange(batch.inputs.shape[1], device=model.device)[None]
                < torch.tensor([lengths[i] - 1 for i in batch.indices], device=model.device)[:, None]
            )
            hidden = model.base_model(input_ids=batch.inputs, use_cache=False).last_hidden_state
            scores = linear_token_logprobs(
                hidden, model.get_output_embeddings().weight, batch.targets, action_mask=real
            )
            actions = batch.action_mask.sum()
            loss = -(scores * batch.action_mask).sum() / actions
            others = real & ~batch.action_mask
            total = loss - observation_weight * (scores * others).sum() / others.sum().clamp(min=1)
            optimizer.zero_grad(set_to_none=True)
            total.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            done += 1
            on_step(done, steps, float(loss.detach()))
