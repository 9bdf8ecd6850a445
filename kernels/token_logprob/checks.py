"""Argument checks that token_logprob and linear_token_logprob share."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from spo_fast.kernels.common.rows import may_sync

LOGIT_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)


def check_arguments(
    logits: Tensor,
    token_ids: Tensor,
    action_mask: Tensor | None,
    temperature: Tensor | float,
    logit_softcap: float | None,
    inplace_backward: bool,
) -> None:
    """Raise a ValueError that names everything that is wrong with the arguments of ``token_logprobs``."""
    faults = (
        [] if logits.dtype in LOGIT_DTYPES else [f"logits: expected a floating tensor, got {logits.dtype}"]
    )
    if logits.dim() == 0 or logits.shape[-1] == 0:
        faults.append(f"logits: expected shape [..., V] with V >= 1, got {list(logits.shape)}")
    faults += shape_faults(logits.shape[:-1], token_ids, action_mask, temperature)
    faults += softcap_faults(logit_softcap)
    if inplace_backward and any(s == 0 and n > 1 for s, n in zip(logits.stride(), logits.shape, strict=True)):
        faults.append("inplace_backward: expected logits of their own memory, got an expanded tensor")
    if faults:
        raise ValueError("; ".join(faults))


def shape_faults(
    lead: torch.Size, token_ids: Tensor, action_mask: Tensor | None, temperature: Tensor | float
) -> list[str]:
    """What is wrong with the tensors that hold one number a row."""
    faults = []
    if token_ids.dtype not in _INTEGERS:
        faults.append(f"token_ids: expected int64, got {token_ids.dtype}")
    given = {"token_ids": token_ids, "action_mask": action_mask, "temperature": temperature}
    for name, tensor in given.items():
        if (
            isinstance(tensor, Tensor)
            and tensor.shape != lead
            and not (name == "temperature" and tensor.dim() == 0)
        ):
            faults.append(f"{name}: expected shape {list(lead)}, one a row, got {list(tensor.shape)}")
    if not isinstance(temperature, Tensor) and not (temperature > 0 and math.isfinite(temperature)):
        faults.append(f"temperature: expected a number > 0, got {temperature}")
    return faults


def softcap_faults(logit_softcap: float | None) -> list[str]:
    if logit_softcap is None or (logit_softcap > 0 and math.isfinite(logit_softcap)):
        return []
    return [f"logit_softcap: expected a number > 0 or None, got {logit_softcap}"]


def check_row_values(ids: Tensor, vocabulary: int, temperature: Tensor | float) -> None:
    """Raise for ids of rows to compute that are outside [0, V), and temperatures that are not > 0.

    On a GPU reading them would wait for it; there such a row becomes NaN unless ``SPO_FAST_CHECK=1`` asks for the wait.
    """
    if not may_sync(ids.device):
        return
    faults = []
    foreign = (ids < 0) | (ids >= vocabulary)
    if bool(foreign.any()):
        faults.append(
            f"token_ids: expected ids in [0, {vocabulary}) where action_mask is non-zero, "
            f"got {int(ids[foreign][0])} (in {int(foreign.sum())} rows)"
        )
    if isinstance(temperature, Tensor):
        wrong = ~(temperature > 0)
        if bool(wrong.any()):
            faults.append(f"temperature: expected numbers > 0, got {float(temperature[wrong][0])}")
    if faults:
        raise ValueError("; ".join(faults))
