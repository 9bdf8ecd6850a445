"""Where a run's policy comes from: a folder, or a tiny model that first imitates the expert."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from spo_fast.envs.alfworld import FILLER_WORDS, AlfworldGame, demonstration, vocabulary
from spo_fast.envs.protocol import TaskSet
from spo_fast.rollout.chat import ChatFormat
from spo_fast.train.config import TrainConfig
from spo_fast.train.imitation import Demonstrated, imitate, record
from spo_fast.train.progress import Progress
from spo_fast.train.tasks import imitation_games
from spo_fast.train.tiny_policy import make_model, make_tokenizer


def load_policy(folder: Path) -> tuple[Any, Any]:
    """(model, tokenizer) of a Hugging Face folder, on the GPU where there is one.

    In float32, whatever the file's type: a step of 1e-6 on a bfloat16 weight of 0.02 rounds to no step at all.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not (folder / "config.json").is_file():
        raise ValueError(f"model: expected a Hugging Face folder with a config.json, got {folder}")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    except Exception as error:  # whatever transformers, tokenizers and safetensors raise at a damaged file
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"model: {folder} cannot be loaded: {reason}") from error
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


def check_vocabulary(model: Any, tokenizer: Any, tasks: TaskSet) -> None:
    """Raises ValueError if the model cannot read its tokenizer's tokens, or say what the first tasks ask for.

    What they ask for is taken from the ``info["admissible_commands"]`` of environments that give it.
    """
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise ValueError(f"model: its tokenizer has {len(tokenizer)} tokens, its embedding only {rows} rows")
    for task in list(tasks.task_ids)[:8]:
        _, info = tasks.make(task).reset()
        for command in info.get("admissible_commands", []):
            ids = tokenizer.encode(command, add_special_tokens=False)
            said = tokenizer.decode(ids, skip_special_tokens=True)
            if said.lower().split() != command.lower().split():
                raise ValueError(
                    f"model: its vocabulary cannot say {command!r}, a command of the first games; it comes out as {said!r}"
                )


def warm_start(config: TrainConfig, progress: Progress) -> tuple[Any, Any]:
    """A tiny model that has imitated the expert, and its tokenizer."""
    settings = config.policy
    games = imitation_games(config.tasks, config.seed, settings.demonstrations)
    names = {name for game in games for name in game.entities.values()}
    tokenizer = make_tokenizer(vocabulary(), names=names, filler=FILLER_WORDS)
    model = make_model(tokenizer, settings, seed=config.seed)
    if not games:
        return model, tokenizer
    demonstrations = _demonstrations(games, config, tokenizer, progress)
    with progress.phase("imitate the expert", 0, "step") as bar:

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
    games: list[AlfworldGame], config: TrainConfig, tokenizer: Any, progress: Progress
) -> list[Demonstrated]:
    chat = ChatFormat(tokenizer, config.policy.system_prompt)
    rng = np.random.default_rng([config.seed, 77])

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    out = []
    with progress.phase("expert's episodes", len(games), "game") as bar:
        for game in games:
            shown = demonstration(game, rng, mistakes=config.policy.mistakes)
            if shown is not None:
                out.append(record(game, shown.commands, shown.mistakes, chat, encode))
            bar.update()
    if not out:
        raise ValueError(f"demonstrations: the expert won none of {len(games)} games")
    return out
