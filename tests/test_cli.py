"""The command: how it is called, what it says when something is wrong, what it needs."""

import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from spo_fast._extras import MODULES, require
from spo_fast.cli import main
from spo_fast.train import EvalConfig, PlayConfig, TrainConfig


def options_of(part):
    for f in dataclasses.fields(part):
        if dataclasses.is_dataclass(f.default):
            yield from options_of(f.default)
        else:
            yield f.name


@pytest.mark.parametrize(
    ("command", "kind"), [("train", TrainConfig), ("eval", EvalConfig), ("play", PlayConfig)]
)
def test_help_shows_every_option_and_needs_no_torch(command, kind):
    code = (
        f"import sys; from spo_fast.cli import main\ntry: main(['{command}', '--help'])\n"
        "finally: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stderr
    names = set(options_of(kind)) - {"run"}
    assert len(names) > 6
    assert {name for name in names if f"--{name.replace('_', '-')} " not in done.stdout} == set()


def test_help_shows_the_presets_and_their_defaults(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--preset", "paper", "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", "").split())
    assert "--preset {demo,paper}" in said and "those below are of 'paper'" in said
    assert "longest episode, in environment steps. (default: 50)" in said


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["train", "--larning-rate", "1"], "--learning-rate"),
        (["eval", "run", "--tempratur", "1"], "--temperature"),
    ],
)
def test_an_unknown_option_is_refused_with_a_near_one(arguments, near, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    said = capsys.readouterr().err
    assert "Unrecognized options" in said and near in said


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, ""),
        (["learn"], 2, "spo-fast: no command 'learn'"),
        (["train", "--preset", "huge"], 1, "--preset: expected one of demo, paper, got 'huge'"),
        (["train", "--updates", "-1", "--rho", "2"], 1, "updates: expected at least 0, got -1; objective.rho: "),
        (["train", "--resume"], 1, "--resume: expected a value, got none"),
        (["train", "--preset="], 1, "--preset: expected a value, got none"),
        (["train", "--output", __file__ + "/run"], 1, "output: expected a folder, got"),
        (["train", "--games", "nowhere"], 1, "nowhere is not a folder"),
    ],
)  # fmt: skip
def test_wrong_usage(arguments, status, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == status
    said = capsys.readouterr()
    assert message in said.err and (message or "usage:" in said.out)
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.parametrize("command", ["train", "eval"])
def test_without_the_extra_one_line_says_what_to_install(command, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("torch", "tyro") else 1)
    assert main([command, "run"]) == 1
    assert capsys.readouterr().err == (
        f"spo-fast: spo-fast {command} needs torch, tyro, which are missing: pip install 'spo_fast[train]'\n"
    )


def test_the_public_engine_names_its_own_extra(capsys, monkeypatch, tmp_path):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "textworld" else real(name))
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--engine", "textworld", "--train-tasks", "1", "--eval-tasks", "1"]) == 1
    said = capsys.readouterr().err
    assert "pip install 'spo_fast[alfworld]'" in said and "[train]" not in said
    assert list(tmp_path.iterdir()) == []


def test_extras_are_those_of_the_project():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib")
    project = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert {line.partition(">")[0] for line in extras["train"]} == set(MODULES["train"])
    assert MODULES.keys() <= extras.keys()
    require("this test", "train")


def test_names_of_the_training_package():
    code = "from spo_fast import TrainConfig; from spo_fast.train import TrainConfig as same, train; print(TrainConfig is same, callable(train))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True True\n", done.stderr


def test_a_run_without_output_gets_a_folder_of_its_own():
    named = TrainConfig(algorithm="spo", seed=3).with_output()
    assert named.output.parent == Path("runs")
    assert named.output.name.startswith("spo-seed3-2") and len(named.output.name) == len(
        "spo-seed3-20990101-120000"
    )
    assert named.with_output() == named


def test_a_run_is_configured_like_another(small_config, capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--config", str(small_config), "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", "").split())
    assert "--resume RUN goes on" in said
    assert "longest episode, in environment steps. (default: 17)" in said


def test_a_bad_configuration_is_named(small_config, capsys):
    small_config.write_text(small_config.read_text().replace("learning_rate", "larning_rate", 1))
    assert main(["train", "--config", str(small_config)]) == 1
    assert "larning_rate: no such setting; did you mean" in capsys.readouterr().err
    assert main(["train", "--config", str(small_config), "--preset", "demo"]) == 1
    assert "expected one of them, got both" in capsys.readouterr().err


@pytest.fixture
def small_config(tmp_path):
    tasks = dataclasses.replace(TrainConfig().tasks, max_steps=17)
    path = tmp_path / "config.json"
    path.write_text(dataclasses.replace(TrainConfig(), tasks=tasks, output=tmp_path).to_json())
    return path


def test_a_report_needs_runs(tmp_path, capsys):
    assert main(["report"]) == 1
    assert "runs: expected the folder of a run" in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 1
    assert "not a run folder" in capsys.readouterr().err
