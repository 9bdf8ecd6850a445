"""TensorBoard and Weights & Biases get the metrics where they are wanted, and are never needed."""

import contextlib
import dataclasses
import importlib.util
import sys
import types

import pytest

from spo_fast.train import metric_writers as writers

from .conftest import SMALL


def wanting(**options):
    return dataclasses.replace(SMALL, record=dataclasses.replace(SMALL.record, **options))


@pytest.mark.parametrize("options", [{"tensorboard": True}, {"wandb": "a-project"}])
def test_a_missing_package_is_named_with_the_line_that_installs_it(options, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (package,) = options
    with pytest.raises(ImportError, match=f"record.{package} needs .* pip install {package}"):
        writers.check_metric_writers(wanting(**options))
    writers.check_metric_writers(SMALL)


def test_wandb_gets_every_line(tmp_path, monkeypatch):
    calls = []

    @contextlib.contextmanager
    def init(**options):
        calls.append(options)
        yield types.SimpleNamespace(log=lambda record, step: calls.append((step, record)))
        calls.append("closed")

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    config = wanting(wandb="a-project")
    with writers.metric_writers(config, tmp_path / "run", 1) as (write,):
        write({"step": 1, "reward": 0.5})
    options, logged, end = calls
    assert (options["project"], options["name"], options["resume"]) == ("a-project", "run", "allow")
    assert options["id"].startswith("run-")
    assert options["config"]["record"]["wandb"] == "a-project"
    assert logged == (1, {"step": 1, "reward": 0.5}) and end == "closed"


def test_tensorboard_gets_every_figure(tmp_path, monkeypatch):
    scalars = []

    class SummaryWriter(contextlib.nullcontext):
        def __init__(self, folder, purge_step):
            super().__init__(self)
            scalars.append((folder, purge_step))

        def add_scalar(self, *scalar):
            scalars.append(scalar)

    fake = types.SimpleNamespace(SummaryWriter=SummaryWriter)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    with writers.metric_writers(wanting(tensorboard=True), tmp_path, 4) as (write,):
        write({"step": 4, "reward": 0.5, "ess": 1.0})
    assert scalars == [(str(tmp_path / "tensorboard"), 4), ("reward", 0.5, 4), ("ess", 1.0, 4)]


def test_nothing_is_loaded_unasked(tmp_path):
    with writers.metric_writers(SMALL, tmp_path, 1) as none:
        assert none == []
