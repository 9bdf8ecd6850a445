"""The command that plays both engines side by side. Here ours stands in for the public one, so that it always runs."""

import json
import lzma

import pytest

from spo_fast.envs.alfworld import AlfworldGame, generate_games, parity, save_games
from spo_fast.envs.alfworld.textworld import TextworldError


class Same(AlfworldGame):
    """Our engine as its own reference."""

    def close(self):
        pass


class OtherObservation(Same):
    def step(self, command):
        observation, *rest = super().step(command)
        return (observation.replace("You pick up", "You take"), *rest)


class OtherReward(Same):
    def step(self, command):
        observation, reward, *rest = super().step(command)
        return (observation, 0.0 * reward, *rest)


class OtherOrder(Same):
    def step(self, command):
        *rest, info = super().step(command)
        return (*rest, {**info, "admissible_commands": info["admissible_commands"][::-1]})


class FewerCommands(Same):
    def reset(self):
        observation, info = super().reset()
        return observation, {**info, "admissible_commands": info["admissible_commands"][1:]}


class BlindKey(Same):
    @property
    def state_key(self):
        return b"same"


class Failing(Same):
    def step(self, command):
        raise TextworldError("it hung")


class Refusing(Same):
    def __init__(self, *arguments, **options):
        raise TextworldError("it does not load")


@pytest.fixture
def folder(tmp_path):
    save_games(generate_games(6, 2), tmp_path)
    return tmp_path


def run(monkeypatch, public, *arguments):
    monkeypatch.setattr(parity, "TextworldGame", public)
    return parity.main([str(a) for a in arguments])


def test_equal_engines_pass(monkeypatch, capsys, folder):
    assert run(monkeypatch, Same, "--games", folder, "--steps", 25) == 0
    said = capsys.readouterr().out
    assert said.startswith("6 of 6 games played, 24 runs, ")
    assert said.endswith("6 walkthroughs won; 0 differences\n")


@pytest.mark.parametrize(
    ("public", "message"),
    [
        (OtherObservation, "obs\n    ours:   'You pick up"),
        (OtherReward, "score\n    ours:   1\n    public: 0"),
        (OtherOrder, "admissible\n    ours:   ["),
        (FewerCommands, "admissible commands\n    only ours:   ["),
        (BlindKey, "the public engine was in this state before, with another state key of ours"),
        (Failing, "the public engine failed: it hung"),
        (Refusing, "only one engine loads it; public: it does not load"),
    ],
)
def test_a_difference_is_shown_with_its_place(monkeypatch, capsys, folder, public, message):
    assert run(monkeypatch, public, "--games", folder, "--limit", 2) == 1
    said = capsys.readouterr().out
    assert message in said and "The first difference: " in said
    assert said.count("The first difference") == 1


def test_runs_are_repeatable_and_varied():
    game = generate_games(1, 5)[0]
    commands = _Said()
    first = [commands.of(game, seed) for seed in (0, 0, 1)]
    assert first[0] == first[1] != first[2]
    runs = first[0]
    assert list(runs) == list(parity.RUNS)
    assert runs["walkthrough"] == game["walkthrough"] == runs["probe"][: len(game["walkthrough"])]
    assert len(runs["random"]) == 30 and len(runs["probe"]) == len(game["walkthrough"]) + 30


class _Said:
    """The commands that a comparison says."""

    def of(self, game, seed):
        pair = parity._Pair(AlfworldGame(game, None), Same(game, None))
        runs = {}
        for kind in parity.RUNS:
            rng = parity.random.Random(f"{seed} {kind}")
            rows, difference = pair.play(parity._commands(kind, game["walkthrough"], 30, rng))
            assert difference is None
            runs[kind] = [row["cmd"] for row in rows[1:]]
        return runs


def test_recordings(monkeypatch, capsys, tmp_path):
    file = tmp_path / "new" / "record.jsonl.xz"
    assert run(monkeypatch, Same, "--generated", 2, "--steps", 5, "--record", file) == 0
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    assert [row["id"] for row in rows] == [g["id"] for g in generate_games(2, 0, shared_locations=0.3)]
    for row in rows:
        assert [r["kind"] for r in row["runs"]] == list(parity.RUNS)
        start, *steps = row["runs"][0]["steps"]
        assert start["cmd"] is None and start["obs"].startswith("-= Welcome")
        assert [s["cmd"] for s in steps] == row["walkthrough"] and steps[-1]["won"]


def test_what_cannot_be_compared_is_said(monkeypatch, capsys, tmp_path):
    assert run(monkeypatch, Same, "--games", tmp_path) == 1
    assert "no game.tw-pddl under" in capsys.readouterr().err
    for arguments in (["--generated", 0], ["--games", tmp_path, "--record", "x"], []):
        with pytest.raises(SystemExit):
            run(monkeypatch, Same, *arguments)
    path = save_games(generate_games(1, 0), tmp_path)[0]
    path.write_text("{}")
    assert run(monkeypatch, Refusing, "--games", tmp_path) == 1
    assert capsys.readouterr().out.startswith("0 of 1 games played")
