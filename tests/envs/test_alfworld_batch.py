"""Batches and task sets say what single games say."""

from __future__ import annotations

import multiprocessing
import random
import threading

import pytest

from spo_fast.envs.alfworld import TASK_TYPES, AlfworldBatch, AlfworldGame, AlfworldTasks
from spo_fast.envs.protocol import Environment, TaskSet
from tests.envs.small_games import kitchen

TEMPLATES = [AlfworldGame(kitchen(task_type)) for task_type in TASK_TYPES]


@pytest.mark.parametrize(("size", "threads"), [(0, 1), (1, 4), (7, 1), (300, 1), (300, 4)])
def test_a_batch_equals_its_games(size: int, threads: int) -> None:
    games = [TEMPLATES[i % len(TEMPLATES)].copy() for i in range(size)]
    twins = [game.copy() for game in games]
    batch = AlfworldBatch(games, threads=threads)
    assert len(batch) == size and batch.games == games
    observations, infos = batch.reset()
    assert list(zip(observations, infos, strict=True)) == [twin.reset() for twin in twins]
    rng = random.Random(size)
    for _ in range(12):
        commands = [rng.choice([*info["admissible_commands"], "dance"]) for info in infos]
        observations, rewards, terminated, truncated, infos = batch.step(commands)
        got = list(zip(observations, rewards, terminated, truncated, infos, strict=True))
        assert got == [twin.step(command) for twin, command in zip(twins, commands, strict=True)]


def test_a_batch_that_fails_changes_nothing() -> None:
    games = [TEMPLATES[0].copy(), TEMPLATES[1].copy()]
    before = [game.snapshot() for game in games]
    with pytest.raises(ValueError, match=r"games\[1\] is in the batch twice"):
        AlfworldBatch([games[0], games[0]])
    batch = AlfworldBatch(games)
    with pytest.raises(ValueError, match="expected 2 commands, one a game, got 1"):
        batch.step(["look"])
    with pytest.raises(TypeError, match="must be a str"):
        batch.step(["look", 3])  # type: ignore[list-item]
    assert [game.snapshot() for game in games] == before


def test_several_python_threads_may_step_batches_of_their_own() -> None:
    def run(seed: int, out: list[object]) -> None:
        rng = random.Random(seed)
        batch = AlfworldBatch([TEMPLATES[i % 6].copy() for i in range(200)], threads=3)
        _, infos = batch.reset()
        for _ in range(20):
            step = batch.step([rng.choice(info["admissible_commands"]) for info in infos])
            infos = step[4]
        out.append(step)

    alone: list[object] = []
    run(1, alone)
    together: list[object] = []
    workers = [threading.Thread(target=run, args=(1, together)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert together == alone * 4


def test_one_game_in_two_threads_is_refused_or_serialised() -> None:
    games = [TEMPLATES[0].copy() for _ in range(2000)]
    errors: list[str] = []

    def run() -> None:
        batch = AlfworldBatch(games)
        for _ in range(30):
            try:
                batch.step(["look"] * len(games))
            except RuntimeError as error:
                errors.append(str(error))

    workers = [threading.Thread(target=run) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all("in use by another thread" in error for error in errors)
    assert all(game.steps == 60 - len(errors) for game in games)


def first_looks(count: int) -> list[str]:
    return AlfworldBatch([TEMPLATES[0].copy() for _ in range(count)], threads=4).step(["look"] * count)[0]


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_a_forked_child_starts_threads_of_its_own() -> None:
    expected = first_looks(500)  # this process has its pool now
    with multiprocessing.get_context("fork").Pool(1) as children:
        assert children.apply_async(first_looks, (500,)).get(timeout=60) == expected


def test_tasks_are_a_task_set() -> None:
    tasks = AlfworldTasks([kitchen(task_type) for task_type in TASK_TYPES], max_steps=2)
    assert isinstance(tasks, TaskSet) and len(tasks) == 6
    assert [tasks.task_type(name) for name in tasks.task_ids] == list(TASK_TYPES)
    first, second = tasks.make(tasks.task_ids[0]), tasks.make(tasks.task_ids[0])
    assert isinstance(first, Environment)
    first.step("go to fridge 1")
    steps = tasks.step([second, first], ["look", "inventory"])
    assert [step[0] for step in steps] == [
        "You are in the middle of a room. Looking quickly around you, you see nothing.",
        "You are not carrying anything.",
    ]
    assert [step[3] for step in steps] == [False, True]
    with pytest.raises(ValueError, match="two have the id"):
        AlfworldTasks([kitchen(), kitchen()])


def test_ready_made_games_keep_their_own_state() -> None:
    game = AlfworldGame(kitchen())
    game.step("go to fridge 1")
    tasks = AlfworldTasks([game], max_steps=7)
    assert tasks.game(game.id).steps == 0 and tasks.make(game.id).max_steps == 7 and game.steps == 1
