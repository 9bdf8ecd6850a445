"""The compiled policy losses, on log-probs and straight from logits, against the reference and under torch's machinery."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from spo_fast import SPOLoss, policy_loss, token_logprobs
from spo_fast.losses.reduction import AGGREGATIONS
from tests.tolerances import FLOAT32, FLOAT64

NAN, INF = math.nan, math.inf
LEVELS = ("token", "sequence", "segment")
FULL: dict[str, Any] = {"kl_coef": 0.3, "entropy_coef": 0.02, "max_length": 7}


def random_tokens(generator: torch.Generator, b: int = 4, t: int = 5) -> dict[str, Tensor]:
    def normal(spread: float = 1.0) -> Tensor:
        return spread * torch.randn(b, t, generator=generator, dtype=torch.float64)

    old = normal() - 2
    return {
        "logprobs": old + normal(0.4),
        "old_logprobs": old,
        "advantages": normal(),
        "action_mask": torch.rand(b, t, generator=generator) > 0.3,
        "rollout_logprobs": old + normal(0.4),
        "ref_logprobs": old + normal(0.4),
        "entropy": normal().abs(),
        "segment_ids": torch.randint(-1, 2, (b, t), generator=generator),
    }


def outcome(p: dict[str, Tensor], **options: Any) -> list[Tensor]:
    """Loss, both gradients and every metric."""
    lp, entropy = p["logprobs"].clone().requires_grad_(), p["entropy"].clone().requires_grad_()
    loss, metrics = policy_loss(**{**p, "logprobs": lp, "entropy": entropy}, **options)  # type: ignore[arg-type]
    loss.backward()
    assert lp.grad is not None and entropy.grad is not None
    return [loss.detach(), lp.grad, entropy.grad, *metrics.values()]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    level=st.sampled_from(LEVELS),
    aggregation=st.sampled_from(AGGREGATIONS),
    estimator=st.sampled_from(["k1", "k2", "k3"]),
    special=st.lists(
        st.tuples(st.integers(0, 19), st.sampled_from([INF, -INF, NAN, 100.0, 0.0])), max_size=4
    ),
    data=st.data(),
)
def test_core_and_reference_agree(
    seed: int,
    level: str,
    aggregation: str,
    estimator: str,
    special: list[tuple[int, float]],
    data: st.DataObject,
) -> None:
    """Every option, infinities and NaN included, in float64: the same loss, gradients and metrics."""
    p = random_tokens(torch.Generator().manual_seed(seed))
    for place, value in special:
        name = data.draw(
            st.sampled_from(["logprobs", "old_logprobs", "advantages", "rollout_logprobs", "ref_logprobs"])
        )
        p[name].view(-1)[place] = value
    if data.draw(st.booleans()):
        p["advantages"] = p["advantages"][:, :1]
    options = {
        **FULL,
        "ratio_level": level,
        "aggregation": aggregation,
        "kl_estimator": estimator,
        "dual_clip": data.draw(st.sampled_from([None, 2.0])),
        "rollout_is_cap": data.draw(st.sampled_from([None, 1.5])),
        "normalizer": data.draw(st.sampled_from([None, 7.5, torch.tensor(3)])),
    }
    results = [outcome(p, backend=backend, **options) for backend in ("cpu", "reference")]
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, atol=FLOAT64, rtol=FLOAT64, equal_nan=True)


@pytest.mark.parametrize("needed", list(itertools.product([False, True], repeat=2)))
def test_each_subset_of_gradients(needed: tuple[bool, bool]) -> None:
    p = random_tokens(torch.Generator().manual_seed(0))
    everything = outcome(p, **FULL, backend="cpu")
    lp, entropy = (
        p[k].clone().requires_grad_(n) for k, n in zip(("logprobs", "entropy"), needed, strict=True)
    )
    loss = policy_loss(**{**p, "logprobs": lp, "entropy": entropy}, **FULL, backend="cpu").loss  # type: ignore[arg-type]
    assert torch.equal(loss.detach(), everything[0]) and loss.requires_grad == any(needed)
    if any(needed):
        loss.backward()
    for x, need, want in zip((lp, entropy), needed, everything[1:3], strict=True):
        assert (x.grad is not None and torch.equal(x.grad, want)) if need else x.grad is None


def test_threads_do_not_change_bits() -> None:
    p = random_tokens(torch.Generator().manual_seed(1), b=40, t=200)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(outcome(p, **FULL, ratio_level="segment", backend="cpu"))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_second_derivatives_are_refused() -> None:
    lp = torch.zeros(1, 2, requires_grad=True)
    loss = policy_loss(lp, None, torch.ones(1), torch.ones(1, 2), backend="cpu").loss
    (gradient,) = torch.autograd.grad(loss, lp, create_graph=True)
    with pytest.raises(NotImplementedError, match="policy_loss: second derivatives"):
        gradient.sum().backward()


# --- from logits in one pass ------------------------------------------------------------------------------------------


def random_problem(
    seed: int, dtype: torch.dtype = torch.float32, b: int = 3, t: int = 4, v: int = 1031, **scoring: Any
) -> tuple[Tensor, dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(b, t, v, generator=generator)).to(dtype)
    ids = torch.randint(v, (b, t), generator=generator)
    now = token_logprobs(logits, ids, **scoring)
    assert isinstance(now, Tensor)

    def near() -> Tensor:
        return now + 0.3 * torch.randn(b, t, generator=generator)

    return logits, {
        "token_ids": ids,
        "advantages": torch.randn(b, generator=generator),
        "action_mask": torch.rand(b, t, generator=generator) > 0.3,
        "old_logprobs": near(),
        "rollout_logprobs": near(),
        "ref_logprobs": near(),
        **scoring,
    }


def fused(
    logits: Tensor, data: dict[str, Any], upstream: float = 1.0, backend: Any = "cpu", **options: Any
) -> Any:
    """Loss, gradient of the logits' source, metrics."""
    inplace = options.pop("inplace", False)
    x = logits.detach().clone().requires_grad_()
    out = SPOLoss(backend=backend, inplace_backward=inplace, **options)(logits=x * 1, **data)
    (out.loss * upstream).backward()
    assert x.grad is not None
    return out.loss.detach(), x.grad, out.metrics


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("entropy_coef", [0.0, 0.05])
@pytest.mark.parametrize("inplace", [False, True])
def test_one_pass_is_two_passes(
    cpu_path: str, dtype: torch.dtype, aggregation: str, entropy_coef: float, inplace: bool
) -> None:
    heat = torch.tensor([[0.7, 1.0, 1.3, 0.9]] * 3)
    logits, data = random_problem(0, dtype, temperature=heat, logit_softcap=20.0)
    options = {"entropy_coef": entropy_coef, "kl_coef": 0.2, "aggregation": aggregation, "max_length": 9}
    got = fused(logits, data, 3.0, inplace=inplace, **options)
    want = fused(logits, data, 3.0, "reference", **options)
    torch.testing.assert_close(got[0], want[0], atol=FLOAT32, rtol=FLOAT32)
    torch.testing.assert_close(got[1], want[1], atol=3 * FLOAT32, rtol=4 * torch.finfo(dtype).eps)
    for name, value in want[2].items():
        torch.testing.assert_close(got[2][name], value, atol=FLOAT32, rtol=1e-5)


