"""The clipped policy-gradient loss and its terms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from spo_fast.losses.kl import KL_ESTIMATORS, KLEstimator, kl_terms, log_difference, saturate
from spo_fast.losses.reduction import (
    AGGREGATIONS,
    Aggregation,
    Layout,
    aggregate,
    check_normalizer,
    layout_of,
    masked_mean,
    segment_units,
    unit_mean,
)

RatioLevel = Literal["token", "sequence", "segment"]
RATIO_LEVELS: tuple[RatioLevel, ...] = get_args(RatioLevel)


METRICS = (
    "clip_fraction",
    "dual_clip_fraction",
    "approx_kl",
    "ratio_mean",
    "ratio_max",
    "kl_mean",
    "rollout_is_mean",
    "ess",
    "tokens",
)


class PolicyLossOutput(NamedTuple):
    """A loss to differentiate and what to log about it.

    ``metrics`` holds detached 0-d tensors on the loss's device, named by :data:`METRICS`.
    """

    loss: Tensor
    metrics: dict[str, Tensor]


@dataclass(frozen=True)
class PolicyLossOptions:
    """The options of :func:`spo_fast.policy_loss` that are not data; checked when made."""

    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float | None = 2.0
    rollout_is_cap: float | None = 2.0
    kl_coef: float = 0.0
    kl_estimator: KLEstimator = "k3"
    kl_log_ratio_clamp: float = 10.0
    entropy_coef: float = 0.0
    aggregation: Aggregation = "token_mean"
    max_length: int | None = None
    log_ratio_clamp: float = 20.0
    ratio_level: RatioLevel = "token"

    def __post_init__(self) -> None:
        rules = {
            "clip_low": (0 <= self.clip_low <= 1, "a number in [0, 1]"),
            "clip_high": (0 <= self.clip_high < math.inf, "a number >= 0"),
            "dual_clip": (self.dual_clip is None or 1 < self.dual_clip < math.inf, "a number > 1 or None"),
            "rollout_is_cap": (
                self.rollout_is_cap is None or 0 < self.rollout_is_cap < math.inf,
                "a number > 0 or None",
            ),
            "kl_coef": (math.isfinite(self.kl_coef), "a finite number"),
            "kl_estimator": (self.kl_estimator in KL_ESTIMATORS, f"one of {KL_ESTIMATORS}"),
            "kl_log_ratio_clamp": (0 < self.kl_log_ratio_clamp < math.inf, "a number > 0"),
            "entropy_coef": (math.isfinite(self.entropy_coef), "a finite number"),
            "aggregation": (self.aggregation in AGGREGATIONS, f"one of {AGGREGATIONS}"),
            "max_length": (
                (self.max_length is None and self.aggregation != "seq_mean_token_sum_norm")
                or (self.max_length is not None and self.max_length > 0),
                "a number > 0 (needed by aggregation='seq_mean_token_sum_norm')",
            ),
            "log_ratio_clamp": (0 < self.log_ratio_clamp < math.inf, "a number > 0"),
            "ratio_level": (self.ratio_level in RATIO_LEVELS, f"one of {RATIO_LEVELS}"),
        }
        faults = [
            f"{name}: expected {expected}, got {getattr(self, name)!r}"
            for name, (good, expected) in rules.items()
            if not good
        ]
        if faults:
            raise ValueError("; ".join(faults))


class ClippedTerms(NamedTuple):
    """Each token's surrogate loss and how it came about."""

    losses: Tensor
    ratio: Tensor  # detached
    clipped: Tensor  # bool: the clipped branch was taken
    capped: Tensor  # bool: the dual clip holds


