"""linear_token_logprobs against token_logprobs of the product."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from spo_fast import linear_token_logprobs, token_logprobs
from tests.tolerances import BFLOAT16_HEAD, FLOAT64

OPTIONS: dict[str, Any] = {"temperature": 0.7, "logit_softcap": 4.0, "return_entropy": True}


def problem(dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {
        "hidden": torch.randn(2, 5, 6, dtype=dtype, requires_grad=True),
        "lm_head_weight": torch.randn(9, 6, dtype=dtype, requires_grad=True),
        "bias": torch.randn(9, dtype=dtype, requires_grad=True),
    }


IDS = torch.randint(9, (2, 5), generator=torch.Generator().manual_seed(1))
MASK = torch.tensor([[1, 0, 1, 1, 0], [0, 0, 1, 1, 1]])


@pytest.mark.parametrize("chunk", [None, 1, 3, 100])
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_equals_log_probs_of_the_product(chunk: int | None, scale: float) -> None:
    p, q = problem(), problem()
    got = linear_token_logprobs(
        p["hidden"],
        p["lm_head_weight"],
        IDS,
        bias=p["bias"],
        action_mask=MASK,
        logit_scale=scale,
        chunk_tokens=chunk,
        **OPTIONS,
    )
    logits = scale * (q["hidden"] @ q["lm_head_weight"].T + q["bias"])
    want = token_logprobs(logits, IDS, action_mask=MASK, **OPTIONS)
    upstream = torch.randn(2, 2, 5, dtype=torch.float64)
    for result in (got, want):
        torch.autograd.backward(result, list(upstream))
    for a, b in (*zip(got, want, strict=True), *((p[k].grad, q[k].grad) for k in p)):
        torch.testing.assert_close(a, b, atol=FLOAT64, rtol=FLOAT64)


def test_gradcheck() -> None:
    p = problem()
    assert torch.autograd.gradcheck(
        lambda h, w, b: linear_token_logprobs(h, w, IDS, bias=b, action_mask=MASK, chunk_tokens=2, **OPTIONS),
        tuple(p.values()),
    )


@pytest.mark.parametrize("needed", list(itertools.product([False, True], repeat=3))[1:])
def test_each_subset_of_gradients(needed: tuple[bool, ...]) -> None:
    everything, some = problem(), problem()
    for x, need in zip(some.values(), needed, strict=True):
        x.requires_grad_(need)
    for p in (everything, some):
        result = linear_token_logprobs(p["hidden"], p["lm_head_weight"], IDS, bias=p["bias"], chunk_tokens=4)
        assert isinstance(result, Tensor)
        result.sum().backward()
    for name, need in zip(some, needed, strict=True):
        if need:
            assert some[name].grad is not None and torch.equal(some[name].grad, everything[name].grad)  # type: ignore[arg-type]
        else:
            assert some[name].grad is None


def test_masked_rows_are_never_read() -> None:
    results = []
    for poison in (False, True):
        p = problem(torch.float32)
        hidden, ids = p["hidden"].detach().clone(), IDS.clone()
        upstream = torch.ones(2, 5)
        if poison:
            hidden[MASK == 0], ids[MASK == 0], upstream[MASK == 0] = math.nan, -100, math.nan
        hidden.requires_grad_()
        result = linear_token_logprobs(hidden, p["lm_head_weight"], ids, action_mask=MASK)
        assert isinstance(result, Tensor)
        result.backward(upstream)
        results.append((result, hidden.grad, p["lm_head_weight"].grad))
    for a, b in zip(*results, strict=True):
        assert a is not None and b is not None and torch.equal(a, b)
    assert results[0][1] is not None and (results[0][1][MASK == 0] == 0).all()


def test_row_index_stands_for_the_mask() -> None:
    p = problem()
    index = MASK.reshape(-1).nonzero().squeeze(-1)
    expected = linear_token_logprobs(
        p["hidden"], p["lm_head_weight"], IDS, action_mask=MASK, return_entropy=True
    )
    for mask in (None, MASK):
        got = linear_token_logprobs(
            p["hidden"],
            p["lm_head_weight"],
            IDS,
            action_mask=mask,
            row_index=index.flip(0),
            return_entropy=True,
        )
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, atol=FLOAT64, rtol=FLOAT64)
    for wrong, mask in ((index[:-1], MASK), (index + 5, None), (torch.tensor([0, 0]), None)):
        with pytest.raises(ValueError, match="row_index"):
            linear_token_logprobs(p["hidden"], p["lm_head_weight"], IDS, row_index=wrong, action_mask=mask)


class LargestTensor(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes the most numbers any operation put out at once."""

    largest = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, Tensor):
                self.largest = max(self.largest, x.numel())
        return out


def test_the_logits_of_all_tokens_never_exist() -> None:
    hidden, weight = torch.randn(200, 4, requires_grad=True), torch.randn(300, 4, requires_grad=True)
    with LargestTensor() as seen:
        result = linear_token_logprobs(hidden, weight, torch.randint(300, (200,)), chunk_tokens=10)
        assert isinstance(result, Tensor)
        result.sum().backward()
    assert seen.largest <= 10 * 300


@pytest.mark.parametrize("autocast", [False, True])
def test_bfloat16(autocast: bool) -> None:
    p, exact = problem(torch.float32 if autocast else torch.bfloat16), problem()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        got = linear_token_logprobs(p["hidden"], p["lm_head_weight"], IDS, bias=p["bias"])
        assert isinstance(got, Tensor)
        got.sum().backward()
    assert got.dtype == torch.float32
    want = linear_token_logprobs(
        *(p[k].detach().double() for k in ("hidden", "lm_head_weight")), IDS, bias=p["bias"].detach().double()
    )
    assert isinstance(want, Tensor)
    torch.testing.assert_close(got.double(), want, atol=BFLOAT16_HEAD, rtol=0)
    for name, x in p.items():
        assert x.grad is not None and x.grad.dtype == x.dtype and x.grad.shape == exact[name].shape


def test_one_row_no_rows_and_second_derivatives() -> None:
    p = problem()
    one = linear_token_logprobs(
        p["hidden"][0, 0], p["lm_head_weight"], IDS[0, 0], temperature=torch.tensor(0.5)
    )
    assert isinstance(one, Tensor) and one.shape == ()
    none = linear_token_logprobs(p["hidden"], p["lm_head_weight"], IDS, action_mask=torch.zeros(2, 5))
    assert isinstance(none, Tensor)
    none.sum().backward()
    assert p["lm_head_weight"].grad is not None and (p["lm_head_weight"].grad == 0).all()
    (gradient,) = torch.autograd.grad(one, p["lm_head_weight"], create_graph=True)
    with pytest.raises(NotImplementedError, match="linear_token_logprobs: second derivatives"):
        gradient.sum().backward()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lm_head_weight": torch.zeros(9, 5, dtype=torch.float64)}, r"expected \[..., H\] and \[V, H\]"),
        ({"lm_head_weight": torch.zeros(9, 6)}, "dtype of hidden"),
        ({"bias": torch.zeros(8)}, r"bias: expected shape \[9\]"),
        ({"token_ids": IDS + 9}, r"ids in \[0, 9\)"),
        ({"chunk_tokens": 0}, "chunk_tokens"),
        ({"logit_scale": math.inf}, "logit_scale"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        linear_token_logprobs(**{**problem(), "token_ids": IDS, **options})
