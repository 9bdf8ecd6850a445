"""What ``spo-fast doctor`` says: what is installed, which kernels can run, what is missing and what installs it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys
from dataclasses import dataclass

import numpy as np

from spo_fast import _core
from spo_fast._extras import MODULES, install_line

_WHAT_FOR = {
    "train": "spo-fast train, eval, play, report; the operators on tensors",
    "alfworld": "the public ALFWorld engine",
}


@dataclass(frozen=True)
class Finding:
    """A line of the examination.

    Attributes:
        good: it is as it should be.
        needed: training is impossible without it.
    """

    name: str
    good: bool
    text: str
    needed: bool = False

    def __str__(self) -> str:
        return f"{'ok' if self.good else 'MISSING' if self.needed else '-':<8} {self.name:<22} {self.text}"


def examine() -> list[Finding]:
    """Looks at this machine and this environment; imports PyTorch if it is there, trains nothing."""
    findings = [
        Finding("python", True, f"{platform.python_version()} at {sys.executable}", needed=True),
        Finding("numpy", True, np.__version__, needed=True),
        Finding(
            "spo_fast", True, f"{_version('spo-fast')}, kernels for CPUs: {_core.cpu_path()}", needed=True
        ),
    ]
    for extra, modules in MODULES.items():
        findings += [_module(name, extra) for name in modules]
    return findings + _kernels()


def _module(name: str, extra: str) -> Finding:
    needed = extra == "train"
    if importlib.util.find_spec(name) is not None:
        return Finding(name, True, _version(name), needed)
    return Finding(name, False, f"for {_WHAT_FOR[extra]}: {install_line(extra)}", needed)


def _kernels() -> list[Finding]:
    """Which backends of the operators can run here."""
    if importlib.util.find_spec("torch") is None:
        return [Finding("backends", False, "none: the operators need torch", needed=True)]
    import torch

    cuda = torch.cuda.is_available()
    device = torch.cuda.get_device_name() if cuda else "no GPU that this PyTorch can use"
    triton = importlib.util.find_spec("triton") is not None
    return [
        Finding("threads", True, f"{torch.get_num_threads()} of PyTorch's"),
        Finding("gpu", cuda, device),
        Finding("backend 'reference'", True, "everywhere"),
        Finding("backend 'cpu'", True, f"on CPU tensors, {_core.cpu_path()}"),
        Finding("backend 'triton'", cuda and triton, "on GPU tensors" if cuda and triton else _no_triton(cuda, triton)),
    ]  # fmt: skip


def _no_triton(cuda: bool, triton: bool) -> str:
    missing = [*([] if cuda else ["a GPU"]), *([] if triton else ["triton (pip install triton)"])]
    return f"needs {' and '.join(missing)}"


def _version(module: str) -> str:
    try:
        return importlib.metadata.version(module.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError:
        return "installed"
