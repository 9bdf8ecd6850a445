"""The tiled head of the compiled core against the product with all its logits."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spo_fast import linear_token_logprobs
from tests.kernels.test_linear_token_logprob import LargestTensor
from tests.tolerances import BFLOAT16_HEAD, FLOAT32

NAMES = ("hidden", "lm_head_weight", "bias")


def problem(dtype: torch.dtype = torch.float32, n: int = 11, v: int = 53, h: int = 16) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((n, h), (v, h), (v,))
    tensors = (0.5 * torch.randn(shape, generator=generator) for shape in shapes)
    return {name: x.to(dtype).requires_grad_() for name, x in zip(NAMES, tensors, strict=True)}


def outcome(p: dict[str, Tensor], ids: Tensor, upstream: Tensor, **options: Any) -> list[Tensor]:
    """Log-probs, entropies and the gradients of what requires one."""
    leaves = {k: x.detach().clone().requires_grad_(x.requires_grad) for k, x in p.items()}
    out = linear_token_logprobs(**leaves, token_ids=ids, return_entropy=True, **options)  # type: ignore[arg-type]
    torch.autograd.backward(out, [g.to(o.dtype) for g, o in zip(upstream, out, strict=True)])
    return [*(o.detach() for o in out), *(x.grad for x in leaves.values() if x.grad is not None)]


@settings(max_examples=60, deadline=None)
@given(
    chunks=st.tuples(st.sampled_from([None, 1, 4, 11, 100]), st.sampled_from([None, 1, 7, 32, 53, 60])),
    scale=st.sampled_from([1.0, 0.3]),
    softcap=st.sampled_from([None, 4.0]),
    bias=st.booleans(),
    mask=st.lists(st.booleans(), min_size=11, max_size=11),
    by_row=st.booleans(),
)
def test_tiles_do_not_change_the_result(
    chunks: Any, scale: float, softcap: float | None, bias: bool, mask: list[bool], by_row: bool
) -> None:
    """Any tiling, mask, scale, cap and temperature: the float64 reference, to float32."""
    p = problem()
    if not bias:
        del p["bias"]
    generator = torch.Generator().manual_seed(1)
    ids, upstream = torch.randint(53, (11,), generator=generator), torch.randn(2, 11, generator=generator)
    options: dict[str, Any] = {
        "temperature": torch.rand(11, generator=generator) + 0.5 if by_row else 0.8,
        "action_mask": torch.tensor(mask),
        "logit_scale": scale,
        "logit_softcap": softcap,
    }
    got = outcome(p, ids, upstream, backend="cpu", chunk_tokens=chunks[0], chunk_vocab=chunks[1], **options)
    exact = outcome({k: x.detach().double().requires_grad_() for k, x in p.items()}, ids, upstream, **options)
    for mine, want in zip(got, exact, strict=True):
        torch.testing.assert_close(mine.double(), want, atol=4 * FLOAT32, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(cpu_path: str, dtype: torch.dtype) -> None:
    p = problem(dtype)
    ids, upstream = torch.arange(11), torch.ones(2, 11)
    got = outcome(p, ids, upstream, backend="cpu", chunk_vocab=20)
    exact = outcome({k: x.detach().double().requires_grad_() for k, x in p.items()}, ids, upstream)
    for mine, want in zip(got, exact, strict=True):
        torch.testing.assert_close(mine.double(), want, atol=BFLOAT16_HEAD, rtol=BFLOAT16_HEAD)


@pytest.mark.parametrize("needed", list(itertools.product([False, True], repeat=3))[1:])
def test_each_subset_of_gradients(needed: tuple[bool, ...]) -> None:
    everything, some = problem(), problem()
    for x, need in zip(some.values(), needed, strict=True):
        x.requires_grad_(need)
    ids = torch.arange(11)
    for p in (everything, some):
        result = linear_token_logprobs(
            p["hidden"],
            p["lm_head_weight"],
            ids,
            bias=p["bias"],
            chunk_tokens=4,
            chunk_vocab=20,
            backend="cpu",
        )
        result.sum().backward()  # type: ignore[union-attr]
    for name, need in zip(NAMES, needed, strict=True):
        want = everything[name].grad
        assert want is not None
        assert torch.equal(some[name].grad, want) if need else some[name].grad is None  # type: ignore[arg-type]


def test_masked_rows_are_never_read_and_row_index_stands_for_the_mask() -> None:
    p, ids, mask = problem(), torch.arange(11), torch.arange(11) % 3 != 0
    upstream = torch.ones(2, 11)
    want = outcome(p, ids, upstream, action_mask=mask, backend="cpu", chunk_tokens=3)
    p["hidden"].data[~mask] = math.nan
    ids = ids.masked_fill(~mask, -100)
    index = mask.nonzero().squeeze(-1)
    for options in ({"action_mask": mask}, {"row_index": index}, {"row_index": index, "action_mask": mask}):
        got = outcome(p, ids, upstream.masked_fill(~mask, math.nan), **options, backend="cpu", chunk_tokens=3)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    for wrong in (torch.tensor([0, 0]), torch.tensor([11])):
        with pytest.raises(ValueError, match="row_index"):
            outcome(p, ids, upstream, row_index=wrong, backend="cpu")
    with pytest.raises(ValueError, match="token_ids: expected ids in"):
        outcome(p, ids, upstream, backend="cpu")


@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (2, 0, 3)])
def test_shapes(shape: tuple[int, ...]) -> None:
    hidden, weight = torch.randn(*shape, 4, requires_grad=True), torch.randn(7, 4, requires_grad=True)
    ids = torch.zeros(shape, dtype=torch.int64)
    for mask in (None, torch.zeros(shape)):
        out = linear_token_logprobs(hidden, weight, ids, action_mask=mask, return_entropy=True, backend="cpu")
        assert out[0].shape == out[1].shape == shape
        (out[0].sum() + out[1].sum()).backward()
        assert hidden.grad is not None and hidden.grad.shape == hidden.shape


def test_the_logits_of_all_tokens_never_exist() -> None:
    p = problem(n=64, v=512)
    with LargestTensor() as watch:
        out = linear_token_logprobs(
            p["hidden"], p["lm_head_weight"], torch.zeros(64, dtype=torch.int64), chunk_tokens=8, chunk_vocab=64,
            backend="cpu",
        )  # fmt: skip
        out.sum().backward()  # type: ignore[union-attr]
    assert watch.largest <= 512 * 16  # the gradient of the weight


def test_under_compile_and_second_derivatives() -> None:
    p, ids = problem(), torch.arange(11)

    def loss(h: Tensor, w: Tensor) -> Tensor:
        out = linear_token_logprobs(h, w, ids, action_mask=ids % 2, return_entropy=True, backend="cpu")
        return out[0].sum() + 0.1 * out[1].sum()

    leaves = (p["hidden"], p["lm_head_weight"])
    want = torch.autograd.grad(loss(*leaves), leaves)
    got = torch.autograd.grad(torch.compile(loss, fullgraph=True, backend="aot_eager")(*leaves), leaves)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    (gradient,) = torch.autograd.grad(loss(*leaves).square(), leaves[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="linear_token_logprobs: second derivatives"):
        gradient.sum().backward()
