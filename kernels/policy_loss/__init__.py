"""The clipped policy loss on log-probabilities."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from spo_fast.kernels.common.rows import may_sync
from spo_fast.kernels.policy_loss import reference
from spo_fast.losses.policy_gradient import PolicyLossOptions, PolicyLossOutput

__all__ = ["PolicyLossOptions", "PolicyLossOutput", "policy_loss"]


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor | None,
    advantages: Tensor,
    action_mask: Tensor,
    options: PolicyLossOptions,
    **tensors: Any,
) -> PolicyLossOutput:
    """See :func:`spo_fast.policy_loss`; this is its reference backend."""
    return reference.policy_loss(
        logprobs, old_logprobs, advantages, action_mask, options, **tensors, read=may_sync(logprobs.device)
    )
