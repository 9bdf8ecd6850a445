"""Whole runs, small."""

import dataclasses
import json

import pytest
import torch

from spo_fast.envs.alfworld import generate_games, save_games
from spo_fast.train.policy import load_policy
from spo_fast.train.trainer import train

from .conftest import SMALL


def metrics(folder):
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.endswith("_s")} for line in lines]


def with_parts(config=SMALL, **parts):
    changed = {name: dataclasses.replace(getattr(config, name), **options) for name, options in parts.items()}
    return dataclasses.replace(config, **changed)


def test_a_run_repeats_by_its_seed(small_run, tmp_path):
    folder, _ = small_run
    again, other = tmp_path / "again", tmp_path / "other"
    train(dataclasses.replace(SMALL, output=again), quiet=True)
    train(dataclasses.replace(SMALL, output=other, seed=1), quiet=True)
    assert len(metrics(again)) == SMALL.optimisation.updates
    assert metrics(again) == metrics(folder) != metrics(other)


@pytest.mark.parametrize("at_publication", ["join", "discard"])
@pytest.mark.parametrize("algorithm", ["spo", "spo++"])
def test_both_algorithms_run(tmp_path, algorithm, at_publication):
    config = with_parts(rollout={"at_publication": at_publication}, optimisation={"optimizer_steps": 2})
    summary = train(dataclasses.replace(config, algorithm=algorithm, output=tmp_path / "run"), quiet=True)
    assert summary.algorithm == algorithm and summary.after["all"].episodes == SMALL.tasks.eval_tasks
    stale = [line["staleness_mean"] for line in metrics(tmp_path / "run")]
    assert stale[0] == 0 and (max(stale) > 0) == (at_publication == "join")


def test_a_folder_of_games(tmp_path):
    for split, n in (("train", 5), ("valid_unseen", 3)):
        save_games(generate_games(n, seed=4, split=split), tmp_path / "games")
    config = with_parts(tasks={"games": tmp_path / "games", "train_tasks": 384, "eval_tasks": 0})
    summary = train(dataclasses.replace(config, output=tmp_path / "run"), quiet=True)
    assert summary.after["all"].episodes == 3


def test_a_folder_that_holds_a_run_is_refused(small_run):
    folder, _ = small_run
    before = metrics(folder)
    with pytest.raises(ValueError, match="output"):
        train(dataclasses.replace(SMALL, output=folder), quiet=True)
    assert metrics(folder) == before


def test_a_half_precision_model_is_trained_in_float32(small_run, tmp_path):
    folder, _ = small_run
    model, tokenizer = load_policy(folder / "model")
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert {p.dtype for p in load_policy(tmp_path)[0].parameters()} == {torch.float32}


class Echo:
    """Won by saying "look"."""

    def reset(self):
        return "You are in a room.", {}

    def step(self, command):
        return "Nothing happens.", float(command == "look"), True, False, {"won": command == "look"}


class Echoes:
    task_ids = ("a", "b", "c", "d", "e")

    def task_type(self, task_id):
        return "echo"

    def make(self, task_id):
        return Echo()

    def step(self, environments, commands):
        return [
            environment.step(command) for environment, command in zip(environments, commands, strict=True)
        ]


def test_tasks_of_ones_own(small_run, tmp_path):
    config = dataclasses.replace(
        with_parts(policy={"model": small_run[0] / "model"}), output=tmp_path / "run"
    )
    summary = train(config, tasks=Echoes(), held_out=Echoes(), quiet=True)
    assert summary.after["echo"].episodes == 5
    with pytest.raises(ValueError, match="both or neither"):
        train(config, tasks=Echoes(), quiet=True)
    with pytest.raises(ValueError, match=r"policy\.model"):
        train(SMALL, tasks=Echoes(), held_out=Echoes(), quiet=True)
