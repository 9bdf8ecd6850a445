"""policy_loss and SPOLoss: worked values, inputs that break libraries, partitions, masks."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spo_fast import PolicyLossOutput, SPOLoss, linear_token_logprobs, policy_loss, token_logprobs
from spo_fast.losses.reduction import AGGREGATIONS, aggregate, layout_of
from tests.shared import vectors
from tests.tolerances import FLOAT32, FLOAT64

INF, NAN = math.inf, math.nan
LEVELS = ("token", "sequence", "segment")
METRICS = {
    "clip_fraction", "dual_clip_fraction", "approx_kl", "ratio_mean", "ratio_max", "kl_mean", "rollout_is_mean", "ess", "tokens",
}  # fmt: skip


def run(
    logprobs: Any, old: Any, advantages: Any, mask: Any = None, **options: Any
) -> tuple[PolicyLossOutput, Tensor]:
    """The loss of nested lists, and its gradient."""
    lp = torch.tensor(logprobs, dtype=torch.float64, requires_grad=True)
    tensors = [None if x is None else torch.tensor(x, dtype=torch.float64) for x in (old, advantages, mask)]
    out = policy_loss(
        lp,
        tensors[0],
        tensors[1],
        torch.ones_like(lp) if tensors[2] is None else tensors[2],
        **options,  # type: ignore[arg-type]
    )
    out.loss.backward()
    assert lp.grad is not None
    return out, lp.grad


def single(a: float, d: float, **options: Any) -> tuple[float, float]:
    out, gradient = run([[d]], [[0.0]], [[a]], **options)
    return out.loss.item(), gradient.item()


@pytest.mark.parametrize("case", vectors("policy_loss"))
@pytest.mark.parametrize("packed", [False, True])
def test_worked_values(case: Any, packed: bool) -> None:
    def tensor(key: str) -> Tensor | None:
        if case[key] is None:
            return None
        x = torch.tensor(
            case[key], dtype=torch.int64 if key in ("segment_ids", "action_mask") else torch.float64
        )
        return x.reshape(-1) if packed else x

    b, t = len(case["logprobs"]), len(case["logprobs"][0])
    logprobs, entropy = tensor("logprobs"), tensor("entropy")
    assert logprobs is not None
    leaves = [x.requires_grad_() for x in (logprobs, entropy) if x is not None]
    rest = {key: tensor(key) for key in ("rollout_logprobs", "segment_ids", "ref_logprobs")}
    cu_seqlens = torch.arange(0, b * t + 1, t, dtype=torch.int32) if packed else None
    loss, metrics = policy_loss(
        logprobs, tensor("old_logprobs"), tensor("advantages"), tensor("action_mask"),  # type: ignore[arg-type]
        entropy=entropy, cu_seqlens=cu_seqlens, **rest, **case["options"],
    )  # fmt: skip
    loss.backward()
    expected = case["expected"]
    close: dict[str, Any] = {"atol": FLOAT64, "rtol": FLOAT64}
    torch.testing.assert_close(loss, torch.tensor(expected["loss"], dtype=torch.float64), **close)
    for x, key in zip(leaves, ("grad_logprobs", "grad_entropy"), strict=False):
        got = torch.zeros_like(x) if x.grad is None else x.grad
        torch.testing.assert_close(got.view(b, t), torch.tensor(expected[key], dtype=torch.float64), **close)
    assert set(metrics) == set(expected["metrics"]) == METRICS
    for key, value in expected["metrics"].items():
        torch.testing.assert_close(metrics[key], torch.tensor(value, dtype=torch.float64), **close)
        assert not metrics[key].requires_grad


# --- inputs that break libraries of this kind -------------------------------------------------------------------------


@pytest.mark.parametrize("clamp", [20.0, 1000.0])
def test_row_1_dual_clip_of_an_overflow(clamp: float) -> None:
    assert single(-1, 100, dual_clip=3.0, log_ratio_clamp=clamp) == (3.0, 0.0)
    assert single(-1, 1000, dual_clip=3.0, log_ratio_clamp=clamp) == (3.0, 0.0)


@pytest.mark.parametrize("d", [100, -100, INF, -INF, NAN])
@pytest.mark.parametrize("level", LEVELS)
def test_row_2_no_advantage(d: float, level: str) -> None:
    options = {
        "segment_ids": torch.zeros(1, 1, dtype=torch.int64),
        "ratio_level": level,
        "log_ratio_clamp": 1e3,
    }
    rollout = torch.full((1, 1), NAN)
    assert single(0, d, **options) == (0.0, 0.0)
    assert single(0, d, **options, rollout_logprobs=rollout) == (0.0, 0.0)


@pytest.mark.parametrize("old", [-200.0, INF, -INF, NAN])
def test_row_3_masked_ratio(old: float) -> None:
    out, gradient = run([[-1.0, -1.0]], [[-1.0, old]], [[1.0, 1.0]], [[1, 0]])
    assert out.loss.item() == -1.0
    assert gradient.tolist() == [[-1.0, 0.0]]


def test_row_4_masked_nan_in_every_aggregation() -> None:
    losses = torch.tensor([[1.0, NAN], [1.0, 1.0]])
    mask = torch.tensor([[True, False], [False, False]])
    layout = layout_of("losses", losses, None, read=True)
    for aggregation in AGGREGATIONS:
        want = 0.5 if aggregation == "seq_mean_token_sum_norm" else 1.0
        assert aggregate(losses, mask, layout, aggregation, max_length=2) == want


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("level", LEVELS)
def test_row_5_nothing_to_learn_from(aggregation: str, level: str) -> None:
    out, gradient = run(
        [[NAN, 1.0], [INF, -INF]], [[0.0, NAN], [0.0, 0.0]], [NAN, INF], [[0, 0], [0, 0]],
        aggregation=aggregation, max_length=3, ratio_level=level, segment_ids=torch.zeros(2, 2, dtype=torch.int64),
        entropy=torch.full((2, 2), NAN, requires_grad=True), entropy_coef=0.1, ref_logprobs=torch.full((2, 2), NAN), kl_coef=1.0,
    )  # fmt: skip
    assert out.loss.item() == 0.0 and out.loss.grad_fn is not None
    assert (gradient == 0).all()
    assert set(out.metrics) == METRICS and all(x.item() == 0.0 for x in out.metrics.values())


def test_row_6_micro_batches_add_up() -> None:
    """One token of loss 1 and three of loss 2: 1.75 in any split, given the whole count."""
    advantages = [-1.0, -2.0, -2.0, -2.0]
    for cut in (1, 2, 3):
        parts = [advantages[:cut], advantages[cut:]]
        total = sum(run([[0.0] * len(p)], None, [p], normalizer=4)[0].loss.item() for p in parts)
        assert total == 1.75
    # averaged over 2 ranks by the framework
    ranks = [
        run([[0.0] * n], None, [[a] * n], normalizer=4 / 2)[0].loss.item() for n, a in ((1, -1.0), (3, -2.0))
    ]
    assert sum(ranks) / 2 == 1.75


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_ppo_terms_by_hand() -> None:
    e = math.exp
    assert single(2, 0.1) == pytest.approx((-2 * e(0.1), -2 * e(0.1)))
    assert single(2, 0.5) == pytest.approx((-2 * 1.28, 0.0))  # clipped above
    assert single(2, -0.5) == pytest.approx((-2 * e(-0.5), -2 * e(-0.5)))
    assert single(-2, -0.5) == pytest.approx((2 * 0.8, 0.0))  # clipped below
    assert single(-2, 0.5) == pytest.approx((2 * e(0.5), 2 * e(0.5)))
    assert single(-2, 1.0) == pytest.approx((2 * 2.0, 0.0))  # dual clip
    assert single(-2, 1.0, dual_clip=None) == pytest.approx((2 * e(1), 2 * e(1)))
    assert single(1, -30) == pytest.approx((-e(-20), 0.0))  # beyond the clamp


def test_gradient_at_the_old_policy() -> None:
    """d = 0 is where every update starts; both branches tie there and the gradient must be whole."""
    assert single(1, 0) == (-1.0, -1.0)
    assert single(-1, 0) == (1.0, 1.0)
    out, gradient = run([[-3.0, -4.0]], None, [[1.0, -1.0]])
    assert out.loss.item() == 0.0 and gradient.tolist() == [[-0.5, 0.5]]


def test_infinities() -> None:
    assert single(1, -INF) == pytest.approx((-math.exp(-20), 0.0))
    assert single(-1, INF, dual_clip=None) == pytest.approx((math.exp(20), 0.0))
    for level in LEVELS:
        out, gradient = run(
            [[-INF]], [[-INF]], [[1.0]], ratio_level=level, segment_ids=torch.zeros(1, 1, dtype=torch.int64),
            rollout_logprobs=torch.tensor([[-INF]]), ref_logprobs=torch.tensor([[-INF]]), kl_coef=1.0,
        )  # fmt: skip
        assert out.loss.item() == -1.0 and gradient.item() == 0.0
        assert out.metrics["kl_mean"] == 0.0 and out.metrics["rollout_is_mean"] == 1.0


def test_nan_at_a_valid_token_is_seen() -> None:
    loss, gradient = single(1, NAN)
    assert math.isnan(loss) and math.isnan(gradient)
    out, gradient_ = run([[0.0]], None, [[0.0]], ref_logprobs=torch.tensor([[NAN]]), kl_coef=1.0)
    assert out.loss.isnan() and gradient_.isnan().all()


@pytest.mark.parametrize(
    ("estimator", "want"), [("k1", 0.3), ("k2", 0.045), ("k3", math.exp(-0.3) + 0.3 - 1)]
)
def test_kl(estimator: Any, want: float) -> None:
    slope = {"k1": 1.0, "k2": 0.3, "k3": 1 - math.exp(-0.3)}[estimator]
    options: dict[str, Any] = {"ref_logprobs": torch.tensor([[0.0]]), "kl_estimator": estimator}
    out, gradient = run([[0.3]], None, [[0.0]], kl_coef=2.0, **options)
    assert (out.loss.item(), gradient.item()) == pytest.approx((2 * want, 2 * slope))
    assert out.metrics["kl_mean"].item() == pytest.approx(want)
    out, gradient = run(
        [[0.3]], None, [[0.0]], **options
    )  # reported whatever the coefficient, and free of charge
    assert (out.loss.item(), gradient.item()) == (0.0, 0.0)
    assert out.metrics["kl_mean"].item() == pytest.approx(want)
    _, gradient = run([[0.3]], None, [[0.0]], kl_coef=2.0, **options, kl_log_ratio_clamp=0.2)
    assert gradient.item() == 0.0


def test_rollout_weights() -> None:
    """Weights exp(0.5) and 2 (capped, from e^3) on losses -1 each."""
    rollout = torch.tensor([[-0.5, -3.0]], requires_grad=True)
    out, gradient = run([[0.0, 0.0]], None, [[1.0, 1.0]], rollout_logprobs=rollout)
    assert out.loss.item() == pytest.approx(-(math.exp(0.5) + 2) / 2)
    assert out.metrics["rollout_is_mean"].item() == pytest.approx((math.exp(0.5) + 2) / 2)
    assert gradient.tolist() == [pytest.approx([-math.exp(0.5) / 2, -1.0])] and rollout.grad is None
    out, _ = run([[0.0, 0.0]], None, [[1.0, 1.0]], rollout_logprobs=rollout, rollout_is_cap=None)
    assert out.loss.item() == -1.0 and out.metrics["rollout_is_mean"].item() == 1.0


def test_unit_ratios() -> None:
    """d = 0.1, 0.3 | 0.5: a sequence's mean is 0.3; segments {0, 2} and {1} have means 0.3 and 0.3, {0}, {1, 2}: 0.1, 0.4."""
    lp, mask = [[0.1, 0.3, 0.5, 99.0]], [[1, 1, 1, 0]]
    for ids, means in (([0, 1, 0, 1], [0.3, 0.3, 0.3]), ([7, -2, -2, 7], [0.1, 0.4, 0.4])):
        segments = torch.tensor([ids])
        out, gradient = run(
            lp, [[0.0] * 4], [[-1.0] * 4], mask, ratio_level="segment", segment_ids=segments, clip_high=9.0
        )
        ratios = [math.exp(m) for m in means]
        assert out.loss.item() == pytest.approx(sum(ratios) / 3)
        assert gradient[0, :3].tolist() == pytest.approx([r / 3 for r in ratios]) and gradient[0, 3] == 0
    out, _ = run(lp, [[0.0] * 4], [[-1.0] * 4], mask, ratio_level="sequence")
    assert out.metrics["ratio_max"].item() == pytest.approx(math.exp(0.3))