def clipped_terms(
    log_ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float, dual_clip: float | None
) -> ClippedTerms:
    r"""Clipped surrogate loss of each token, with :math:`r` the exponential of ``log_ratio``.

    .. math:: L = \max(-A r, -A\,\mathrm{clip}(r, 1 - \epsilon_-, 1 + \epsilon_+)), \qquad
              L \leftarrow \min(L, -c A) \text{ where } A < 0

    A = 0 gives 0 with gradient 0, whatever r is, NaN included.

    Args:
        log_ratio: differentiated.
        advantages: A, same shape, not differentiated.
        clip_low, clip_high: the two epsilons.
        dual_clip: c; ``None``: no cap.

    Source: PPO (arXiv 1707.06347) eq. 7; DAPO (arXiv 2503.14476) for two epsilons; dual clip (arXiv 1912.09729) eq. 5.
    """
    with torch.no_grad():
        ratio = torch.exp(log_ratio)
        bounded = -advantages * torch.clamp(ratio, 1 - clip_low, 1 + clip_high)
        clipped = bounded > -advantages * ratio
        capped = torch.zeros_like(clipped)
        if dual_clip is not None:
            capped = (advantages < 0) & (-advantages * ratio > -dual_clip * advantages)
            capped |= (advantages < 0) & clipped & (bounded > -dual_clip * advantages)
    # The gradient flows through r alone, and only where neither bound holds: elsewhere exp must not even be
    # differentiated, for 0 times its overflow is NaN.
    flows = ~(clipped | capped | (advantages == 0))
    losses = torch.where(clipped, bounded, -advantages * torch.exp(torch.where(flows, log_ratio, 0.0)))
    if dual_clip is not None:
        losses = torch.where(capped, -dual_clip * advantages, losses)
    return ClippedTerms(losses, ratio, clipped, capped)


def rollout_weights(old_logprobs: Tensor, rollout_logprobs: Tensor, cap: float) -> Tensor:
    """Truncated importance weight exp(min(old - rollout, log cap)) of each token; carries no gradient."""
    with torch.no_grad():
        return torch.exp(torch.clamp(log_difference(old_logprobs, rollout_logprobs), max=math.log(cap)))


def checked_layout(
    logprobs: Tensor,
    advantages: Tensor,
    options: PolicyLossOptions,
    *,
    normalizer: Tensor | float | None,
    cu_seqlens: Tensor | None,
    read: bool,
    **tokens: Tensor | None,
) -> Layout:
    """The layout of the arguments of :func:`policy_loss`; ``tokens``: those shaped like ``logprobs``, by name.

    Raises:
        ValueError: naming everything that is wrong with them.
    """
    layout = layout_of("logprobs", logprobs, cu_seqlens, read=read)
    faults = [
        f"{name}: expected the shape of logprobs, {list(logprobs.shape)}, got {list(x.shape)}"
        for name, x in tokens.items()
        if x is not None and x.shape != logprobs.shape
    ]
    if not logprobs.is_floating_point():
        faults.append(f"logprobs: expected a floating tensor, got {logprobs.dtype}")
    if options.entropy_coef != 0 and tokens["entropy"] is None:
        faults.append(f"entropy: expected a tensor with entropy_coef={options.entropy_coef}, got None")
    if options.kl_coef != 0 and tokens["ref_logprobs"] is None:
        faults.append(f"ref_logprobs: expected a tensor with kl_coef={options.kl_coef}, got None")
    segment_ids = tokens["segment_ids"]
    if options.ratio_level == "segment" and (segment_ids is None or segment_ids.is_floating_point()):
        got = None if segment_ids is None else segment_ids.dtype
        faults.append(f"segment_ids: expected ints with ratio_level='segment', got {got}")
    faults += check_normalizer(normalizer)
    per_sequence = advantages.shape in ((layout.sequences,), (layout.sequences, 1))
    if advantages.shape != logprobs.shape and not per_sequence:
        faults.append(
            f"advantages: expected {list(logprobs.shape)}, one a token, or [{layout.sequences}] or "
            f"[{layout.sequences}, 1], one a sequence, got {list(advantages.shape)}"
        )
    if faults:
        raise ValueError("; ".join(faults))
    return layout


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor | None,
    advantages: Tensor,
    action_mask: Tensor,
    options: PolicyLossOptions,
    *,
    rollout_logprobs: Tensor | None = None,
    ref_logprobs: Tensor | None = None,
    entropy: Tensor | None = None,
    normalizer: Tensor | float | None = None,
    segment_ids: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    read: bool = False,
) -> PolicyLossOutput:
    """The definition of :func:`spo_fast.policy_loss`; ``read``: whether checks may look at the values of ``cu_seqlens``."""
    layout = checked_layout(
        logprobs,
        advantages,
        options,
        normalizer=normalizer,
        cu_seqlens=cu_seqlens,
        read=read,
        old_logprobs=old_logprobs,
        action_mask=action_mask,
        rollout_logprobs=rollout_logprobs,
        ref_logprobs=ref_logprobs,
        entropy=entropy,
        segment_ids=segment_ids,
    )
    dtype = torch.float64 if logprobs.dtype == torch.float64 else torch.float32
    mask = action_mask != 0

    def clean(x: Tensor) -> Tensor:
        # before any arithmetic, so that neither values nor gradients of masked positions can reach anything
        return torch.where(mask, x.to(dtype), 0.0)

    lp = clean(logprobs)
    old = lp.detach() if old_logprobs is None else clean(old_logprobs.detach())
    a = advantages.detach()
    a = clean(a if a.shape == logprobs.shape else layout.spread(a.reshape(-1)))

    unit_log_ratio = _unit_log_ratio(log_difference(lp, old), mask, layout, options.ratio_level, segment_ids)
    log_ratio = saturate(unit_log_ratio, options.log_ratio_clamp)

    weights = None
    if rollout_logprobs is not None and options.rollout_is_cap is not None:
        weights = rollout_weights(old, clean(rollout_logprobs.detach()), options.rollout_is_cap)

    terms = clipped_terms(log_ratio, a, options.clip_low, options.clip_high, options.dual_clip)
    losses = terms.losses
    if weights is not None:
        losses = losses * torch.where(a == 0, 1.0, weights)

    kl = None
    if ref_logprobs is not None:
        reference = clean(ref_logprobs.detach())
        with torch.set_grad_enabled(torch.is_grad_enabled() and options.kl_coef != 0):
            kl = kl_terms(lp, reference, options.kl_estimator, options.kl_log_ratio_clamp)
        if options.kl_coef != 0:
            losses = losses + options.kl_coef * kl
    if entropy is not None and options.entropy_coef != 0:
        losses = losses - options.entropy_coef * clean(entropy)

    loss = aggregate(losses, mask, layout, options.aggregation, normalizer, options.max_length)
    with torch.no_grad():
        metrics = _metrics(terms, log_ratio, mask, kl, weights)
    return PolicyLossOutput(loss, metrics)


