"""A run that is stopped, killed, or out of disk goes on as if nothing had been; a damaged checkpoint is named."""

import dataclasses
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from spo_fast.cli import main
from spo_fast.train import trainer
from spo_fast.train.checkpoint import read_tensors, sorted_checkpoints
from spo_fast.train.learner import Learner, NonFiniteLossError
from spo_fast.train.policy import load_policy

from .killed_runs import LOGS, configuration, left_by

KILLS = int(os.environ.get("SPO_FAST_KILLS", "20"))  # make soak: 200
PARTS = ["state.json", "learner.safetensors", "tracker.record", "manifest.json"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    trainer.train(dataclasses.replace(configuration(0), output=folder), quiet=True)
    return folder


def interrupt_at(step):
    """Ctrl-C while update ``step`` is being made."""
    update = trainer.Trainer._update

    def interrupted(self, number):
        if number == step:
            raise KeyboardInterrupt
        return update(self, number)

    return interrupted


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The same run, stopped in update 6; its last checkpoint is of update 4."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.Trainer, "_update", interrupt_at(6))
        with pytest.raises(
            trainer.RunStopped, match=f"until update 4 is saved. To go on: .* --resume {folder}"
        ):
            trainer.train(dataclasses.replace(configuration(0), output=folder), quiet=True)
    return folder


@pytest.fixture
def copy(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "copy")


def test_a_stopped_run_ends_as_if_it_had_not_been(whole, copy):
    assert len((copy / "metrics.jsonl").read_text().splitlines()) == 5
    summary = trainer.resume(copy, quiet=True)
    assert left_by(copy) == left_by(whole)
    assert len(left_by(whole)["metrics"]) == 7 and all(left_by(whole)[name] for name in LOGS)
    assert trainer.resume(copy, quiet=True) == summary, "a finished run says what it said"


def test_the_latest_checkpoints_are_kept(whole, stopped):
    assert [path.name for path in sorted_checkpoints(stopped / "checkpoints")] == ["000002", "000004"]
    assert [path.name for path in sorted_checkpoints(whole / "checkpoints")] == ["000006", "000007"]


def remove(path):
    path.unlink()


def truncate(path):
    os.truncate(path, path.stat().st_size - 1)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [remove, truncate, flip])
@pytest.mark.parametrize("part", PARTS)
def test_a_damaged_part_is_named_and_nothing_changes(copy, part, damage):
    damage(copy / "checkpoints" / "000004" / part)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=part):
        trainer.resume(copy, quiet=True)
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("damage", [remove, truncate, flip])
def test_a_damaged_log_is_named(copy, damage):
    path = copy / "episodes.jsonl"
    kept = json.loads((copy / "checkpoints" / "000004" / "state.json").read_text())["logs"]["episodes"][
        "bytes"
    ]
    os.truncate(path, kept)  # what follows the checkpoint is made again, whatever it is
    damage(path)
    with pytest.raises(ValueError, match=r"episodes\.jsonl is damaged"):
        trainer.resume(copy, quiet=True)


def test_another_schema_is_refused(copy):
    manifest = copy / "checkpoints" / "000004" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema": 1', '"schema": 99'))
    with pytest.raises(ValueError, match="expected schema 1, got 99"):
        trainer.resume(copy, quiet=True)


def test_a_run_is_trained_by_one_process(copy):
    run, _ = trainer.RunFolder.open(copy)
    with pytest.raises(ValueError, match="another process is training this run"):
        trainer.resume(copy, quiet=True)
    run.close()


def test_tasks_of_another_run_are_refused(copy, monkeypatch):
    config = dataclasses.replace(configuration(0), seed=1)
    others = trainer._task_sets(config, None, None)
    monkeypatch.setattr(trainer, "_task_sets", lambda *_: others)
    before = (copy / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match="tasks: expected those"):
        trainer.resume(copy, quiet=True)
    assert (copy / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("damage", [remove, flip])
@pytest.mark.parametrize("part", ["tokenizer.json", "config.json", "model.safetensors"])
def test_what_a_checkpoint_builds_on_is_verified(copy, part, damage):
    damage(copy / "warm_start" / part)
    with pytest.raises(ValueError, match=f"warm_start/{part}"):
        trainer.resume(copy, quiet=True)


def test_a_changed_configuration_is_refused(copy):
    path = copy / "config.json"
    path.write_text(path.read_text().replace('"learning_rate": 0.001', '"learning_rate": 0.002'))
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        trainer.resume(copy, quiet=True)


def test_a_state_of_another_model_is_refused_and_changes_nothing(copy):
    model, _ = load_policy(copy / "warm_start")
    learner = Learner(model, configuration(0))
    state = read_tensors(copy / "checkpoints" / "000004" / "learner.safetensors")
    state.pop("torch_rng")
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    name = "optimizer.0.exp_avg"
    for wrong in (
        {name: torch.zeros(3)},
        {"model.more": torch.zeros(1)},
        {"optimizer.99.step": torch.tensor(0.0)},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong)).rpartition(".")[0]):
            learner.load_state_dict({**state, **wrong})
    with pytest.raises(ValueError, match=name):
        learner.load_state_dict({k: v for k, v in state.items() if k != name})
    assert all(torch.equal(tensor, before[k]) for k, tensor in learner.state_dict().items())
    learner.load_state_dict(state)
    assert {k for k in learner.state_dict()} == set(state)