def test_equal_segment_ids_of_two_sequences_are_two_units() -> None:
    ids = torch.zeros(2, 1, dtype=torch.int64)
    out, _ = run([[0.1], [0.3]], [[0.0], [0.0]], [[1.0], [1.0]], ratio_level="segment", segment_ids=ids)
    assert out.metrics["ratio_max"].item() == pytest.approx(math.exp(0.3))


def test_gradient_through_a_saturated_unit_is_zero() -> None:
    _, gradient = run([[0.0, INF]], [[0.0, 0.0]], [[-1.0, -1.0]], ratio_level="sequence", dual_clip=None)
    assert gradient.tolist() == [[0.0, 0.0]]


def test_shapes_of_advantages() -> None:
    lp = torch.zeros(2, 3)
    per_sequence = policy_loss(lp, None, torch.tensor([1.0, 3.0]), torch.ones(2, 3)).loss
    assert per_sequence == policy_loss(lp, None, torch.tensor([[1.0], [3.0]]), torch.ones(2, 3)).loss == -2.0
    # packed, as many sequences as tokens: read as one a token
    cu_seqlens = torch.tensor([0, 0, 2], dtype=torch.int32)
    packed = policy_loss(torch.zeros(2), None, torch.tensor([1.0, 3.0]), torch.ones(2), cu_seqlens=cu_seqlens)
    assert packed.loss == -2.0
    for shape in ((3,), (1, 3), (3, 2), ()):
        with pytest.raises(ValueError, match="advantages: expected"):
            policy_loss(lp, None, torch.zeros(shape), torch.ones(2, 3))


