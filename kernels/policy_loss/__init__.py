"""The clipped policy loss on log-probabilities."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from spo_fast.kernels.common.rows import may_sync
from spo_fast.kernels.policy_loss import cpu, reference
from spo_fast.losses.policy_gradient import PolicyLossOptions, PolicyLossOutput, checked_layout

__all__ = ["PolicyLossOptions", "PolicyLossOutput", "policy_loss"]


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor | None,
    advantages: Tensor,
    action_mask: Tensor,
    options: PolicyLossOptions,
    *,
    backend: Literal["cpu", "reference"] = "reference",
    **tensors: Any,
) -> PolicyLossOutput:
    """See :func:`spo_fast.policy_loss`; ``backend`` is one that can compute it."""
    read = may_sync(logprobs.device)
    if backend == "reference":
        return reference.policy_loss(
            logprobs, old_logprobs, advantages, action_mask, options, **tensors, read=read
        )
    checked_layout(
        logprobs,
        advantages,
        options,
        read=read,
        old_logprobs=old_logprobs,
        action_mask=action_mask,
        **tensors,
    )
    return cpu.policy_loss(logprobs, advantages, action_mask, options, old_logprobs=old_logprobs, **tensors)
