"""A model that cannot do its job is refused before anything is computed."""

import dataclasses
import shutil

import pytest

from spo_fast.envs.alfworld import AlfworldTasks, generate_games
from spo_fast.train.policy import check_vocabulary, load_policy
from spo_fast.train.trainer import train

from .conftest import SMALL


@pytest.fixture(scope="module")
def policy(small_run):
    return load_policy(small_run[0] / "model")


class Wordy:
    """Asks for one command."""

    def __init__(self, command):
        self.command = command
        self.task_ids = ("a",)

    def make(self, task_id):
        return self

    def reset(self):
        return "", {"admissible_commands": [self.command]}


def test_the_vocabulary_must_hold_the_commands(policy):
    check_vocabulary(*policy, AlfworldTasks(generate_games(3, seed=5), max_steps=5))
    check_vocabulary(*policy, Wordy("Look"))
    with pytest.raises(
        ValueError, match=r"its vocabulary cannot say 'defenestrate the cat', a command of the first"
    ):
        check_vocabulary(*policy, Wordy("defenestrate the cat"))


def test_a_model_that_cannot_be_used_leaves_no_folder(small_run, tmp_path):
    shutil.copytree(small_run[0] / "model", tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"")
    config = dataclasses.replace(SMALL.policy, model=tmp_path / "model")
    with pytest.raises(ValueError, match="cannot be loaded"):
        train(dataclasses.replace(SMALL, policy=config, output=tmp_path / "run"), quiet=True)
    assert not (tmp_path / "run").exists()


def test_the_embedding_must_hold_the_vocabulary(policy):
    model, tokenizer = policy
    tokenizer.add_tokens(["defenestrate"])
    with pytest.raises(ValueError, match=r"its tokenizer has \d+ tokens, its embedding only \d+ rows"):
        check_vocabulary(model, tokenizer, Wordy("look"))