@pytest.mark.parametrize("normalizer", [0, 0.0, torch.tensor(0), torch.tensor(0.0)])
def test_normalizer_of_zero(normalizer: Any) -> None:
    out, gradient = run([[1.0]], [[0.0]], [[1.0]], normalizer=normalizer)
    assert out.loss.item() == 0.0 and gradient.item() == 0.0


def test_metrics_do_not_depend_on_normalizer_and_aggregation() -> None:
    torch.manual_seed(0)
    lp, old, a = torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 4)
    mask = torch.rand(3, 4) > 0.3
    base = policy_loss(lp, old, a, mask).metrics
    other = policy_loss(lp, old, a, mask, normalizer=100.0, aggregation="seq_mean_token_mean").metrics
    assert base == other
    r = (lp - old).exp()[mask]
    assert base["ess"].item() == pytest.approx((r.sum() ** 2 / (r**2).sum() / r.numel()).item(), rel=1e-5)
    assert base["tokens"] == mask.sum()


# --- dtypes, gradients, properties ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes(dtype: torch.dtype) -> None:
    lp = torch.randn(2, 3).to(dtype).requires_grad_()
    out = policy_loss(lp, None, torch.ones(2), torch.ones(2, 3, dtype=torch.bool))
    out.loss.backward()
    assert out.loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert lp.grad is not None and lp.grad.dtype == dtype