def test_a_run_killed_before_its_last_report_gets_it(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    (folder / "report.html").unlink()
    (folder / ".report.html.x.tmp").write_text("of a killed process")
    trainer.resume(folder, quiet=True)
    assert (folder / "report.html").read_text() and not (folder / ".report.html.x.tmp").exists()


def test_a_folder_with_logs_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "episodes.jsonl").write_text("mine")
    with pytest.raises(ValueError, match=r"holds episodes\.jsonl of something else"):
        trainer.train(dataclasses.replace(configuration(0), output=tmp_path), quiet=True)
    assert (tmp_path / "episodes.jsonl").read_text() == "mine"


def test_a_full_disk_leaves_the_last_good_checkpoint(whole, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    save = trainer.save_checkpoint
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def on_a_full_disk(checkpoints, step, parts, keep):
        if step == 4:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
        try:
            save(checkpoints, step, parts, keep)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "save_checkpoint", on_a_full_disk)
        with pytest.raises(OSError, match=r"too large.*go on from there: spo-fast train --resume"):
            trainer.train(dataclasses.replace(configuration(0), output=folder), quiet=True)
    assert [path.name for path in sorted_checkpoints(folder / "checkpoints")] == ["000000", "000002"]
    trainer.resume(folder, quiet=True)
    assert left_by(folder) == left_by(whole)


def test_a_loss_that_is_not_finite_ends_the_run_with_the_batch(copy, monkeypatch):
    monkeypatch.setattr(trainer, "normalize_advantages", lambda raw, **_: np.full(len(raw), np.nan))
    with pytest.raises(NonFiniteLossError, match=r"the loss is nan.*nonfinite_batch\.json"):
        trainer.resume(copy, quiet=True)
    dump = json.loads((copy / "nonfinite_batch.json").read_text())
    assert len(dump["trajectories"]) == len(dump["advantages"]) == 2, (
        "one of two gradient steps on four episodes"
    )
    assert dump["trajectories"][0]["token_ids"] and np.isnan(dump["figures"]["loss"])
    assert main(["train", "--resume", str(copy)]) == 1


def test_resume_takes_no_other_option(copy, capsys):
    assert main(["train", "--resume", str(copy), "--updates", "9"]) == 1
    assert "--resume: a run goes on as it was configured" in capsys.readouterr().err
    assert main(["train", "--resume", str(copy / "nothing")]) == 1
    assert "not a run folder" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path, number):
    folder = tmp_path / "run"
    options = "--train-tasks 6 --eval-tasks 4 --max-steps 5 --hidden-size 32 --layers 1 --demonstrations 4 --updates 2000"
    command = [sys.executable, "-m", "spo_fast", "train", *options.split(), "--prompts-per-step", "4"]
    command += ["--optimizer-steps", "1", "--checkpoint-every", "1000", "--output", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not (folder / "metrics.jsonl").is_file() or not (folder / "metrics.jsonl").read_text():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        process.send_signal(number)
        _, said = process.communicate()
    assert process.returncode == 130
    steps = len((folder / "metrics.jsonl").read_text().splitlines())
    assert f"stopped; all until update {steps} is saved. To go on: spo-fast train --resume {folder}" in said
    assert sorted_checkpoints(folder / "checkpoints")[-1].name == f"{steps:06d}"


@pytest.mark.timeout(0)
def test_runs_killed_at_random_moments_end_as_if_they_had_not_been(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.train.killed_runs",
            str(KILLS),
            str(tmp_path),
            str(time.time_ns() % 10**6),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith(f"{KILLS} kills in ")
