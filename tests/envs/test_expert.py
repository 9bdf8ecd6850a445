"""The expert's plans win; its demonstrations win without knowing more than they saw."""

from itertools import pairwise

import numpy as np
import pytest

from spo_fast.envs.alfworld import AlfworldGame, demonstration, expert_plan, generate_games
from tests.envs.small_games import kitchen
from tests.shared import real_games


def commands_of(game, rng):
    shown = demonstration(game, rng)
    return shown.commands if shown else []


def wins(game, commands):
    played = game.copy()
    played.reset()
    for command in commands:
        observation, _, terminated, _, _ = played.step(command)
        assert observation != "Nothing happens.", command
    return terminated


@pytest.fixture(scope="module")
def generated():
    return [AlfworldGame(g) for g in generate_games(300, 11, shared_locations=0.2)]


def test_plans_win_generated_games(generated):
    for game in generated:
        assert wins(game, expert_plan(game))


def test_plans_win_real_games_and_are_short():
    for mapping in real_games():
        game = AlfworldGame(mapping)
        plan = expert_plan(game)
        assert wins(game, plan)
        assert len(plan) <= len(mapping["walkthrough"])


def wins_with_the_last(game, commands):
    played = game.copy()
    played.reset()
    return [played.step(command)[2] for command in commands] == [False] * (len(commands) - 1) + [True]


def test_demonstrations_win_real_games():
    rng = np.random.default_rng(0)
    games = [AlfworldGame(mapping) for mapping in real_games()]
    shown = [demonstration(game, rng) for game in games]
    assert sum(d is not None for d in shown) >= 95
    for game, d in zip(games, shown, strict=True):
        assert d is None or (wins(game, d.commands) and wins_with_the_last(game, d.commands))


def test_a_demonstration_ends_with_the_win_even_an_early_one():
    """The kitchen's first apple lies on the countertop and in a cabinet: cleaned, it is clean in both."""
    game = AlfworldGame(kitchen("pick_clean_then_place_in_recep", "AppleType", "CabinetType"))
    rng = np.random.default_rng(0)
    shown = [demonstration(game, rng).commands for _ in range(30)]
    assert all(wins_with_the_last(game, commands) for commands in shown)
    assert {commands[-1].split()[0] for commands in shown} == {"clean", "move"}


def test_plan_starts_from_the_games_start(generated):
    game = generated[0].copy()
    game.step("look")
    before = game.snapshot()
    assert expert_plan(game) == expert_plan(generated[0])
    assert game.snapshot() == before


def test_demonstrations_win_and_vary(generated):
    rng = np.random.default_rng(0)
    shown = [demonstration(game, rng) for game in generated]
    assert sum(d is None for d in shown) < 5
    assert all(wins(game, d.commands) for game, d in zip(generated, shown, strict=True) if d)
    again = [demonstration(game, rng) for game in generated]
    assert sum(a != b for a, b in zip(shown, again, strict=True)) > 200
    plans = np.mean([len(expert_plan(game)) for game in generated])
    assert np.mean([len(d.commands) for d in shown if d]) > plans + 2, "searching must cost steps"


def test_mistakes_are_marked_and_made_good(generated):
    rng = np.random.default_rng(3)
    made = wrong_things = 0
    for game in generated[:150]:
        shown = demonstration(game, rng, mistakes=0.3)
        if shown is None:
            continue
        assert not shown.mistakes[-1]
        played = game.copy()
        played.reset()
        for i, (command, mistake) in enumerate(zip(shown.commands, shown.mistakes, strict=True)):
            observation, _, terminated, _, _ = played.step(command)
            made += mistake
            if mistake and observation != "Nothing happens.":
                thing, place = command.removeprefix("take ").split(" from ")
                assert shown.commands[i + 1] == f"move {thing} to {place}"
                wrong_things += 1
            assert mistake or observation != "Nothing happens."
            assert terminated == (i + 1 == len(shown.commands))
    assert made > 200 and wrong_things > 30


def test_demonstrations_say_only_what_they_saw(generated):
    """Every object in a command was in the text before."""
    rng = np.random.default_rng(1)
    for game in generated[:100]:
        played = game.copy()
        text = played.reset()[0]
        for command in commands_of(game, rng):
            words = command.split()
            if words[0] in ("take", "use"):
                assert f"{words[1]} {words[2]}" in text, command
            text += played.step(command)[0]


def test_a_search_that_takes_too_long_gives_nothing(generated):
    assert demonstration(generated[0], np.random.default_rng(0), max_steps=2) is None


def test_without_detours_the_search_follows_the_rooms_order(generated):
    """From its second place on, each place it goes to in order to look comes next in the description."""
    rng = np.random.default_rng(2)
    for game in generated[:50]:
        order = game.reset()[0].partition("you see ")[2].partition(".")[0].replace("and ", "").split(", a ")
        names = [name.removeprefix("a ") for name in order]
        first_steps = demonstration(game, rng, detours=0.0).commands
        taken = next(i for i, c in enumerate(first_steps) if c.startswith("take"))
        visits = [names.index(c.removeprefix("go to ")) for c in first_steps[:taken] if c.startswith("go to")]
        assert all((b - a) % len(names) >= 1 for a, b in pairwise(visits))
        assert sum((b - a) % len(names) for a, b in pairwise(visits)) < len(names)
