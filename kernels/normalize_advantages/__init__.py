"""Centring and scaling of advantages under a choice of measure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spo_fast.kernels.common.rows import may_sync
from spo_fast.kernels.normalize_advantages import cpu
from spo_fast.kernels.normalize_advantages.reference import (
    MEASURES,
    Measure,
    Units,
    group_statistics,
    normalize,
)
from spo_fast.losses.reduction import Layout, count_sequences, layout_of

__all__ = ["normalize_advantages"]


def normalize_advantages(
    advantages: Any,
    *,
    lengths: Any = None,
    action_mask: Any = None,
    cu_seqlens: Any = None,
    measure: Measure = "action_token",
    center: bool = True,
    scale: bool = True,
    groups: Any = None,
    eps: float = 1e-8,
    process_group: Any | None = None,
) -> Any:
    """See :func:`spo_fast.normalize_advantages`."""
    faults = [] if measure in MEASURES else [f"measure: expected one of {MEASURES}, got {measure!r}"]
    if not eps >= 0:
        faults.append(f"eps: expected a number >= 0, got {eps}")
    if lengths is not None and action_mask is not None:
        faults.append(
            "lengths, action_mask: expected lengths (one value a segment) or action_mask (one a token), got both"
        )
    if cu_seqlens is not None and action_mask is None:
        faults.append("action_mask: expected a tensor with cu_seqlens, got None")
    if faults:
        raise ValueError("; ".join(faults))
    if isinstance(advantages, Tensor):
        tensors = (advantages.detach(), lengths, action_mask, cu_seqlens, groups)
        with torch.no_grad():
            return _normalize(*tensors, measure, center, scale, eps, process_group)

    if process_group is not None:
        raise ValueError("process_group: expected advantages to be a tensor with a process group, got numpy")
    values = np.asarray(advantages)
    result_dtype = np.float32 if values.dtype == np.float16 else values.dtype
    if values.dtype.kind in "biu":
        result_dtype = np.dtype(np.float64)
    lengths, action_mask, cu_seqlens = (
        None if x is None else torch.from_numpy(np.array(x)) for x in (lengths, action_mask, cu_seqlens)
    )
    numbers = None if groups is None else torch.from_numpy(_numbered(groups))
    tensors = (torch.from_numpy(values.astype(np.float64)), lengths, action_mask, cu_seqlens, numbers)
    result = _normalize(*tensors, measure, center, scale, eps, None)
    return result.numpy().astype(result_dtype)


def _numbered(groups: Sequence[Hashable]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Hashable groups as 0, 1, ... in order of appearance."""
    numbers: dict[Hashable, int] = {}
    listed = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
    return np.array([numbers.setdefault(group, len(numbers)) for group in listed], dtype=np.int64)


def _normalize(
    advantages: Tensor,
    lengths: Tensor | None,
    action_mask: Tensor | None,
    cu_seqlens: Tensor | None,
    groups: Tensor | None,
    measure: Measure,
    center: bool,
    scale: bool,
    eps: float,
    process_group: Any | None,
) -> Tensor:
    read = may_sync(advantages.device)
    if action_mask is None:
        if advantages.dim() != 1:
            raise ValueError(
                f"advantages: expected [S], or tokens with action_mask, got {list(advantages.shape)}"
            )
        segments = advantages.shape[0]
        lengths = None if lengths is None else _lengths(lengths, advantages, read)
    else:
        if action_mask.shape != advantages.shape:
            raise ValueError(
                f"action_mask: expected the shape of advantages, {list(advantages.shape)}, got {list(action_mask.shape)}"
            )
        segments = count_sequences("advantages", advantages, cu_seqlens, read=read)
    number, n_groups = _groups(groups, segments, advantages.device, read, process_group)
    if cpu.fits(advantages, process_group):
        by_group = None if groups is None else number
        return cpu.normalize_advantages(
            advantages,
            lengths,
            action_mask,
            cu_seqlens,
            by_group,
            by_token=measure == "action_token",
            center=center,
            scale=scale,
            eps=eps,
            dtype=_result_dtype(advantages),
        )

    values = advantages.to(torch.float64)
    if action_mask is None:
        weights = torch.ones_like(values) if lengths is None else lengths
        counted = weights > 0
        if measure == "trajectory":
            weights = counted.to(torch.float64)
        stats = group_statistics(Units(values, weights, number), n_groups, process_group)
        result = normalize(values, counted, number, stats, center, scale, eps)
    else:
        layout = layout_of("advantages", advantages, cu_seqlens, read=False)
        mask = action_mask != 0
        values = torch.where(mask, values, 0.0)
        token_number = layout.spread(number)
        if measure == "action_token":
            units = Units(values.reshape(-1), mask.reshape(-1).to(torch.float64), token_number.reshape(-1))
        else:
            units = _segment_means(values, mask, layout, number)
        stats = group_statistics(units, n_groups, process_group)
        result = normalize(values, mask, token_number, stats, center, scale, eps)
    return result.to(_result_dtype(advantages))


def _result_dtype(advantages: Tensor) -> torch.dtype:
    if not advantages.is_floating_point():
        return torch.get_default_dtype()
    return torch.float32 if advantages.dtype in (torch.float16, torch.bfloat16) else advantages.dtype


def _segment_means(values: Tensor, mask: Tensor, layout: Layout, groups: Tensor) -> Units:
    """One unit a segment that has tokens: the mean of its own, exact if they are all equal."""
    everything = torch.arange(layout.sequences, device=values.device)
    tokens = Units(
        values.reshape(-1), mask.reshape(-1).to(torch.float64), layout.spread(everything).reshape(-1)
    )
    means = group_statistics(tokens, layout.sequences).mean
    return Units(means, (layout.sum(mask.to(torch.float64)) > 0).to(torch.float64), groups)


def _lengths(lengths: Tensor, advantages: Tensor, read: bool) -> Tensor:
    lengths = torch.as_tensor(lengths, device=advantages.device)
    if lengths.shape != advantages.shape:
        raise ValueError(
            f"lengths: expected {list(advantages.shape)}, one a segment, got {list(lengths.shape)}"
        )
    if read and bool((~(lengths >= 0)).any()):
        raise ValueError(f"lengths: expected numbers >= 0, got {lengths[~(lengths >= 0)][0].item()}")
    return lengths.to(torch.float64)


def _groups(
    groups: Tensor | None, segments: int, device: torch.device, read: bool, process_group: Any | None
) -> tuple[Tensor, int]:
    """Group of each segment, and how many there may be."""
    if groups is None:
        return torch.zeros(segments, dtype=torch.int64, device=device), 1
    groups = torch.as_tensor(groups, device=device)
    if groups.shape != (segments,) or groups.is_floating_point():
        raise ValueError(
            f"groups: expected [{segments}] ints, one a segment, got {groups.dtype} {list(groups.shape)}"
        )
    groups = groups.to(torch.int64)
    if process_group is not None:
        import torch.distributed as dist

        # Ids are global and may exceed the local count: every process needs tables of one size.
        largest = groups.amax() if segments else torch.tensor(-1, device=device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=process_group)
        n_groups = int(largest) + 1
    else:
        n_groups = segments
    if read and segments and not (int(groups.min()) >= 0 and int(groups.max()) < n_groups):
        raise ValueError(
            f"groups: expected ids in [0, {n_groups}), got {int(groups.min())} to {int(groups.max())}"
        )
    return groups, n_groups
