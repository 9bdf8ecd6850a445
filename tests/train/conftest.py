"""A run that takes seconds."""

import dataclasses
from pathlib import Path

import pytest

from spo_fast.train import trainer
from spo_fast.train.config import (
    ObjectiveConfig,
    OptimisationConfig,
    PolicyConfig,
    RolloutConfig,
    TaskConfig,
    TrainConfig,
)

SMALL = TrainConfig(
    threads=1,  # their number decides the last bits, and PyTorch keeps it for the tests that follow
    tasks=TaskConfig(train_tasks=6, eval_tasks=7, max_steps=5),
    policy=PolicyConfig(hidden_size=32, layers=1, demonstrations=8, demonstration_epochs=1),
    rollout=RolloutConfig(slots=4, max_action_tokens=6),
    optimisation=OptimisationConfig(updates=2, prompts_per_step=4),
    objective=ObjectiveConfig(initial_rollouts=1),
)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    """(folder of a finished run, the episodes of the evaluation that ended it)."""
    episodes = []
    evaluate = trainer.evaluate

    def spy(*args, phase, **kwargs):
        played = evaluate(*args, phase=phase, **kwargs)
        if phase == "evaluate after":
            episodes.extend(played)
        return played

    folder: Path = tmp_path_factory.mktemp("runs") / "small"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "evaluate", spy)
        trainer.train(dataclasses.replace(SMALL, output=folder), quiet=True)
    return folder, episodes
