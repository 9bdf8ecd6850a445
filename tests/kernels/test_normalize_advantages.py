"""normalize_advantages: worked values, constant sets, measures, layouts, order, processes."""

from __future__ import annotations

import math
import os
import socket
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spo_fast import normalize_advantages, spo_advantages
from tests.shared import vectors
from tests.tolerances import FLOAT64, NORMALIZE_ORDER

NAN = math.nan

pytestmark = pytest.mark.usefixtures("path")


@pytest.mark.parametrize("case", vectors("normalize_advantages"))
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_worked_values(case: Any, kind: str) -> None:
    options = {key: case[key] for key in ("measure", "center", "scale", "eps")}
    if kind == "numpy":
        got = normalize_advantages(
            np.array(case["advantages"]), lengths=case["lengths"], groups=case["groups"], **options
        )
    else:
        groups = case["groups"]
        numbers = (
            None if groups is None else torch.tensor(groups).unique(return_inverse=True)[1]
        )  # into [0, S)
        lengths = None if case["lengths"] is None else torch.tensor(case["lengths"])
        advantages = torch.tensor(case["advantages"], dtype=torch.float64)
        got = normalize_advantages(advantages, lengths=lengths, groups=numbers, **options).numpy()
    np.testing.assert_allclose(got, case["expected"], atol=FLOAT64, rtol=FLOAT64)


def test_action_token_measure_by_hand() -> None:
    """A = 1, 4 with 1 and 2 tokens: mu 3, var (4 + 2) / 2 = 3."""
    got = normalize_advantages(np.array([1.0, 4.0]), lengths=[1, 2], eps=0.0)
    np.testing.assert_allclose(got, [-2 / math.sqrt(3), 1 / math.sqrt(3)], rtol=1e-15)
    got = normalize_advantages(np.array([1.0, 4.0]), lengths=[1, 2], measure="trajectory", eps=0.0)
    np.testing.assert_allclose(got, [-1.5 / math.sqrt(4.5), 1.5 / math.sqrt(4.5)], rtol=1e-15)


def test_centring_and_scaling_act_separately() -> None:
    a = np.array([1.0, 4.0])
    np.testing.assert_allclose(normalize_advantages(a, lengths=[1, 2], scale=False), [-2, 1], rtol=1e-15)
    np.testing.assert_allclose(
        normalize_advantages(a, lengths=[1, 2], center=False, eps=0.0), a / math.sqrt(3), rtol=1e-15
    )
    np.testing.assert_array_equal(normalize_advantages(a, center=False, scale=False), a)


@pytest.mark.parametrize("values", [[0.1] * 7, [5.0], [1e300] * 3, [-0.3] * 6])
@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_constant_sets(values: list[float], kind: Any) -> None:
    """Rows 12, 13 and 16: seven rewards of 0.1; one member; an all-fail batch with centring off."""
    values_ = kind(values, dtype=torch.float64 if kind is torch.tensor else np.float64)
    for scale in (True, False):
        assert (normalize_advantages(values_, scale=scale) == 0).all()
        assert (normalize_advantages(values_, scale=scale, center=False) == values_).all()
    lengths = kind([3] * len(values))
    assert (normalize_advantages(values_, lengths=lengths) == 0).all()


def test_one_unit_is_not_scaled() -> None:
    a = np.array([5.0, 2.0])
    np.testing.assert_array_equal(normalize_advantages(a, lengths=[1, 0]), [0, 0])
    np.testing.assert_array_equal(normalize_advantages(a, lengths=[1, 0], center=False), [5, 0])
    np.testing.assert_array_equal(normalize_advantages(a, groups=["x", "y"]), [0, 0])


def test_segments_without_tokens_do_not_count() -> None:
    for bad in (100.0, NAN, math.inf):
        got = normalize_advantages(np.array([1.0, bad, 4.0]), lengths=[1, 0, 2])
        np.testing.assert_array_equal(got[[0, 2]], normalize_advantages(np.array([1.0, 4.0]), lengths=[1, 2]))
        assert got[1] == 0
    np.testing.assert_array_equal(normalize_advantages(np.array([1.0, NAN]), lengths=[0, 0]), [0, 0])
    assert normalize_advantages(np.array([])).shape == (0,)


def test_nan_stays_in_its_group() -> None:
    got = normalize_advantages(np.array([1.0, NAN, 1.0, 3.0]), groups=[0, 0, 1, 1])
    assert np.isnan(got[:2]).all()
    np.testing.assert_array_equal(got[2:], normalize_advantages(np.array([1.0, 3.0])))


