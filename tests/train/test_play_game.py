"""A game in the terminal, by hand and by a policy."""

import pytest

from spo_fast.cli import main
from spo_fast.envs.alfworld import AlfworldGame, expert_plan, generate_games
from spo_fast.train import PlayConfig, play


def played(config, *lines):
    """(won, what the terminal showed) with these lines typed."""
    typed, shown = iter(lines), []

    def read(prompt):
        line = next(typed, None)
        if line is None:
            raise EOFError
        return line

    return play(config, read=read, show=shown.append), shown


def test_a_person_plays():
    won, shown = played(PlayConfig(), "?", "look", "q")
    assert not won and shown[-1] == "stopped"
    assert any(text.startswith("possible now:\n  ") and "  inventory" in text for text in shown)
    assert played(PlayConfig())[1][-1] == "stopped", "the end of the input stops the game"


def test_steps_run_out():
    won, shown = played(PlayConfig(max_steps=2), "look", "look")
    assert not won and shown[-1] == "not won: the steps are used up"


def test_a_game_is_won():
    config = PlayConfig(seed=3, game=1)
    _, shown = played(config)
    for game in generate_games(100, 3 * 3 + 1, split="valid_unseen", receptacles=(8, 12), objects=(6, 10)):
        if AlfworldGame(game).reset()[0] == shown[2]:
            won, shown = played(config, *expert_plan(AlfworldGame(game)))
            assert won and shown[-1] == "won"
            return
    pytest.fail("the game is none of those that its seed gives")


def test_a_policy_plays_the_same_game_the_same_way(small_run):
    folder, _ = small_run
    won, shown = played(PlayConfig(policy=folder, admissible=True))
    said = [text for text in shown if text.startswith("> ")]
    assert said and len(said) <= 5 and (won, shown) == played(PlayConfig(policy=folder, admissible=True))
    assert sum(text.startswith("possible now") for text in shown) == len(said)


def test_bad_input(small_run, tmp_path, capsys):
    with pytest.raises(ValueError, match="game: expected less than 7"):
        played(PlayConfig(policy=small_run[0], game=7))
    with pytest.raises(ValueError, match=r"policy: .* is not the folder of a finished run"):
        played(PlayConfig(policy=tmp_path))
    assert main(["play", "--games", str(tmp_path)]) == 1
    assert "no game.tw-pddl" in capsys.readouterr().err
