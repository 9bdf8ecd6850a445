"""token_logprobs: forward, entropy, and forward with backward, fresh and in place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.harness import OURS, compare
from benchmarks.peers import logprobs as peers
from spo_fast import token_logprobs
from tests.tolerances import LOGPROB_LARGE_VOCABULARY

NUMBERS = 1 << 24  # logits of a task: beyond the caches


def problem(vocabulary: int, dtype: str, share: float) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, ids and a mask whose set rows lie together, as responses do."""
    generator = torch.Generator().manual_seed(0)
    n = max(8, NUMBERS // vocabulary)
    logits = (3 * torch.randn(n, vocabulary, generator=generator)).to(getattr(torch, dtype))
    return logits, torch.randint(vocabulary, (n,), generator=generator), torch.arange(n) < share * n


def case(vocabulary: int, dtype: str, share: float) -> dict[str, Any]:
    return {"vocabulary": vocabulary, "dtype": dtype, "mask_share": share}


def test_forward(
    benchmark: Any, request: pytest.FixtureRequest, vocabulary: int, dtype: str, share: float
) -> None:
    logits, ids, mask = problem(vocabulary, dtype, share)
    scorers: dict[str, Any] = {OURS: token_logprobs, **peers.available(compiled=share == 1)}
    some, exact = logits[:8], peers.eager(logits[:8].double(), ids[:8])
    errors = {
        name: float((score(some, ids[:8]) - exact).abs().max())
        for name, score in scorers.items()
        if name != "torch.compile"
    }
    given = None if share == 1 else mask
    work = {name: lambda s=score: s(logits, ids) for name, score in scorers.items()}
    work[OURS] = lambda: token_logprobs(logits, ids, action_mask=given)
    compare(
        benchmark, request, "log-prob forward", work, errors=errors, allowed=LOGPROB_LARGE_VOCABULARY,
        traffic=int(logits.nbytes * share), **case(vocabulary, dtype, share),
    )  # fmt: skip


def test_forward_with_entropy(
    benchmark: Any, request: pytest.FixtureRequest, vocabulary: int, dtype: str
) -> None:
    logits, ids, _ = problem(vocabulary, dtype, 1.0)
    work = {
        OURS: lambda: token_logprobs(logits, ids, return_entropy=True),
        "torch eager": lambda: (peers.eager(logits, ids), peers.entropy(logits)),
    }
    exact = peers.entropy(logits[:8].double())
    mine = token_logprobs(logits[:8], ids[:8], return_entropy=True)[1]
    theirs = peers.entropy(logits[:8])
    errors = {OURS: float((mine - exact).abs().max()), "torch eager": float((theirs - exact).abs().max())}
    compare(
        benchmark, request, "log-prob and entropy", work, errors=errors, allowed=1e-5,
        **case(vocabulary, dtype, 1.0),
    )  # fmt: skip


@pytest.mark.parametrize("output", ["fresh", "in place"])
def test_forward_backward(
    benchmark: Any, request: pytest.FixtureRequest, vocabulary: int, dtype: str, share: float, output: str
) -> None:
    logits, ids, mask = problem(vocabulary, dtype, share)
    given = None if share == 1 else mask

    def step(score: Any) -> Any:
        def run() -> Tensor | None:
            x = logits.detach().requires_grad_()
            score(x, ids).sum().backward()
            return x.grad

        return run

    theirs = {name: step(score) for name, score in peers.available(compiled=share == 1).items()}
    inplace = output == "in place"
    ours = step(lambda x, i: token_logprobs(x, i, action_mask=given, inplace_backward=inplace))
    compare(
        benchmark, request, f"log-prob forward and backward, {output}", {OURS: ours, **theirs}, rounds=5,
        **case(vocabulary, dtype, share),
    )  # fmt: skip