def test_tokens() -> None:
    advantages = torch.tensor([[1.0, NAN, 3.0], [NAN, 8.0, NAN]], dtype=torch.float64)
    mask = torch.tensor([[1, 0, 1], [0, 1, 0]])
    token = normalize_advantages(advantages, action_mask=mask, eps=0.0)
    want = normalize_advantages(torch.tensor([1.0, 3.0, 8.0], dtype=torch.float64), eps=0.0)
    assert torch.equal(token[mask != 0], want) and (token[mask == 0] == 0).all()
    # means 2 and 8: mu 5, sd sqrt(18)
    trajectory = normalize_advantages(advantages, action_mask=mask, measure="trajectory", eps=0.0)
    torch.testing.assert_close(
        trajectory[mask != 0], torch.tensor([-4.0, -2.0, 3.0], dtype=torch.float64) / math.sqrt(18)
    )
    assert (trajectory[mask == 0] == 0).all()


def test_constant_tokens() -> None:
    """The mean of seven times 0.1 is not 0.1 in floating point; segments of it are still equal."""
    advantages = torch.full((3, 7), 0.1, dtype=torch.float64)
    mask = torch.ones(3, 7)
    mask[1, 3:] = 0
    for measure in ("trajectory", "action_token"):
        assert (normalize_advantages(advantages, action_mask=mask, measure=measure) == 0).all()
        unchanged = normalize_advantages(advantages, action_mask=mask, measure=measure, center=False)
        assert torch.equal(unchanged, advantages * mask)


@settings(max_examples=50, deadline=None)
@given(data=st.data(), measure=st.sampled_from(["action_token", "trajectory"]))
def test_one_value_a_segment_is_the_same_in_every_layout(data: st.DataObject, measure: Any) -> None:
    lengths = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    values = torch.tensor([data.draw(st.floats(-3, 3)) for _ in lengths], dtype=torch.float64)
    groups = torch.tensor([data.draw(st.integers(0, len(lengths) - 1)) for _ in lengths])
    options: dict[str, Any] = {"measure": measure, "groups": groups}
    segment = normalize_advantages(values, lengths=torch.tensor(lengths), **options)
    mask = torch.arange(4) < torch.tensor(lengths).unsqueeze(-1)
    padded = normalize_advantages(values.unsqueeze(-1).expand(-1, 4), action_mask=mask, **options)
    packed = normalize_advantages(
        values.repeat_interleave(torch.tensor(lengths)), action_mask=torch.ones(sum(lengths)), **options,
        cu_seqlens=torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32),
    )  # fmt: skip
    torch.testing.assert_close(padded[mask], packed, atol=FLOAT64, rtol=FLOAT64)
    torch.testing.assert_close(packed, segment.repeat_interleave(torch.tensor(lengths)), atol=1e-9, rtol=1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), offset=st.sampled_from([0.0, 1e6, -1e9]))
def test_order_does_not_matter(seed: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    a, lengths, groups = rng.normal(size=500) + offset, rng.integers(0, 9, 500), rng.integers(0, 3, 500)
    order = rng.permutation(500)
    got = normalize_advantages(a, lengths=lengths, groups=groups)
    other = normalize_advantages(a[order], lengths=lengths[order], groups=groups[order])
    np.testing.assert_allclose(other, got[order], atol=NORMALIZE_ORDER * np.abs(got).max(), rtol=0)


def test_any_hashable_names_a_group_in_numpy() -> None:
    got = normalize_advantages([1.0, 2.0, 5.0, 9.0], groups=["a", ("b", 1), "a", ("b", 1)])
    np.testing.assert_array_equal(got, normalize_advantages([1.0, 2.0, 5.0, 9.0], groups=[7, -1, 7, -1]))


@pytest.mark.parametrize(
    ("given_", "want"),
    [
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.int64, np.float64),
        (np.bool_, np.float64),
    ],
)
def test_numpy_dtypes(given_: Any, want: Any) -> None:
    assert normalize_advantages(np.array([0, 1, 1], dtype=given_)).dtype == want


@pytest.mark.parametrize(
    ("given_", "want"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float64, torch.float64),
        (torch.int64, torch.float32),
    ],
)
def test_torch_dtypes(given_: torch.dtype, want: torch.dtype) -> None:
    result = normalize_advantages(torch.tensor([0, 1, 1]).to(given_))
    assert result.dtype == want and not result.requires_grad


