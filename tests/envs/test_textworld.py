"""The public engine behind our protocol. Where it is not installed, only what needs no engine is tested."""

import importlib.util
import os
import sys

import pytest

from spo_fast.envs.alfworld import AlfworldGame, AlfworldTasks, expert_plan, generate_games, save_games
from spo_fast.envs.alfworld.textworld import TextworldError, TextworldGame, TextworldTasks
from spo_fast.envs.protocol import Environment, TaskSet
from tests.envs.small_games import kitchen

needs_engine = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("alfworld", "textworld", "fast_downward")),
    reason="the public engine is not installed: pip install 'spo_fast[alfworld]'",
)


@pytest.fixture(scope="module")
def games():
    return generate_games(3, 21, receptacles=(5, 6), objects=(4, 6))


@pytest.mark.parametrize("make", [lambda game: TextworldGame(game), lambda game: TextworldTasks([game])])
def test_without_the_extra_one_line_says_what_to_install(make, games, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "textworld" else object())
    with pytest.raises(ImportError) as raised:
        make(games[0])
    assert str(raised.value) == (
        "the public ALFWorld engine needs textworld, which is missing: pip install 'spo_fast[alfworld]'"
    )


@needs_engine
def test_a_walkthrough_is_answered_as_by_our_engine(games):
    theirs, ours = TextworldGame(games[0]), AlfworldGame(games[0])
    assert isinstance(theirs, Environment)
    assert (theirs.id, theirs.gamefile, theirs.task_type) == (ours.id, ours.gamefile, ours.task_type)
    assert theirs.reset() == ours.reset()
    for command in ["", "sing", *games[0]["walkthrough"], "inventory"]:
        assert theirs.step(command) == ours.step(command)
    assert theirs.reset() == ours.reset()


@needs_engine
def test_a_file_is_played_and_its_name_reported(games, tmp_path):
    (path,) = save_games(games[1:2], tmp_path)
    theirs, ours = TextworldGame(path), AlfworldGame(path)
    assert (theirs.id, theirs.gamefile, theirs.task_type) == (ours.id, str(path), ours.task_type)
    assert theirs.reset() == ours.reset()


@needs_engine
def test_episodes_are_truncated_as_ours(games):
    theirs, ours = TextworldGame(games[0], max_steps=2), AlfworldGame(games[0], max_steps=2)
    theirs.reset(), ours.reset()
    for _ in range(3):
        assert theirs.step("look") == ours.step("look")


@needs_engine
def test_state_keys_tell_the_same_states_apart(games):
    theirs, ours = TextworldGame(games[0]), AlfworldGame(games[0])
    theirs.reset(), ours.reset()
    keys = [(theirs.state_key, ours.state_key)]
    for command in ["look", *games[0]["walkthrough"]]:
        theirs.step(command), ours.step(command)
        keys.append((theirs.state_key, ours.state_key))
    assert len({a for a, _ in keys}) == len({b for _, b in keys}) == len(set(keys)) == len(keys) - 1


@needs_engine
def test_the_caller_is_left_alone(games):
    before = list(sys.argv), os.getcwd()
    with_engine = TextworldGame(games[0])
    with_engine.reset()
    assert (list(sys.argv), os.getcwd()) == before
    assert "textworld" not in sys.modules


@needs_engine
def test_a_closed_game_says_so(games):
    game = TextworldGame(games[0])
    game.reset()
    game.close()
    with pytest.raises(TextworldError, match=f"{games[0]['id']}: the game is closed"):
        game.step("look")


@needs_engine
def test_a_slow_engine_is_given_up(games):
    with pytest.raises(TextworldError, match=f"{games[0]['id']}: no answer within 0.01 s"):
        TextworldGame(games[0], timeout=0.01)


@needs_engine
def test_a_game_that_cannot_be_loaded_is_named():
    game = kitchen()
    game["pddl_problem"] = game["pddl_problem"].replace("(:goal", "(:goals")
    with pytest.raises(TextworldError, match=game["id"]):
        TextworldGame(game).reset()


@needs_engine
def test_tasks_are_those_of_our_engine(games):
    theirs, ours = TextworldTasks(games, max_steps=30), AlfworldTasks(games, max_steps=30)
    assert isinstance(theirs, TaskSet)
    assert theirs.task_ids == ours.task_ids and len(theirs) == len(ours)
    assert [theirs.task_type(i) for i in theirs.task_ids] == [ours.task_type(i) for i in ours.task_ids]
    with pytest.raises(KeyError):
        theirs.make("train/unknown/game")
    pairs = [(theirs.make(i), ours.make(i)) for i in (*theirs.task_ids, theirs.task_ids[0])]
    for a, b in pairs:
        assert a.reset() == b.reset()
    plans = [expert_plan(b) for _, b in pairs]
    for commands in zip(*(plan[:4] for plan in plans), strict=True):
        assert theirs.step([a for a, _ in pairs], commands) == ours.step([b for _, b in pairs], commands)
    theirs.close()
    with pytest.raises(TextworldError, match="closed"):
        pairs[0][0].step("look")


@needs_engine
def test_a_game_lost_with_its_worker_leaves_the_others(games):
    tasks = TextworldTasks(games[:2], processes=2)
    lost, kept = (tasks.make(i) for i in tasks.task_ids)
    lost.reset(), kept.reset()
    lost._process.close()
    with pytest.raises(TextworldError, match=lost.id):
        tasks.step([lost, kept], ["look", "look"])
    assert kept.steps == 1
    again = tasks.make(lost.id)
    assert again.reset() == AlfworldGame(games[0]).reset()


@needs_engine
def test_arguments_of_tasks(games):
    with pytest.raises(ValueError, match="two have the id"):
        TextworldTasks([games[0], games[0]])
    with pytest.raises(ValueError, match="processes: expected 1 or more, got 0"):
        TextworldTasks(games, processes=0)
    tasks = TextworldTasks(games)
    with pytest.raises(TypeError, match=r"environments\[0\]: expected a TextworldGame"):
        tasks.step([AlfworldGame(games[0])], ["look"])
    with pytest.raises(ValueError, match="commands: expected 0"):
        tasks.step([], ["look"])
