"""token_logprobs: worked values, special rows, independence of rows, gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from spo_fast import token_logprobs
from spo_fast.kernels.common import rows
from tests.shared import vectors
from tests.tolerances import FLOAT32, FLOAT64, LOGPROB_LARGE_VOCABULARY

INF = math.inf

pytestmark = pytest.mark.usefixtures("path")


def with_entropy(*args: Any, **options: Any) -> tuple[Tensor, Tensor]:
    result = token_logprobs(*args, return_entropy=True, **options)
    assert isinstance(result, tuple)
    return result


def plain(
    logits: Tensor, ids: Tensor, temperature: Any = 1.0, softcap: float | None = None
) -> tuple[Tensor, Tensor]:
    """log_softmax and gather in float64, differentiable."""
    z = logits.double()
    if softcap is not None:
        z = softcap * torch.tanh(z / softcap)
    z = z / (temperature.unsqueeze(-1) if isinstance(temperature, Tensor) else temperature)
    log_p = torch.log_softmax(z, -1)
    return log_p.gather(-1, ids.unsqueeze(-1)).squeeze(-1), -(log_p.exp() * log_p).sum(-1)


@pytest.mark.parametrize("case", vectors("token_logprobs"))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, FLOAT64), (torch.float32, 50 * FLOAT32)])
def test_worked_values(case: Any, dtype: torch.dtype, tolerance: float) -> None:
    """float32 inputs are first rounded, which moves logits of order 50 by 2e-6, hence the wider tolerance."""
    logits = torch.tensor(case["logits"], dtype=dtype, requires_grad=True)
    logprobs, entropy = with_entropy(
        logits,
        torch.tensor(case["token_ids"]),
        action_mask=torch.tensor(case["action_mask"]),
        temperature=case["temperature"],
        logit_softcap=case["logit_softcap"],
    )
    upstream = [torch.tensor(case[key], dtype=dtype) for key in ("grad_logprobs", "grad_entropy")]
    torch.autograd.backward([logprobs, entropy], upstream)
    expected = {key: torch.tensor(value, dtype=dtype) for key, value in case["expected"].items()}
    for got, key in ((logprobs, "logprobs"), (entropy, "entropy"), (logits.grad, "grad_logits")):
        torch.testing.assert_close(got, expected[key], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("vocabulary", [1, 5, 1023, 1024, 1025, 50257])
def test_equal_logits(vocabulary: int) -> None:
    """Row 10: lanes beyond V must not leak in. -1.609438 at V = 5."""
    logits = torch.full((2, vocabulary), -20.0)
    logprobs, entropy = with_entropy(logits, torch.tensor([0, vocabulary - 1]))
    torch.testing.assert_close(logprobs, torch.full((2,), -math.log(vocabulary)), atol=FLOAT32, rtol=0)
    torch.testing.assert_close(entropy, torch.full((2,), math.log(vocabulary)), atol=FLOAT32, rtol=1e-6)


def test_temperature() -> None:
    """Row 11: logits [2, 0], temperature 0.5."""
    logits = torch.tensor([[2.0, 0.0]], requires_grad=True)
    logprob = token_logprobs(logits, torch.tensor([0]), temperature=0.5)
    logprob.backward()
    assert logprob.item() == pytest.approx(-0.018150, abs=5e-7)
    p = math.exp(-0.01814993)
    torch.testing.assert_close(
        logits.grad, torch.tensor([[(1 - p) / 0.5, -(1 - p) / 0.5]]), atol=FLOAT32, rtol=0
    )
    assert logits.tolist() == [[2.0, 0.0]]


def test_shift_is_the_callers() -> None:
    """Row 7: tokens [10, 11, 12, 13], action mask [0, 0, 1, 0]: the log-prob of 12 given [10, 11]."""
    logits, tokens = torch.randn(1, 4, 20), torch.tensor([[10, 11, 12, 13]])
    mask = torch.tensor([[0, 0, 1, 0]])
    logprobs = token_logprobs(logits[:, :-1], tokens[:, 1:], action_mask=mask[:, 1:])
    assert logprobs.tolist() == [
        [0.0, pytest.approx(torch.log_softmax(logits[0, 1], -1)[12].item(), abs=FLOAT32), 0.0]
    ]


def test_large_vocabulary() -> None:
    """Row 8: bfloat16 logits, V = 151936."""
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(8, 151936, generator=generator)).bfloat16()
    ids = torch.randint(151936, (8,), generator=generator)
    logprobs = token_logprobs(logits, ids)
    assert logprobs.dtype == torch.float32
    assert (logprobs - plain(logits, ids)[0]).abs().max() <= LOGPROB_LARGE_VOCABULARY


def test_minus_infinity() -> None:
    """Row 9, and its neighbours."""
    logits = torch.tensor(
        [[0.0, 0.0, -INF], [0.0, -INF, 0.0], [-INF, -INF, -INF], [0.0, -INF, -INF]], requires_grad=True
    )
    logprobs, entropy = with_entropy(logits, torch.tensor([0, 1, 2, 0]))
    torch.testing.assert_close(logprobs, torch.tensor([-math.log(2), -INF, -INF, 0.0]))
    torch.testing.assert_close(entropy, torch.tensor([0.693147, 0.693147, 0.0, 0.0]), atol=1e-6, rtol=0)
    (only_logprobs,) = torch.autograd.grad(logprobs.sum(), logits, retain_graph=True)
    assert only_logprobs.tolist() == [[0.5, -0.5, 0.0], [0.0] * 3, [0.0] * 3, [0.0] * 3]
    (both,) = torch.autograd.grad(logprobs.sum() + entropy.sum(), logits)
    assert both.isfinite().all()


@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("bad", [math.nan, INF])
def test_nan_stays_in_its_row(bad: float, softcap: float | None) -> None:
    logits = torch.randn(3, 4)
    logits[1, 2] = bad
    logits.requires_grad_()
    logprobs, entropy = with_entropy(logits, torch.tensor([0, 1, 2]), logit_softcap=softcap)
    (logprobs + entropy).sum().backward()
    assert logits.grad is not None
    for x in (logprobs, entropy, logits.grad):
        assert x[1].isnan().any() and x[[0, 2]].isfinite().all()
    assert logprobs[1].isnan() and entropy[1].isnan()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_masked_rows_are_never_read(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    mask = torch.tensor([[1, 0, 2, 0], [0, 0, 0, 1]], dtype=torch.uint8)
    keep = mask != 0
    logits, ids = torch.randn(2, 4, 7).to(dtype), torch.randint(7, (2, 4))
    heat, upstream = torch.rand(2, 4) + 0.5, torch.randn(2, 2, 4)
    results = []
    for poison in (False, True):
        x, t, i, g = logits.clone(), heat.clone(), ids.clone(), upstream.clone()
        if poison:
            x[~keep], t[~keep], i[~keep], g[:, ~keep] = math.nan, math.nan, -100, math.nan
        x.requires_grad_()
        logprobs, entropy = with_entropy(x, i, action_mask=mask, temperature=t)
        torch.autograd.backward([logprobs, entropy], [g[0].to(logprobs.dtype), g[1].to(entropy.dtype)])
        results.append((logprobs, entropy, x.grad))
    for clean, poisoned in zip(*results, strict=True):
        assert clean is not None and poisoned is not None
        assert torch.equal(clean, poisoned)
        assert (clean[~keep] == 0).all()
    assert results[0][2] is not None and results[0][2].dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [5, 1025, 50257])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_do_not_depend_on_each_other(dtype: torch.dtype, vocabulary: int, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        logits = (4 * torch.randn(7, vocabulary)).to(dtype)
        ids, upstream = torch.randint(vocabulary, (7,)), torch.randn(2, 7)

        def run(select: list[int]) -> list[Tensor]:
            x = logits[select].requires_grad_()
            out = with_entropy(x, ids[select], temperature=0.7, logit_softcap=30.0)
            torch.autograd.backward(out, list(upstream[:, select]))
            assert x.grad is not None
            return [*out, x.grad]

        whole = run(list(range(7)))
        for select in ([0], [6], [5, 1], [2, 3, 4]):
            for got, all_rows in zip(run(select), whole, strict=True):
                assert torch.equal(got, all_rows[select])
    finally:
        torch.set_num_threads(before)


def test_blocks_do_not_change_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, ids = torch.randn(2, 9, 40), torch.randint(40, (2, 9))
    results = []
    for numbers in (1 << 24, 40 * 4, 1):
        monkeypatch.setattr(rows, "_BLOCK_NUMBERS", numbers)
        x = logits.clone().requires_grad_()
        out = with_entropy(x, ids, action_mask=torch.arange(18).view(2, 9) % 3)
        sum(o.sum() for o in out).backward()  # type: ignore[union-attr]
        assert x.grad is not None
        results.append((*out, x.grad))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_rows_that_are_kept_give_what_rows_that_are_picked_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path for devices where counting the mask would wait for them, run here."""
    from spo_fast.kernels import token_logprob

    logits, ids, mask = torch.randn(3, 4, 6), torch.randint(6, (3, 4)), torch.rand(3, 4) > 0.5
    heat = torch.rand(3, 4) + 0.5
    logits[~mask], ids[~mask], heat[~mask] = math.nan, -100, math.nan
    upstream = torch.where(mask, torch.randn(3, 4), math.nan)
    results = []
    for compact in (True, False):
        monkeypatch.setattr(
            token_logprob,
            "select_rows",
            lambda mask, lead, device, *, compact, _real=compact: rows.select_rows(
                mask, lead, device, compact=_real
            ),
        )
        x = logits.clone().requires_grad_()
        out = with_entropy(x, ids, action_mask=mask, temperature=heat)
        torch.autograd.backward(out, [upstream, upstream])
        assert x.grad is not None
        results.append((*out, x.grad))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("temperature", [1.0, 0.6, "tensor"])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_gradcheck(temperature: Any, softcap: float | None) -> None:
    torch.manual_seed(1)
    logits = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    ids, mask = torch.randint(5, (2, 3)), torch.tensor([[1, 0, 1], [1, 1, 0]])
    heat = torch.rand(2, 3, dtype=torch.float64) + 0.5 if temperature == "tensor" else temperature
    assert torch.autograd.gradcheck(
        lambda x: with_entropy(x, ids, action_mask=mask, temperature=heat, logit_softcap=softcap), logits
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_close_to_float64(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    logits = (2 * torch.randn(4, 1025)).to(dtype).requires_grad_()
    ids, upstream = torch.randint(1025, (4,)), torch.randn(2, 4)
    out = with_entropy(logits, ids, temperature=0.9, logit_softcap=20.0)
    torch.autograd.backward(out, list(upstream))
    exact = logits.detach().double().requires_grad_()
    expected = plain(exact, ids, 0.9, 20.0)
    torch.autograd.backward(expected, list(upstream.double()))
    for got, want in zip(out, expected, strict=True):
        torch.testing.assert_close(got.double(), want, atol=FLOAT32, rtol=FLOAT32)
    assert logits.grad is not None and exact.grad is not None
    torch.testing.assert_close(
        logits.grad, exact.grad.to(dtype), atol=FLOAT32, rtol=2 * torch.finfo(dtype).eps
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.transpose(0, 1),
        lambda x: x[:, :-1],
        lambda x: x[..., ::2],
        lambda x: x.expand(3, -1, -1, -1),
    ],
)
def test_any_strides(make: Any) -> None:
    base = torch.randn(4, 5, 6, requires_grad=True)
    logits = make(base)
    ids = torch.randint(logits.shape[-1], logits.shape[:-1])
    logprobs = token_logprobs(logits, ids)
    assert torch.equal(logprobs, token_logprobs(logits.contiguous(), ids))
    (got,) = torch.autograd.grad(logprobs.sum(), base)
    (want,) = torch.autograd.grad(plain(make(base), ids)[0].sum(), base)
    torch.testing.assert_close(got, want, atol=FLOAT32, rtol=FLOAT32)


def test_one_row_and_no_rows() -> None:
    logits = torch.randn(6, requires_grad=True)
    logprob, entropy = with_entropy(
        logits, torch.tensor(2), action_mask=torch.tensor(1), temperature=torch.tensor(2.0)
    )
    assert logprob.shape == entropy.shape == ()
    logprob.backward()
    torch.testing.assert_close(logprob.double(), plain(logits / 2, torch.tensor(2))[0], atol=FLOAT32, rtol=0)
    for shape in ((0, 5), (2, 0, 5)):
        empty = torch.zeros(shape, requires_grad=True)
        token_logprobs(empty, torch.zeros(shape[:-1], dtype=torch.int64)).sum().backward()
        assert empty.grad is not None and empty.grad.shape == shape
    logits = torch.full((2, 3), math.nan, requires_grad=True)
    token_logprobs(logits, torch.tensor([-100, 7]), action_mask=torch.zeros(2)).sum().backward()
    assert logits.grad is not None and (logits.grad == 0).all()


def test_inplace_backward_writes_over_the_logits() -> None:
    source = torch.randn(2, 3, 5, requires_grad=True)
    ids, mask = torch.randint(5, (2, 3)), torch.tensor([[1, 0, 1], [0, 1, 1]])
    (expected,) = torch.autograd.grad(token_logprobs(source, ids, action_mask=mask).sum(), source)
    logits = source * 1.0
    other_use = logits.square().sum()  # has saved the logits
    version, storage = logits._version, logits.data_ptr()
    token_logprobs(logits, ids, action_mask=mask, inplace_backward=True).sum().backward(retain_graph=True)
    assert logits._version > version and logits.data_ptr() == storage
    assert torch.equal(logits.detach(), expected)
    assert source.grad is not None and torch.equal(source.grad, expected)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        other_use.backward()


def test_inplace_backward_twice_raises() -> None:
    logits = torch.randn(2, 5, requires_grad=True)
    loss = token_logprobs(logits, torch.tensor([0, 1]), inplace_backward=True).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_inplace_backward_needs_memory_of_its_own() -> None:
    with pytest.raises(ValueError, match="expanded"):
        token_logprobs(
            torch.randn(1, 5).expand(3, 5), torch.zeros(3, dtype=torch.int64), inplace_backward=True
        )


def test_inputs_never_change_by_default() -> None:
    logits = torch.randn(3, 5, requires_grad=True)
    copy, version = logits.detach().clone(), logits._version
    out = with_entropy(logits, torch.tensor([0, 1, 2]), temperature=0.5, logit_softcap=3.0)
    (out[0] + out[1]).sum().backward()
    assert torch.equal(logits.detach(), copy) and logits._version == version


def test_nothing_is_kept_without_grad() -> None:
    logits = torch.randn(3, 5)
    assert token_logprobs(logits, torch.tensor([0, 1, 2])).grad_fn is None
    with torch.no_grad():
        assert token_logprobs(logits.requires_grad_(), torch.tensor([0, 1, 2])).grad_fn is None


def test_second_derivatives_are_refused() -> None:
    logits = torch.randn(3, 5, requires_grad=True)
    loss = token_logprobs(logits, torch.tensor([0, 1, 2])).square().sum()
    (gradient,) = torch.autograd.grad(loss, logits, create_graph=True)
    with pytest.raises(NotImplementedError, match="token_logprobs: second derivatives"):
        gradient.sum().backward()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"token_ids": torch.tensor([0, 5])}, r"token_ids: expected ids in \[0, 5\).*got 5"),
        ({"token_ids": torch.tensor([0, -100])}, "got -100"),
        ({"token_ids": torch.tensor([0.0, 1.0])}, "token_ids: expected int64"),
        ({"token_ids": torch.tensor([0])}, r"token_ids: expected shape \[2\], one a row, got \[1\]"),
        ({"logits": torch.zeros(2, 0)}, "V >= 1"),
        ({"logits": torch.zeros(2, 5, dtype=torch.int64)}, "floating"),
        ({"action_mask": torch.ones(2, 5)}, "action_mask: expected shape"),
        ({"temperature": 0.0}, "temperature: expected a number > 0, got 0.0"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": torch.tensor([1.0, 0.0])}, "temperature"),
        ({"temperature": torch.ones(3)}, "temperature: expected shape"),
        ({"logit_softcap": 0.0}, "logit_softcap"),
        ({"backend": "fast"}, "backend: expected one of"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], message: str) -> None:
    arguments = {"logits": torch.randn(2, 5), "token_ids": torch.tensor([0, 1]), **options}
    with pytest.raises(ValueError, match=message):
        token_logprobs(**arguments)


def test_named_backends_do_not_fall_back() -> None:
    with pytest.raises(NotImplementedError, match="not built yet"):
        token_logprobs(torch.randn(2, 5), torch.tensor([0, 1]), backend="triton")
    with pytest.raises(
        ValueError, match=r"logits: expected one of .* on a CPU with backend='cpu', got torch\.float64"
    ):
        token_logprobs(torch.randn(2, 5).double(), torch.tensor([0, 1]), backend="cpu")
