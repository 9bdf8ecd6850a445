"""The loss in plain torch is the formula itself; see spo_fast.losses.policy_gradient."""

from __future__ import annotations

from spo_fast.losses.policy_gradient import PolicyLossOptions, PolicyLossOutput, policy_loss

__all__ = ["PolicyLossOptions", "PolicyLossOutput", "policy_loss"]