def test_gradients_do_not_flow() -> None:
    assert not normalize_advantages(torch.randn(3, requires_grad=True)).requires_grad


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measure": "token"}, "measure: expected one of"),
        ({"lengths": torch.tensor([1, 2])}, r"lengths: expected \[3\]"),
        ({"lengths": torch.tensor([1, 2, -1])}, "lengths: expected numbers >= 0, got -1"),
        ({"lengths": torch.tensor([1.0, 2, NAN])}, "lengths"),
        ({"groups": torch.tensor([0, 1, 3])}, r"groups: expected ids in \[0, 3\)"),
        ({"groups": torch.tensor([0, 1, -1])}, "groups"),
        ({"groups": torch.tensor([0, 1])}, r"groups: expected \[3\] ints"),
        ({"groups": torch.zeros(3)}, "groups"),
        ({"action_mask": torch.ones(2)}, "action_mask: expected the shape"),
        ({"action_mask": torch.ones(3)}, r"advantages: expected shape \[B, T\]"),
        ({"lengths": torch.ones(3), "action_mask": torch.ones(3)}, "got both"),
        ({"cu_seqlens": torch.tensor([0, 3])}, "action_mask: expected a tensor with cu_seqlens"),
        ({"eps": -1.0}, "eps"),
        ({"advantages": torch.zeros(2, 2)}, r"advantages: expected \[S\]"),
        ({"advantages": np.zeros(3), "process_group": object()}, "process_group"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        normalize_advantages(**{"advantages": torch.zeros(3), **options})


def test_spo_advantages() -> None:
    np.testing.assert_array_equal(spo_advantages([1, 0], [0.25, 0.5]), [0.75, -0.5])
    assert torch.equal(
        spo_advantages(torch.tensor([1.0, 0.0]), torch.tensor([0.25, 0.5])), torch.tensor([0.75, -0.5])
    )
    with pytest.raises(ValueError, match="one shape"):
        spo_advantages([1, 0], [0.25])


def _rank(rank: int, port: int, queue: Any) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    try:
        parts = (slice(0, 2), slice(2, 7))
        a, lengths, groups = (
            torch.arange(7.0).double() ** 2,
            torch.tensor([1, 2, 0, 4, 1, 3, 1]),
            torch.tensor([6, 0, 6, 0, 3, 3, 6]),
        )
        options: dict[str, Any] = {"process_group": torch.distributed.group.WORLD}
        mine = parts[rank]
        whole = normalize_advantages(a[mine], lengths=lengths[mine], **options)
        grouped = normalize_advantages(
            a[mine], lengths=lengths[mine], groups=groups[mine], measure="trajectory", **options
        )
        queue.put((rank, whole.tolist(), grouped.tolist()))
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
def test_statistics_of_all_processes() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=_rank, args=(rank, port, queue), daemon=True) for rank in range(2)]
    for process in processes:
        process.start()
    results = sorted(queue.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(timeout=60)
    a, lengths, groups = np.arange(7.0) ** 2, np.array([1, 2, 0, 4, 1, 3, 1]), [6, 0, 6, 0, 3, 3, 6]
    np.testing.assert_allclose(
        results[0][1] + results[1][1], normalize_advantages(a, lengths=lengths), rtol=FLOAT64, atol=FLOAT64
    )
    want = normalize_advantages(a, lengths=lengths, groups=groups, measure="trajectory")
    np.testing.assert_allclose(results[0][2] + results[1][2], want, rtol=FLOAT64, atol=FLOAT64)


@pytest.mark.parametrize("first", [True, False])
def test_a_light_outlier_costs_no_digits_wherever_it_stands(first: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    values = 1e-3 * torch.randn(1024, generator=generator, dtype=torch.float64)
    lengths = torch.randint(1, 16000, (1024,), generator=generator)
    outlier = 0 if first else -1
    values[outlier], lengths[outlier] = 1.0, 1
    got = normalize_advantages(values, lengths=lengths)
    weights, exact = [int(n) for n in lengths], [Fraction(float(v)) for v in values]
    total = sum(weights)
    mean = sum(w * v for w, v in zip(weights, exact, strict=True)) / total
    variance = sum(w * (v - mean) ** 2 for w, v in zip(weights, exact, strict=True)) / (total - 1)
    want = [float(v - mean) / (math.sqrt(variance) + 1e-8) for v in exact]
    assert got.tolist() == pytest.approx(want, rel=1e-12, abs=1e-12)
