"""A finished run's policy plays again: the same games and words by the same seed, others where asked."""

import json
import shutil

import pytest

from spo_fast.cli import main
from spo_fast.envs.alfworld import generate_games, save_games
from spo_fast.train import EvalConfig, eval_run, evaluate_run


@pytest.fixture
def played(monkeypatch):
    """The episodes of the evaluations made in the test, a list each."""
    out = []

    def spy(trajectories):
        out.append(trajectories)
        return rates(trajectories)

    rates = eval_run.rates
    monkeypatch.setattr(eval_run, "rates", spy)
    return out


def said(trajectories):
    return [(t.request.task_id, t.commands, t.outcome) for t in trajectories]


def test_it_repeats_the_evaluation_that_ended_the_run(small_run, played):
    folder, after = small_run
    result = evaluate_run(EvalConfig(folder), quiet=True)
    assert said(played[0]) == said(after)
    assert any(commands for _, commands, _ in said(after))
    summary = json.loads((folder / "summary.json").read_text())
    assert {kind: vars(rate) for kind, rate in result.success.items()} == summary["after"]
    assert (result.games, result.split, result.engine, result.seed) == (
        "generated",
        "valid_unseen",
        "native",
        0,
    )


def test_options_change_what_is_played(small_run, played):
    folder, after = small_run
    options = [
        {"seed": 1},
        {"seed": 1},
        {"tasks": 2, "max_steps": 3},
        {"split": "train"},
        {"temperature": 0.0, "slots": 1},
    ]
    for option in options:
        evaluate_run(EvalConfig(folder, **option), quiet=True)
    other, again, fewer, trained, greedy = map(said, played)
    assert other == again
    assert not {task for task, _, _ in other} & {task for task, _, _ in said(after)}
    assert len(fewer) == 2 and all(len(commands) <= 3 for _, commands, _ in fewer)
    assert len(trained) == 6 and all(task.startswith("train/") for task, _, _ in trained)
    assert [task for task, _, _ in greedy] == [task for task, _, _ in said(after)] and greedy != said(after)


def test_a_folder_of_games(small_run, played, tmp_path):
    folder, _ = small_run
    save_games(generate_games(3, 5, split="valid_seen"), tmp_path)
    for options in ({}, {"tasks": 2}):
        evaluate_run(EvalConfig(folder, games=tmp_path, split="valid_seen", **options), quiet=True)
    every, some = ({t.request.task_id for t in trajectories} for trajectories in played)
    assert len(every) == 3 and len(some) == 2 and some < every


def test_the_command(small_run, capsys, tmp_path):
    folder, _ = small_run
    file = tmp_path / "new" / "result.json"
    assert main(["eval", str(folder), "--tasks", "6", "--max-steps", "2", "--json", str(file)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["success", "on", "valid_unseen", "rate", "[95", "%", "interval]", "games"]
    assert len(rows) == 7 and rows[-1].split() == ["all", "0.000", "[0.000,", "0.390]", "6"]
    result = json.loads(file.read_text())
    assert result["success"]["all"]["episodes"] == 6 and result["max_steps"] == 2


def test_without_the_option_nothing_is_written(small_run):
    folder, _ = small_run
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    evaluate_run(EvalConfig(folder, tasks=1, max_steps=1), quiet=True)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def damaged(name, content):
    def damage(folder):
        (folder / name).write_bytes(content)

    return damage


@pytest.mark.parametrize(
    ("damage", "options", "message"),
    [
        (lambda folder: shutil.rmtree(folder), [], "run: RUN is not the folder of a finished run, which holds a summary.json and a model/"),
        (lambda folder: shutil.rmtree(folder / "model"), [], "is not the folder of a finished run"),
        (lambda folder: (folder / "config.json").unlink(), [], "RUN: not a run folder, it has no config.json"),
        (damaged("config.json", b"{"), [], "RUN/config.json: Expecting property name"),
        (damaged("config.json", b'{"sed": 1}'), [], "RUN/config.json: sed: no such setting; did you mean 'seed'?"),
        (damaged("config.json", b'{"seed": -1}'), [], "RUN/config.json: seed: expected at least 0, got -1"),
        (damaged("model/config.json", b"{"), [], "model: RUN/model cannot be loaded: "),
        (damaged("model/model.safetensors", b"\0" * 9), [], "model: RUN/model cannot be loaded: "),
        (damaged("model/tokenizer.json", b"[]"), [], "model: RUN/model cannot be loaded: "),
        (None, ["--tasks", "-1", "--temperature", "-0.5"], "tasks: expected at least 0, got -1; temperature: expected at"),
        (None, ["--tasks", "0"], "tasks: 0 (all of a folder) needs games; generated games have no end"),
        (None, ["--max-tokens", "5"], "max_tokens: expected more than max_action_tokens (6), got 5"),
        (None, ["--max-tokens", "20"], "exceeds 20"),
        (None, ["--games", "RUN/nowhere"], "RUN/nowhere is not a folder"),
        (None, ["--games", "RUN"], "no game.tw-pddl of the split 'valid_unseen' under RUN"),
        (None, ["--json", "RUN"], "json: expected a file to write, got the folder RUN"),
        (None, ["--json", "RUN/config.json/x"], "File exists: 'RUN/config.json'"),
    ],
)  # fmt: skip
def test_what_cannot_be_played_is_one_sentence(small_run, tmp_path, capsys, damage, options, message):
    folder = tmp_path / "run"
    shutil.copytree(small_run[0], folder)
    if damage is not None:
        damage(folder)
    assert main(["eval", str(folder), *(option.replace("RUN", str(folder)) for option in options)]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("spo-fast: ") and message.replace("RUN", str(folder)) in told
