"""Log-ratios and estimators of the divergence from a reference policy."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

KLEstimator = Literal["k1", "k2", "k3"]
KL_ESTIMATORS: tuple[KLEstimator, ...] = get_args(KLEstimator)


def log_difference(a: Tensor, b: Tensor) -> Tensor:
    """``a - b`` of log-probabilities; two equal infinities differ by 0, with gradient 0."""
    return torch.where((a == b) & a.isinf(), 0.0, a - b)


def saturate(x: Tensor, limit: float) -> Tensor:
    """``x`` clamped to +-``limit``, with gradient 0 beyond; unlike ``clamp``, NaN also reaches the gradient."""
    return torch.where(x > limit, limit, torch.where(x < -limit, -limit, x))


def kl_terms(
    logprobs: Tensor, ref_logprobs: Tensor, estimator: KLEstimator, log_ratio_clamp: float
) -> Tensor:
    r"""Each token's estimate of KL(policy, reference), for tokens drawn from the policy.

    With :math:`u = \mathrm{clamp}(\log \pi_\mathrm{ref} - \log \pi, \pm c)`: k1 :math:`= -u`, k2 :math:`= u^2 / 2`,
    k3 :math:`= e^u - u - 1`.

    Args:
        logprobs: differentiated; gradient 0 beyond the clamp.
        ref_logprobs: same shape.
        estimator: which.
        log_ratio_clamp: c.

    Source: J. Schulman, "Approximating KL divergence", 2020.
    """
    u = saturate(log_difference(ref_logprobs, logprobs), log_ratio_clamp)
    if estimator == "k1":
        return -u
    if estimator == "k2":
        return u.square() / 2
    return torch.expm1(u) - u
