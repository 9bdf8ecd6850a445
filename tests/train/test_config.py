import dataclasses
from pathlib import Path

import pytest

from spo_fast.train.config import PRESETS, ObjectiveConfig, OptimisationConfig, TaskConfig, TrainConfig


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_are_valid_and_survive_json(name):
    config = PRESETS[name]
    if name == "paper":  # its games are the user's
        config = dataclasses.replace(config, tasks=dataclasses.replace(config.tasks, games=Path("games")))
    config.validate()
    assert TrainConfig.from_json(config.to_json()) == config


def test_the_paper_preset_keeps_the_published_settings():
    paper = PRESETS["paper"]
    assert paper.optimisation.updates * paper.optimisation.prompts_per_step == 6400
    assert paper.objective.initial_rollouts * paper.tasks.train_tasks == 1024
    assert (paper.tasks.max_steps, paper.rollout.temperature) == (50, 1.0)
    assert (paper.optimisation.learning_rate, paper.optimisation.weight_decay) == (1e-6, 0.1)
    assert (paper.objective.rho, paper.objective.initial_mass, paper.objective.rollout_is_cap) == (
        0.875,
        8.0,
        2.0,
    )
    assert (paper.objective.clip_low, paper.objective.clip_high, paper.dual_clip) == (0.2, 0.28, 2.0)
    assert paper.advantage_measure == "action_token"


def test_algorithms_differ_where_they_should():
    spo = TrainConfig(algorithm="spo")
    assert (spo.dual_clip, spo.advantage_measure) == (10.0, "trajectory")
    assert TrainConfig(algorithm="spo", objective=ObjectiveConfig(dual_clip=3.0)).dual_clip == 3.0


def test_all_faults_in_one_message():
    config = TrainConfig(
        tasks=TaskConfig(max_steps=0),
        optimisation=OptimisationConfig(learning_rate=0.0, optimizer_steps=99),
        objective=ObjectiveConfig(rho=1.5, dual_clip=1.0),
        seed=-1,
    )
    with pytest.raises(ValueError) as error:
        config.validate()
    for part in (
        "tasks.max_steps: expected at least 1, got 0",
        "optimisation.learning_rate: expected more than 0, got 0.0",
        "optimizer_steps: expected at most prompts_per_step (64), got 99",
        "objective.rho: expected more than 0 and at most 1, got 1.5",
        "objective.dual_clip: expected more than 1, got 1.0",
        "seed: expected at least 0, got -1",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"optimisation": {"lerning_rate": 1}}',
            "optimisation.lerning_rate: no such setting; did you mean 'learning_rate'",
        ),
        ('{"seed": "x"}', "seed: expected int, got 'x'"),
        ('{"seed": true}', "seed: expected int, got True"),
        ('{"rollout": 3}', "rollout: expected a mapping, got int"),
        ('{"algorithm": "ppo"}', "algorithm: expected one of 'spo[+][+]', 'spo', got 'ppo'"),
    ],
)
def test_json_that_does_not_fit(text, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig.from_json(text)
