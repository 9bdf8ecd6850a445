"""The documentation's examples run."""

import re
from pathlib import Path

import pytest

from spo_fast.envs.alfworld import AlfworldGame
from spo_fast.envs.protocol import Environment, TaskSet

ROOT = Path(__file__).resolve().parents[1]


def run(page):
    """The names that the page's first Python block defines, and its length in lines of code."""
    code = re.search(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S).group(1)
    names = {}
    exec(compile(code, page, "exec"), names)
    return names, sum(bool(line.strip()) for line in code.splitlines())


def test_an_environment_of_ones_own():
    names, lines = run("docs/environments.md")
    assert lines <= 32, "30 lines, the page says"
    tasks = names["GuessTasks"]()
    assert isinstance(tasks, TaskSet)
    games = [tasks.make(task_id) for task_id in ("7", "12")]
    assert all(isinstance(game, Environment) for game in games)
    for game in games:
        game.reset()
    steps = tasks.step(games, ["10", "10"])
    assert [step[0] for step in steps] == ["Lower.", "Higher."]
    assert games[0].step("7") == ("Yes!", 1.0, True, False, {"won": True})
    for _ in range(3):
        assert games[1].step("a dozen")[3] is False
    assert games[1].step("11") == ("Higher.", 0.0, False, True, {"won": False})
    assert {tasks.task_type(i) for i in tasks.task_ids} == {"one digit", "two digits"}


def test_alfworld():
    names, _ = run("docs/alfworld.md")
    assert isinstance(names["game"], AlfworldGame) and names["game"].steps == 1


def test_the_loss_in_ones_own_trainer():
    names, _ = run("README.md")
    assert names["out"].loss.isfinite() and names["logits"].grad.abs().sum() > 0
    assert names["raw"].tolist() == pytest.approx([1 - 3.5 / 9, -1.5 / 9])


def test_state_memory():
    names, _ = run("docs/state_memory.md")
    assert names["scores"][2] == 1 and names["scores"][0] < names["scores"][1]
    assert names["seen"].tolist() == [True, False]
    assert names["groups"].tolist() == [0, 0, 1]