def test_one_pass_takes_packed_tokens() -> None:
    logits, data = random_problem(1)
    padded = fused(logits, data, aggregation="seq_mean_token_mean")
    flat = {k: v if k == "advantages" else v.reshape(-1) for k, v in data.items()}
    flat["cu_seqlens"] = torch.arange(0, 13, 4, dtype=torch.int32)
    packed = fused(logits.view(12, -1), flat, aggregation="seq_mean_token_mean")
    assert torch.equal(packed[0], padded[0]) and torch.equal(packed[1].view_as(padded[1]), padded[1])


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    cut=st.integers(0, 4),
    along=st.sampled_from(["sequences", "tokens"]),
    poison=st.sampled_from([NAN, INF, -INF]),
)
def test_micro_batches_add_up_and_masks_hide(seed: int, cut: int, along: str, poison: float) -> None:
    logits, data = random_problem(seed, v=50)
    mask = data["action_mask"]
    data["advantages"] = torch.randn(3, 4)
    hidden = {
        k: v if v is mask else v.masked_fill(~mask, -100 if k == "token_ids" else poison)
        for k, v in data.items()
    }
    x = logits.masked_fill(~mask.unsqueeze(-1), poison)
    whole = fused(logits, data)
    covered = fused(x, hidden)
    assert torch.equal(covered[0], whole[0]) and torch.equal(covered[1], whole[1])
    assert (covered[1][~mask] == 0).all()

    parts = [slice(0, cut), slice(cut, None)]
    pick = (lambda y, s: y[s]) if along == "sequences" else (lambda y, s: y[:, s])
    count = mask.sum()
    pieces = [
        fused(pick(logits, s), {**{k: pick(v, s) for k, v in data.items()}, "normalizer": count})
        for s in parts
    ]
    torch.testing.assert_close(pieces[0][0] + pieces[1][0], whole[0], atol=FLOAT32, rtol=FLOAT32)
    gradient = torch.cat([piece[1] for piece in pieces], dim=0 if along == "sequences" else 1)
    torch.testing.assert_close(gradient, whole[1], atol=1e-8, rtol=FLOAT32)


@pytest.mark.parametrize("inplace", [False, True])
def test_nothing_to_learn_from(inplace: bool) -> None:
    logits, data = random_problem(2, v=9)
    data["action_mask"] = torch.zeros(3, 4)
    loss, gradient, metrics = fused(torch.full_like(logits, NAN), data, inplace=inplace)
    assert loss == 0 and (gradient == 0).all() and all(x == 0 for x in metrics.values())
    empty, data = random_problem(2, b=0, v=9)
    loss, gradient, _ = fused(empty, data, inplace=inplace)
    assert loss == 0 and gradient.shape == (0, 4, 9)


