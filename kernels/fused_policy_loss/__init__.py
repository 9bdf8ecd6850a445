"""The policy loss straight from logits: they are read once, and their gradient is written once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spo_fast.kernels.fused_policy_loss import cpu
from spo_fast.kernels.token_logprob.checks import check_arguments
from spo_fast.losses.policy_gradient import PolicyLossOptions, PolicyLossOutput, checked_layout

__all__ = ["fits", "fused_policy_loss"]


def fits(logits: Tensor, options: PolicyLossOptions, entropy: Tensor | None) -> bool:
    """Whether one pass can do it: a gradient is wanted, and a token's gradient follows from its own row.

    float16 must wait for the loss scale, which arrives after the loss. An entropy that was computed elsewhere would need
    a gradient of its own.
    """
    return (
        torch.is_grad_enabled()
        and logits.requires_grad
        and logits.device.type == "cpu"
        and logits.dtype in cpu.DTYPES
        and options.ratio_level == "token"
        and (entropy is None or options.entropy_coef == 0)
    )


def fused_policy_loss(
    logits: Tensor,
    token_ids: Tensor,
    advantages: Tensor,
    action_mask: Tensor,
    options: PolicyLossOptions,
    *,
    temperature: Tensor | float = 1.0,
    logit_softcap: float | None = None,
    inplace: bool = False,
    normalizer: Tensor | float | None = None,
    **tensors: Any,
) -> PolicyLossOutput:
    """``policy_loss`` of ``token_logprobs(logits, token_ids)`` and their entropies.

    Args:
        logits: ``[B, T, V]``, or packed ``[N, V]`` with ``cu_seqlens``, that :func:`fits`; differentiated.
        inplace: write the gradient over the logits, in this very call.
        tensors: old_logprobs, rollout_logprobs, ref_logprobs, segment_ids and cu_seqlens of ``policy_loss``.

    Raises:
        ValueError: as those functions do.
    """
    check_arguments(logits, token_ids, action_mask, temperature, logit_softcap, inplace)
    lead = logits[..., 0]
    checked_layout(
        lead,
        advantages,
        options,
        read=True,
        normalizer=normalizer,
        entropy=lead,
        action_mask=action_mask,
        **tensors,
    )
    if isinstance(temperature, Tensor):
        temperature = temperature.detach().expand(token_ids.shape)
    return cpu.fused_policy_loss(
        logits,
        token_ids,
        advantages,
        action_mask,
        options,
        temperature=temperature,
        logit_softcap=logit_softcap,
        inplace=inplace,
        normalizer=normalizer,
        **tensors,
    )
