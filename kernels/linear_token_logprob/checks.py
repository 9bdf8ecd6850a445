"""Argument checks of linear_token_logprobs, and which rows it multiplies."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from spo_fast.kernels.common.rows import Rows, may_sync, select_rows
from spo_fast.kernels.token_logprob.checks import LOGIT_DTYPES


def check_arguments(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    row_index: Tensor | None,
    logit_scale: float,
    chunk_tokens: int | None,
    chunk_vocab: int | None,
) -> None:
    """Raise a ValueError that names everything wrong with what only the linear form takes."""
    faults = []
    if hidden.dtype not in LOGIT_DTYPES:
        faults.append(f"hidden: expected a floating tensor, got {hidden.dtype}")
    if weight.dim() != 2 or weight.shape[0] == 0 or hidden.dim() == 0 or hidden.shape[-1] != weight.shape[-1]:
        faults.append(
            f"hidden, lm_head_weight: expected [..., H] and [V, H], got {list(hidden.shape)} and {list(weight.shape)}"
        )
    elif bias is not None and bias.shape != weight.shape[:1]:
        faults.append(f"bias: expected shape {list(weight.shape[:1])}, got {list(bias.shape)}")
    if weight.dtype != hidden.dtype and not torch.is_autocast_enabled(hidden.device.type):
        faults.append(f"lm_head_weight: expected the dtype of hidden, {hidden.dtype}, got {weight.dtype}")
    if row_index is not None and (row_index.dtype != torch.int64 or row_index.dim() != 1):
        faults.append(f"row_index: expected int64 [n], got {row_index.dtype} {list(row_index.shape)}")
    if not math.isfinite(logit_scale):
        faults.append(f"logit_scale: expected a finite number, got {logit_scale}")
    for name, chunk in (("chunk_tokens", chunk_tokens), ("chunk_vocab", chunk_vocab)):
        if chunk is not None and chunk < 1:
            faults.append(f"{name}: expected an int >= 1 or None, got {chunk}")
    if faults:
        raise ValueError("; ".join(faults))


def selected_rows(
    row_index: Tensor | None, mask: Tensor | None, lead: torch.Size, device: torch.device
) -> Rows:
    """The rows of ``row_index``, or those of the mask; checked where their values may be read."""
    if row_index is None:
        return select_rows(mask, lead, device, compact=True)
    if may_sync(row_index.device):
        n = math.prod(lead)
        if (
            bool(((row_index < 0) | (row_index >= n)).any())
            or row_index.unique().numel() != row_index.numel()
        ):
            raise ValueError(f"row_index: expected different indices in [0, {n}), got {row_index}")
        if mask is not None and not torch.equal(
            row_index.sort().values, torch.nonzero(mask.reshape(-1)).squeeze(-1)
        ):
            raise ValueError("row_index: expected the indices at which action_mask is non-zero, got others")
    return Rows(row_index, None)