def test_in_place_takes_the_logits_memory() -> None:
    source, data = random_problem(3)
    logits = source.clone().requires_grad_() * 1
    other_use = logits.square().sum()
    version, address = logits._version, logits.data_ptr()
    loss = SPOLoss(inplace_backward=True)(logits=logits, **data).loss
    assert logits._version > version
    (gradient,) = torch.autograd.grad(loss, logits, retain_graph=True)
    assert gradient.data_ptr() == address
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        other_use.backward()


@pytest.mark.parametrize("inplace", [False, True])
def test_the_gradient_is_handed_over_once(inplace: bool) -> None:
    source, data = random_problem(4)
    loss = SPOLoss(inplace_backward=inplace)(logits=source.requires_grad_() * 1, **data).loss
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_inputs_never_change_by_default() -> None:
    source, data = random_problem(5)
    copies = {k: v.clone() for k, v in data.items()}
    x = source.clone().requires_grad_()
    SPOLoss()(logits=x, **data).loss.backward()
    assert torch.equal(x.detach(), source) and all(torch.equal(v, copies[k]) for k, v in data.items())


def test_float16_waits_for_the_loss_scale() -> None:
    """Gradients below the least float16 survive if the scale reaches them before they are rounded."""
    logits, data = random_problem(6, torch.float16, v=300)
    data["normalizer"] = 1e5
    scaled, plain = fused(logits, data, upstream=2.0**16)[1], fused(logits.float(), data)[1]
    torch.testing.assert_close(scaled.float() / 2**16, plain, atol=1e-9, rtol=2e-3)
    assert (fused(logits, data)[1] == 0).float().mean() > 0.5


def test_without_grad_there_is_no_gradient_to_compute() -> None:
    logits, data = random_problem(7)
    with torch.no_grad():
        out = SPOLoss()(logits=logits.clone().requires_grad_(), **data)
    assert out.loss.grad_fn is None
    torch.testing.assert_close(out.loss, fused(logits, data)[0], atol=FLOAT32, rtol=FLOAT32)


def test_second_derivatives_of_one_pass_are_refused() -> None:
    logits, data = random_problem(8)
    x = logits.requires_grad_()
    loss = SPOLoss()(logits=x, **data).loss.square()
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(NotImplementedError, match="SPOLoss: second derivatives"):
        gradient.sum().backward()


def test_one_pass_under_checkpointing_and_compile() -> None:
    logits, data = random_problem(9, v=40)
    weight = torch.randn(40, 40, requires_grad=True)

    def loss(w: Tensor) -> Tensor:
        out: Tensor = SPOLoss(entropy_coef=0.1)(logits=logits @ w, **data).loss
        return out

    (want,) = torch.autograd.grad(loss(weight), weight)
    (got,) = torch.autograd.grad(checkpoint(loss, weight, use_reentrant=False), weight)
    assert torch.equal(got, want)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    (got,) = torch.autograd.grad(compiled(weight), weight)
    assert torch.equal(got, want)


def test_operators_pass_torchs_own_checks() -> None:
    from dataclasses import astuple

    from torch.library import opcheck

    from spo_fast.losses.policy_gradient import PolicyLossOptions

    logits, data = random_problem(10, v=9)
    tensors = [
        data[k] for k in ("old_logprobs", "advantages", "action_mask", "rollout_logprobs", "ref_logprobs")
    ]
    tokens = (*tensors, None, None, None, None, True)
    options = astuple(PolicyLossOptions())
    rows = (data["token_ids"], data["action_mask"], None, 1.0, 0.0)
    opcheck(torch.ops.spo_fast.policy_loss, (data["old_logprobs"], *tokens, [True, False], *options))
    opcheck(torch.ops.spo_fast.fused_policy_loss, (logits, *rows, *tokens, *options))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": torch.full((3, 4), 9)}, r"token_ids: expected ids in \[0, 9\)"),
        ({"action_mask": torch.ones(3)}, "action_mask: expected shape"),
        ({"old_logprobs": torch.ones(3)}, "old_logprobs: expected the shape"),
        ({"advantages": torch.ones(4)}, "advantages: expected"),
        ({"temperature": 0.0}, "temperature"),
        ({"normalizer": -1.0}, "normalizer"),
    ],
)
def test_arguments_of_one_pass_are_checked(change: dict[str, Any], message: str) -> None:
    logits, data = random_problem(11, v=9)
    data["action_mask"] = torch.ones(3, 4)
    x = logits.clone().requires_grad_()
    with pytest.raises(ValueError, match=message):
        SPOLoss(inplace_backward=True)(logits=x, **{**data, **change})
    assert torch.equal(x, logits)
