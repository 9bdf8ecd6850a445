"""The policy loss and its gradients in the compiled core, for log-probs on a CPU."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

import spo_fast._core as _core
from spo_fast.kernels.common.autograd import first_order_only
from spo_fast.kernels.common.cpu import described, readable, threads
from spo_fast.losses.policy_gradient import METRICS, PolicyLossOptions, PolicyLossOutput

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

# PolicyLossOptions, field by field: an operator takes no dataclass
OPTIONS_SCHEMA = (
    "float clip_low, float clip_high, float? dual_clip, float? rollout_is_cap, float kl_coef, str kl_estimator, "
    "float kl_log_ratio_clamp, float entropy_coef, str aggregation, float? max_length, float log_ratio_clamp, "
    "str ratio_level"
)
_OPTION_NAMES = tuple(field.name for field in fields(PolicyLossOptions))

TOKENS_SCHEMA = (
    "Tensor? old_logprobs, Tensor advantages, Tensor mask, Tensor? rollout_logprobs, Tensor? ref_logprobs, "
    "Tensor? entropy, Tensor? segment_ids, Tensor? cu_seqlens, Tensor? normalizer, bool per_sequence"
)


def token_arguments(
    shape: torch.Size,
    advantages: Tensor,
    action_mask: Tensor,
    normalizer: Tensor | float | None,
    old_logprobs: Tensor | None = None,
    rollout_logprobs: Tensor | None = None,
    ref_logprobs: Tensor | None = None,
    entropy: Tensor | None = None,
    segment_ids: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
) -> tuple[Any, ...]:
    """The arguments of ``TOKENS_SCHEMA``, detached, for log-probs of this shape."""
    if normalizer is not None and not isinstance(normalizer, Tensor):
        normalizer = torch.tensor(float(normalizer), dtype=torch.float64)
    tensors: tuple[Tensor | None, ...] = (
        old_logprobs,
        advantages,
        action_mask,
        rollout_logprobs,
        ref_logprobs,
        entropy,
        segment_ids,
        cu_seqlens,
        normalizer,
    )
    detached = (None if x is None else readable(x.detach()) for x in tensors)
    return (*detached, advantages.shape != shape)


def described_tokens(tokens: tuple[Any, ...]) -> Any:
    """What :func:`token_arguments` gave, as ``spo_fast._core`` takes it."""
    return (*(described(x) for x in tokens[:-1]), tokens[-1])


def option_arguments(options: PolicyLossOptions) -> tuple[Any, ...]:
    """The arguments of ``OPTIONS_SCHEMA``."""
    return tuple(getattr(options, name) for name in _OPTION_NAMES)


def named(options: tuple[Any, ...]) -> dict[str, Any]:
    """The arguments of ``OPTIONS_SCHEMA`` by name."""
    return dict(zip(_OPTION_NAMES, options, strict=True))


def result_dtype(logprobs: Tensor) -> torch.dtype:
    """Of the loss, the metrics and the gradients before they are scaled."""
    return torch.float64 if logprobs.dtype == torch.float64 else torch.float32


@torch.library.custom_op(
    "spo_fast::policy_loss",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor logprobs, {TOKENS_SCHEMA}, bool[] needed, {OPTIONS_SCHEMA}) -> (Tensor, Tensor, Tensor, Tensor)",
)
def forward(logprobs: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss, metrics and the gradients of log-probs and entropies; a gradient that is not needed is empty."""
    tokens, needed, options = arguments[:10], arguments[10], arguments[11:]
    results = _empty_results(logprobs, needed)
    loss, metrics, by_logprobs, by_entropy = results
    _core.policy_loss(
        described(logprobs),
        described_tokens(tokens),
        named(options),
        described(by_logprobs if needed[0] else None),
        described(by_entropy if needed[1] else None),
        described(loss),
        described(metrics),
        threads(),
    )
    return results


def _empty_results(logprobs: Tensor, needed: list[bool]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dtype = result_dtype(logprobs)
    gradients = (logprobs.new_empty(logprobs.shape if need else (0,), dtype=dtype) for need in needed)
    return logprobs.new_empty((), dtype=dtype), logprobs.new_empty(len(METRICS), dtype=dtype), *gradients  # type: ignore[return-value]


@forward.register_fake
def _(logprobs: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _empty_results(logprobs, arguments[10])


class PolicyLoss(torch.autograd.Function):
    """Computes the gradients with the loss, which they scale with, and keeps them alone."""

    @staticmethod
    def forward(
        ctx: Any, logprobs: Tensor, entropy: Tensor | None, tokens: tuple[Any, ...], options: tuple[Any, ...]
    ) -> tuple[Tensor, Tensor]:
        needed = [ctx.needs_input_grad[0], ctx.needs_input_grad[1]]
        loss, metrics, *gradients = forward(logprobs, *tokens, needed, *options)
        ctx.mark_non_differentiable(metrics)
        ctx.save_for_backward(*gradients, logprobs, entropy)
        return loss, metrics

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _grad_metrics: Any) -> tuple[Tensor | None, ...]:
        *gradients, logprobs, entropy = ctx.saved_tensors
        scaled = [
            first_order_only("policy_loss", (g * grad_loss).to(x.dtype), logprobs, entropy, grad_loss)
            if need
            else None
            for g, x, need in zip(gradients, (logprobs, entropy), ctx.needs_input_grad, strict=False)
        ]
        return *scaled, None, None


def policy_loss(
    logprobs: Tensor,
    advantages: Tensor,
    action_mask: Tensor,
    options: PolicyLossOptions,
    entropy: Tensor | None,
    normalizer: Tensor | float | None,
    **tensors: Any,
) -> PolicyLossOutput:
    """The loss of arguments that are checked already."""
    tokens = token_arguments(logprobs.shape, advantages, action_mask, normalizer, entropy=entropy, **tensors)
    source = entropy if options.entropy_coef != 0 else None
    loss, metrics = PolicyLoss.apply(logprobs, source, tokens, option_arguments(options))
    return PolicyLossOutput(loss, dict(zip(METRICS, metrics.unbind(), strict=True)))
