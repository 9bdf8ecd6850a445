"""Every backend and code path that can run here, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spo_fast import _core
from spo_fast.kernels import token_logprob

MACHINES_OWN = _core.cpu_path()
CPU_PATHS = sorted({MACHINES_OWN, "portable"})


@pytest.fixture(params=CPU_PATHS)
def cpu_path(request: pytest.FixtureRequest) -> Iterator[str]:
    """The compiled core, on the instructions of this machine and on none but the common ones."""
    _core.choose_cpu_path(request.param)
    yield request.param
    _core.choose_cpu_path("")


@pytest.fixture(params=[*CPU_PATHS, "reference"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What backend="auto" computes with: the core on each of its code paths, and plain torch."""
    if request.param == "reference":
        monkeypatch.setattr(token_logprob.cpu, "DTYPES", ())
    else:
        _core.choose_cpu_path(request.param)
    yield request.param
    _core.choose_cpu_path("")
