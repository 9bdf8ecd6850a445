"""What the doctor finds, and its exit status."""

import importlib.util

import pytest

from spo_fast import _core, doctor
from spo_fast.cli import main


def test_all_is_well(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert f"kernels for CPUs: {_core.cpu_path()}" in said and "MISSING" not in said
    assert "backend 'cpu'" in said and "ok       torch" in said


def test_what_is_missing_is_named_with_the_line_that_installs_it(capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    assert main(["doctor"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("MISSING")]
    assert [line.split()[1] for line in lines] == ["torch", "backends"]
    assert "pip install 'spo_fast[train]'" in lines[0]


@pytest.mark.parametrize(
    ("cuda", "triton", "needs"), [(False, True, "a GPU"), (True, False, "pip install triton")]
)
def test_what_triton_kernels_lack(cuda, triton, needs):
    assert needs in doctor._no_triton(cuda, triton)


def test_wrong_usage(capsys):
    assert main(["doctor", "--help"]) == 0 and main(["doctor", "now"]) == 2
