"""The loss alone, and from logits to their gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.harness import OURS, compare
from benchmarks.peers import logprobs as peers
from benchmarks.test_token_logprob import case, problem
from spo_fast import SPOLoss, policy_loss


def test_loss_alone(benchmark: Any, request: pytest.FixtureRequest) -> None:
    """Forward and backward of 8 x 512 log-probs."""
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(8, 512, generator=generator) - 2
    lp = (old + 0.1 * torch.randn(8, 512, generator=generator)).requires_grad_()
    advantages, mask = torch.randn(8, generator=generator), torch.rand(8, 512, generator=generator) > 0.2

    def step(backend: Any) -> Any:
        def run() -> Tensor:
            lp.grad = None
            policy_loss(lp, old, advantages, mask, rollout_logprobs=old, backend=backend).loss.backward()
            assert lp.grad is not None
            return lp.grad

        return run

    work = {OURS: step("cpu"), "reference": step("reference")}
    error = float((work[OURS]() - work["reference"]()).abs().max())
    compare(benchmark, request, "loss alone, 8 x 512", work, errors={OURS: error}, allowed=1e-8, rounds=51)


@pytest.mark.parametrize("output", ["fresh", "in place"])
def test_logits_to_gradient(
    benchmark: Any, request: pytest.FixtureRequest, vocabulary: int, dtype: str, share: float, output: str
) -> None:
    """One pass against log-prob, loss and backward of each peer, whose loss is the reference."""
    logits, ids, mask = problem(vocabulary, dtype, share)
    mask, advantages = mask.unsqueeze(0), torch.ones(1)

    def ours() -> Tensor | None:
        x = logits.detach().unsqueeze(0).requires_grad_()
        loss = SPOLoss(inplace_backward=output == "in place")
        loss(logits=x, token_ids=ids.unsqueeze(0), advantages=advantages, action_mask=mask).loss.backward()
        return x.grad

    def step(score: Any) -> Any:
        def run() -> Tensor | None:
            x = logits.detach().requires_grad_()
            policy_loss(
                score(x, ids).unsqueeze(0), None, advantages, mask, backend="reference"
            ).loss.backward()
            return x.grad

        return run

    theirs = {name: step(score) for name, score in peers.available(compiled=share == 1).items()}
    compare(
        benchmark, request, f"logits to gradient, {output}", {OURS: ours, **theirs}, rounds=5,
        **case(vocabulary, dtype, share),
    )  # fmt: skip
