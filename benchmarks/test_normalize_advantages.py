"""normalize_advantages of 6,400 segments and a million tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.harness import OURS, compare
from spo_fast import normalize_advantages
from spo_fast.kernels.normalize_advantages import cpu


@pytest.mark.parametrize("kind", ["segments", "tokens"])
def test_normalize(
    benchmark: Any, request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(6400, 156, generator=generator)
    mask = torch.rand(6400, 156, generator=generator) > 0.3
    options: dict[str, Any] = {"action_mask": mask} if kind == "tokens" else {"lengths": mask.sum(-1)}
    advantages = tokens if kind == "tokens" else tokens[:, 0].contiguous()

    def plain() -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(cpu, "fits", lambda *_: False)
            return normalize_advantages(advantages, **options)

    work = {OURS: lambda: normalize_advantages(advantages, **options), "reference": plain}
    error = float((work[OURS]() - plain()).abs().max())
    compare(
        benchmark, request, f"normalisation, {kind}", work, errors={OURS: error}, allowed=1e-6, rounds=15,
        traffic=advantages.nbytes,
    )  # fmt: skip