def random_problem(seed: int, b: int = 4, t: int = 5) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

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


def loss_and_gradients(p: dict[str, Tensor], **options: Any) -> tuple[Tensor, Tensor, Tensor]:
    lp, entropy = p["logprobs"].clone().requires_grad_(), p["entropy"].clone().requires_grad_()
    loss = policy_loss(**{**p, "logprobs": lp, "entropy": entropy}, **options).loss  # type: ignore[arg-type]
    loss.backward()
    assert lp.grad is not None and entropy.grad is not None
    return loss.detach(), lp.grad, entropy.grad


FULL: dict[str, Any] = {"kl_coef": 0.3, "entropy_coef": 0.02, "max_length": 7}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_gradcheck(level: str, aggregation: str, estimator: str) -> None:
    p = random_problem(3)

    def loss(lp: Tensor, entropy: Tensor) -> Tensor:
        return policy_loss(
            **{**p, "logprobs": lp, "entropy": entropy},  # type: ignore[arg-type]
            **FULL, ratio_level=level, aggregation=aggregation, kl_estimator=estimator,
        ).loss  # fmt: skip

    assert torch.autograd.gradcheck(loss, (p["logprobs"].requires_grad_(), p["entropy"].requires_grad_()))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.integers(0, 6), max_size=3),
    level=st.sampled_from(LEVELS),
    aggregation=st.sampled_from(AGGREGATIONS),
)
def test_any_split_between_sequences_adds_up(
    seed: int, cuts: list[int], level: str, aggregation: str
) -> None:
    p = random_problem(seed, b=6)
    mask = p["action_mask"]
    count = mask.sum() if aggregation == "token_mean" else mask.any(-1).sum()
    options = {**FULL, "ratio_level": level, "aggregation": aggregation}
    whole = loss_and_gradients(p, **options)
    edges = [0, *sorted(cuts), 6]
    parts = [
        loss_and_gradients({k: v[a:b] for k, v in p.items()}, **options, normalizer=count)
        for a, b in itertools.pairwise(edges)
    ]
    for i, want in enumerate(whole):
        got = sum(part[0] for part in parts) if i == 0 else torch.cat([part[i] for part in parts])
        torch.testing.assert_close(got, want, atol=FLOAT64, rtol=FLOAT64)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), cut=st.integers(0, 5))