def _unit_log_ratio(
    d: Tensor, mask: Tensor, layout: Layout, level: RatioLevel, segment_ids: Tensor | None
) -> Tensor:
    """The log-ratio each token shares with its unit: the mean of ``d`` over the unit's action tokens."""
    if level == "token":
        return d
    if level == "segment":
        assert segment_ids is not None
        return unit_mean(d, mask, segment_units(segment_ids, mask, layout))
    lengths = layout.sum(mask.to(d.dtype))
    return layout.spread(layout.sum(d) / lengths.clamp(min=1))


def _metrics(
    terms: ClippedTerms, log_ratio: Tensor, mask: Tensor, kl: Tensor | None, weights: Tensor | None
) -> dict[str, Tensor]:
    ratio = torch.where(mask, terms.ratio, 0.0)
    zero = torch.zeros((), dtype=ratio.dtype, device=ratio.device)
    tokens = mask.sum()
    largest = ratio.amax() if ratio.numel() else zero
    # relative to the largest: squares of ratios overflow float32 long before ratios do
    relative = ratio / torch.where(largest == 0, 1.0, largest)
    ess = relative.sum().square() / relative.square().sum() / tokens
    return {
        "clip_fraction": masked_mean(terms.clipped.to(ratio.dtype), mask),
        "dual_clip_fraction": masked_mean(terms.capped.to(ratio.dtype), mask),
        "approx_kl": masked_mean(-log_ratio, mask),
        "ratio_mean": masked_mean(ratio, mask),
        "ratio_max": largest,
        "kl_mean": zero if kl is None else masked_mean(kl, mask),
        "rollout_is_mean": masked_mean(torch.ones_like(ratio) if weights is None else weights, mask),
        "ess": torch.where(tokens > 0, ess, 0.0),
        "tokens": tokens.to(ratio.dtype),
    }
