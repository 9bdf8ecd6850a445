"""The head in tiles against the product with all its logits, and Liger's chunks where Liger is installed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.harness import OURS, compare
from benchmarks.peers import logprobs as peers
from spo_fast import linear_token_logprobs


def liger(ids: Tensor, mask: Tensor) -> dict[str, Any]:
    """Liger's chunked loss, a sequence at a time, of hidden states and weight."""
    try:
        from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss
    except ImportError:
        return {}
    loss = LigerFusedLinearGRPOLoss(beta=0.0, compiled=False, use_ref_model=False, chunk_size=1)
    shape = (4, ids.numel() // 4)
    return {
        "Liger": lambda h, w: loss(h.view(*shape, -1), w, ids.view(shape), mask.view(shape), torch.ones(4))[0]
    }


def test_linear(benchmark: Any, request: pytest.FixtureRequest, vocabulary: int, share: float) -> None:
    """Forward and backward of 256 tokens, hidden size 256."""
    generator = torch.Generator().manual_seed(0)
    n, width = 256, 256
    hidden = torch.randn(n, width, generator=generator)
    weight = 0.05 * torch.randn(vocabulary, width, generator=generator)
    ids, mask = torch.randint(vocabulary, (n,), generator=generator), torch.arange(n) < share * n

    def step(score: Any) -> Any:
        def run() -> Tensor:
            h, w = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
            score(h, w).backward()
            assert h.grad is not None
            return h.grad

        return run

    scores: dict[str, Any] = {
        OURS: lambda h, w: linear_token_logprobs(h, w, ids, action_mask=mask).sum(),  # type: ignore[union-attr]
        "torch eager": lambda h, w: (peers.eager(h @ w.T, ids) * mask).sum(),
        **liger(ids, mask),
    }
    work = {name: step(score) for name, score in scores.items()}
    error = float((work[OURS]() - work["torch eager"]()).abs().max())
    compare(
        benchmark, request, "linear head forward and backward", work, errors={OURS: error}, allowed=1e-4, rounds=3,
        vocabulary=vocabulary, dtype="float32", mask_share=share,
    )  # fmt: skip