def test_token_mean_may_be_split_inside_a_sequence(seed: int, cut: int) -> None:
    p = random_problem(seed)
    whole = loss_and_gradients(p, **FULL)
    parts = [
        loss_and_gradients({k: v[:, s] for k, v in p.items()}, **FULL, normalizer=p["action_mask"].sum())
        for s in (slice(0, cut), slice(cut, None))
    ]
    torch.testing.assert_close(parts[0][0] + parts[1][0], whole[0], atol=FLOAT64, rtol=FLOAT64)
    for i in (1, 2):
        got = torch.cat([part[i] for part in parts], dim=1)
        torch.testing.assert_close(got, whole[i], atol=FLOAT64, rtol=FLOAT64)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    poison=st.sampled_from([NAN, INF, -INF, 1e30]),
    level=st.sampled_from(LEVELS),
    aggregation=st.sampled_from(AGGREGATIONS),
)
def test_masked_content_is_irrelevant(seed: int, poison: float, level: str, aggregation: str) -> None:
    p = random_problem(seed)
    mask = p["action_mask"]
    q = {
        k: v if k == "action_mask" else v.masked_fill(~mask, 77 if k == "segment_ids" else poison)
        for k, v in p.items()
    }
    options = {**FULL, "ratio_level": level, "aggregation": aggregation}
    for a, b in zip(loss_and_gradients(p, **options), loss_and_gradients(q, **options), strict=True):
        assert torch.equal(a, b)
    metrics = [policy_loss(**x, **options).metrics for x in (p, q)]  # type: ignore[arg-type]
    assert metrics[0] == metrics[1]
    for i in (1, 2):
        assert (loss_and_gradients(q, **options)[i][~mask] == 0).all()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    level=st.sampled_from(LEVELS),
    aggregation=st.sampled_from(AGGREGATIONS),
    data=st.data(),
)
def test_permutation_and_packing(seed: int, level: str, aggregation: str, data: st.DataObject) -> None:
    """Sequences in another order, padding dropped and everything in one row: the same loss, the same gradients."""
    p = random_problem(seed)
    options = {**FULL, "ratio_level": level, "aggregation": aggregation}
    whole = loss_and_gradients(p, **options)
    order = data.draw(st.permutations(range(4)))
    lengths = [data.draw(st.integers(0, 5)) for _ in order]
    keep = torch.zeros_like(p["action_mask"])
    for row, length in enumerate(lengths):
        keep[row, :length] = True
    p["action_mask"] &= keep
    whole = loss_and_gradients(p, **options)
    packed = {k: torch.cat([v[i, : lengths[i]] for i in order]) for k, v in p.items()}
    cu_seqlens = torch.tensor(
        [0, *torch.tensor([lengths[i] for i in order]).cumsum(0).tolist()], dtype=torch.int32
    )
    got = loss_and_gradients(packed, **options, cu_seqlens=cu_seqlens)
    torch.testing.assert_close(got[0], whole[0], atol=FLOAT64, rtol=FLOAT64)
    for i in (1, 2):
        want = torch.cat([whole[i][j, : lengths[j]] for j in order])
        torch.testing.assert_close(got[i], want, atol=FLOAT64, rtol=FLOAT64)


