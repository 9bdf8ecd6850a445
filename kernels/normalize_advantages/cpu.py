"""Centring and scaling of advantages in the compiled core, for tensors on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import spo_fast._core as _core
from spo_fast.kernels.common.cpu import described, readable, threads


def fits(advantages: Tensor, process_group: Any | None) -> bool:
    """Whether the core can do it: it knows one process only."""
    return advantages.device.type == "cpu" and process_group is None


@torch.library.custom_op(
    "spo_fast::normalize_advantages",
    mutates_args=(),
    device_types="cpu",
    schema=(
        "(Tensor advantages, Tensor? lengths, Tensor? action_mask, Tensor? cu_seqlens, Tensor? groups, bool by_token, "
        "bool center, bool scale, float eps, ScalarType dtype) -> Tensor"
    ),
)
def _normalize(
    advantages: Tensor,
    lengths: Tensor | None,
    action_mask: Tensor | None,
    cu_seqlens: Tensor | None,
    groups: Tensor | None,
    by_token: bool,
    center: bool,
    scale: bool,
    eps: float,
    dtype: torch.dtype,
) -> Tensor:
    out = torch.empty(advantages.shape, dtype=dtype)
    arrays = [readable(x) for x in (advantages, lengths, action_mask, cu_seqlens, groups)]
    described_arrays = [described(x) for x in arrays]
    _core.normalize_advantages(*described_arrays, by_token, center, scale, eps, described(out), threads())  # type: ignore[call-arg]
    return out


@_normalize.register_fake
def _(advantages: Tensor, *_others: Any) -> Tensor:
    return advantages.new_empty(advantages.shape, dtype=_others[-1])


def normalize_advantages(
    advantages: Tensor,
    lengths: Tensor | None,
    action_mask: Tensor | None,
    cu_seqlens: Tensor | None,
    groups: Tensor | None,
    *,
    by_token: bool,
    center: bool,
    scale: bool,
    eps: float,
    dtype: torch.dtype,
) -> Tensor:
    """The result, in ``dtype``, of arguments that are checked already."""
    return _normalize(
        advantages, lengths, action_mask, cu_seqlens, groups, by_token, center, scale, eps, dtype
    )
