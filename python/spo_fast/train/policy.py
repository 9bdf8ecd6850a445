"""Where a run's policy comes from: a folder, or a tiny model that first imitates the expert."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from spo_fast.envs.alfworld import demonstration, vocabulary
from spo_fast.rollout.chat import ChatFormat
from spo_fast.rollout.collector import Trajectory
from spo_fast.train.config import TrainConfig
from spo_fast.train.imitation import imitate, record
from spo_fast.train.progress import Progress
from spo_fast.train.tasks import demonstration_games
from spo_fast.train.tiny_policy import TinyPolicyConfig, make_model, make_tokenizer


def load_policy(folder: Path) -> tuple[Any, Any]:
    """(model, tokenizer) of a Hugging Face folder, on the GPU where there is one."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not folder.is_dir():
        raise ValueError(f"model: expected a folder with a causal LM, got {folder}")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


def warm_start(config: TrainConfig, progress: Progress) -> tuple[Any, Any]:
    """A tiny model that has imitated the expert, and its tokenizer."""
    settings = config.policy
    tokenizer = make_tokenizer(vocabulary())
    size = TinyPolicyConfig(
        hidden_size=settings.hidden_size, layers=settings.layers, feed_forward=3 * settings.hidden_size
    )
    model = make_model(tokenizer, size, seed=config.seed)
    if settings.demonstrations == 0:
        return model, tokenizer
    demonstrations = _demonstrations(
        config, ChatFormat(tokenizer, settings.system_prompt), tokenizer, progress
    )
    with progress.phase("imitate the expert", 1, "step") as bar:

        def on_step(step: int, steps: int, loss: float) -> None:
            bar.total = steps
            bar.update()
            bar.set_postfix(nll=f"{loss:.3f}", refresh=False)

        imitate(
            model,
            demonstrations,
            epochs=settings.demonstration_epochs,
            learning_rate=settings.imitation_learning_rate,
            seed=config.seed,
            on_step=on_step,
        )
    return model, tokenizer


def _demonstrations(
    config: TrainConfig, chat: ChatFormat, tokenizer: Any, progress: Progress
) -> list[Trajectory]:
    rng = np.random.default_rng([config.seed, 77])
    games = demonstration_games(config)
    out = []
    with progress.phase("expert's episodes", len(games), "game") as bar:
        for game in games:
            commands = demonstration(game, rng)
            bar.update()
            if commands is not None:
                out.append(
                    record(
                        game, commands, chat, lambda text: tokenizer.encode(text, add_special_tokens=False)
                    )
                )
    return out