class Reads(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts operations that make the host wait for a device."""

    waits: tuple[str, ...] = ("_local_scalar_dense", "nonzero", "masked_select", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function._schema.name.split("::")[1]
        if name.startswith(self.waits) or (
            name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1])
        ):
            self.seen.append(name)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_the_loss_never_waits_for_a_device(level: str, aggregation: str) -> None:
    p = random_problem(0)
    p["logprobs"].requires_grad_()
    options = {**FULL, "ratio_level": level, "aggregation": aggregation, "normalizer": torch.tensor(3.0)}
    with Reads() as reads:
        policy_loss(**p, **options).loss.backward()  # type: ignore[arg-type]
    assert reads.seen == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dual_clip": 1.0}, "dual_clip: expected a number > 1 or None, got 1.0"),
        ({"clip_low": -0.1}, "clip_low"),
        ({"clip_high": NAN}, "clip_high"),
        ({"rollout_is_cap": 0.0}, "rollout_is_cap"),
        ({"aggregation": "mean"}, "aggregation: expected one of"),
        ({"aggregation": "seq_mean_token_sum_norm"}, "max_length"),
        ({"ratio_level": "turn"}, "ratio_level"),
        ({"ratio_level": "segment"}, "segment_ids: expected ints"),
        ({"kl_estimator": "k4"}, "kl_estimator"),
        ({"kl_coef": 0.1}, "ref_logprobs: expected a tensor with kl_coef=0.1"),
        ({"entropy_coef": 0.1}, "entropy: expected a tensor"),
        ({"log_ratio_clamp": 0.0}, "log_ratio_clamp"),
        ({"normalizer": -1.0}, "normalizer"),
        ({"normalizer": torch.ones(2)}, "normalizer"),
        (
            {"old_logprobs": torch.zeros(2, 2)},
            r"old_logprobs: expected the shape of logprobs, \[2, 3\], got \[2, 2\]",
        ),
        ({"action_mask": torch.zeros(2)}, "action_mask"),
        ({"logprobs": torch.zeros(6)}, r"logprobs: expected shape \[B, T\]"),
        ({"cu_seqlens": torch.tensor([0, 3])}, r"expected \[N\] and int32"),
        ({"clip_low": 2.0, "dual_clip": 0.5}, "clip_low.*; dual_clip"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "logprobs": torch.zeros(2, 3), "old_logprobs": None, "advantages": torch.zeros(2), "action_mask": torch.ones(2, 3),
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        policy_loss(**{**arguments, **options})


@pytest.mark.parametrize("offsets", [[0, 2], [1, 4], [0, 3, 2, 4]])
def test_offsets_are_checked(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="offsets rising from 0 to 4"):
        policy_loss(
            torch.zeros(4),
            None,
            torch.zeros(4),
            torch.ones(4),
            cu_seqlens=torch.tensor(offsets, dtype=torch.int32),
        )


# --- SPOLoss ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entropy_coef", [0.0, 0.1])
def test_module_on_each_source(entropy_coef: float) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    weight, bias = torch.randn(6, 4, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    ids, mask, advantages = (
        torch.randint(6, (2, 3)),
        torch.tensor([[1, 0, 1], [1, 1, 0]]),
        torch.tensor([1.0, -0.5]),
    )
    heads: dict[str, Any] = {"temperature": 0.8, "logit_softcap": 5.0, "logit_scale": 0.5}
    loss = SPOLoss(entropy_coef=entropy_coef, aggregation="seq_mean_token_mean")
    data: dict[str, Any] = {
        "advantages": advantages,
        "action_mask": mask,
        "old_logprobs": torch.full((2, 3), -1.5),
    }
    logits = 0.5 * (hidden @ weight.T + bias)
    logprobs, entropy = token_logprobs(
        logits, ids, action_mask=mask, temperature=0.8, logit_softcap=5.0, return_entropy=True
    )
    assert isinstance(linear_token_logprobs(hidden, weight, ids), Tensor)
    outputs = [
        loss(logprobs, entropy=entropy, **data),
        loss(logits=logits, token_ids=ids, temperature=0.8, logit_softcap=5.0, **data),
        loss(hidden=hidden, lm_head_weight=weight, bias=bias, token_ids=ids, **heads, **data),
    ]
    gradients = [torch.autograd.grad(out.loss, hidden, retain_graph=True)[0] for out in outputs]
    for out, gradient in zip(outputs, gradients, strict=True):
        torch.testing.assert_close(out.loss, outputs[0].loss, atol=FLOAT64, rtol=FLOAT64)
        torch.testing.assert_close(gradient, gradients[0], atol=FLOAT64, rtol=FLOAT64)


def test_module_in_place() -> None:
    source = torch.randn(2, 3, 5, requires_grad=True)
    data: dict[str, Any] = {
        "token_ids": torch.randint(5, (2, 3)), "advantages": torch.ones(2), "action_mask": torch.ones(2, 3),
    }  # fmt: skip
    (want,) = torch.autograd.grad(SPOLoss()(logits=source * 1.0, **data).loss, source)
    (got,) = torch.autograd.grad(SPOLoss(inplace_backward=True)(logits=source * 1.0, **data).loss, source)
    torch.testing.assert_close(got, want, atol=FLOAT32, rtol=0)


def test_module_checks_its_options_and_sources() -> None:
    assert repr(SPOLoss(clip_high=0.3, dual_clip=None)) == "SPOLoss(clip_high=0.3, dual_clip=None)"
    with pytest.raises(TypeError, match="clip_hi"):
        SPOLoss(clip_hi=0.3)
    with pytest.raises(ValueError, match="dual_clip"):
        SPOLoss(dual_clip=0.5)
    lp, logits, ids = torch.zeros(1, 2), torch.zeros(1, 2, 3), torch.zeros(1, 2, dtype=torch.int64)
    data: dict[str, Any] = {"advantages": torch.ones(1), "action_mask": torch.ones(1, 2)}
    for sources, message in (
        ({}, "exactly one of logprobs, logits and hidden, got none"),
        ({"logprobs": lp, "logits": logits, "token_ids": ids}, "exactly one"),
        ({"logits": logits}, "token_ids: expected a tensor"),
        ({"hidden": logits, "token_ids": ids}, "lm_head_weight: expected a tensor"),
    ):
        with pytest.raises(ValueError, match=message):
            SPOLoss()(**sources, **data)  # type: ignore[arg-type]
