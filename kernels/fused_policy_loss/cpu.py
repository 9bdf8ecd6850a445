"""Logits to loss and gradient in the compiled core: each row's gradient is written while the row is in the cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import spo_fast._core as _core
from spo_fast.kernels.common.autograd import first_order_only
from spo_fast.kernels.common.cpu import described, threads
from spo_fast.kernels.policy_loss.cpu import (
    OPTIONS_SCHEMA,
    TOKENS_SCHEMA,
    described_tokens,
    named,
    option_arguments,
    token_arguments,
)
from spo_fast.kernels.token_logprob.cpu import (
    ROWS_SCHEMA,
    described_rows,
    gradient_memory,
    row_arguments,
)
from spo_fast.losses.policy_gradient import METRICS, PolicyLossOptions, PolicyLossOutput

DTYPES = (torch.float32, torch.bfloat16)

_ARGUMENTS = f"{ROWS_SCHEMA}, {TOKENS_SCHEMA.replace('Tensor mask', 'Tensor action_mask')}, {OPTIONS_SCHEMA}"


def write_loss(
    logits: Tensor, arguments: tuple[Any, ...], gradient: Tensor, *, clean: bool
) -> tuple[Tensor, Tensor]:
    """Loss and metrics; the gradient goes to ``gradient``, shaped like the logits and perhaps the logits themselves.

    Args:
        arguments: those of ``ROWS_SCHEMA``, ``TOKENS_SCHEMA`` and ``OPTIONS_SCHEMA``.
        clean: ``gradient`` is 0 already, so masked rows need no writing.
    """
    rows, tokens, options = arguments[:5], arguments[5:15], arguments[15:]
    loss, metrics = _empty_results(logits)
    _core.fused_policy_loss(
        described_rows(logits, *rows),
        described_tokens(tokens),
        named(options),
        described(gradient),
        clean,
        described(loss),
        described(metrics),
        threads(),
    )
    return loss, metrics


def _empty_results(logits: Tensor) -> tuple[Tensor, Tensor]:
    return logits.new_empty((), dtype=torch.float32), logits.new_empty(len(METRICS), dtype=torch.float32)


@torch.library.custom_op(
    "spo_fast::fused_policy_loss",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor logits, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor)",
)
def forward(logits: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, metrics, and the gradient in memory of its own."""
    gradient, clean = gradient_memory(logits, arguments[1])
    return *write_loss(logits, arguments, gradient, clean=clean), gradient


@forward.register_fake
def _(logits: Tensor, *_arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    return *_empty_results(logits), logits.new_empty(logits.shape)


@torch.library.custom_op(
    "spo_fast::fused_policy_loss_",
    mutates_args={"logits"},
    device_types="cpu",
    schema=f"(Tensor(a!) logits, {_ARGUMENTS}) -> (Tensor, Tensor)",
)
def forward_inplace(logits: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    """Loss and metrics; the gradient replaces the logits."""
    return write_loss(logits, arguments, logits, clean=False)


@forward_inplace.register_fake
def _(logits: Tensor, *_arguments: Any) -> tuple[Tensor, Tensor]:
    return _empty_results(logits)


@torch.library.custom_op(
    "spo_fast::rescale_",
    mutates_args={"x"},
    device_types="cpu",
    schema="(Tensor(a!) x, Tensor factor) -> ()",
)
def rescale(x: Tensor, factor: Tensor) -> None:
    """Multiply in place; nothing is touched if the factor is 1."""
    if factor.item() != 1:
        x.mul_(factor)


class FusedPolicyLoss(torch.autograd.Function):
    """Keeps the gradient that came with the loss, and hands it over once."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, inplace: bool, arguments: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        if inplace:
            # detach() shares storage and version counter: autograd learns that the logits are gone.
            gradient = logits.detach()
            loss, metrics = forward_inplace(gradient, *arguments)
        else:
            loss, metrics, gradient = forward(logits.detach(), *arguments)
        ctx.mark_non_differentiable(metrics)
        ctx.save_for_backward(gradient)
        return loss, metrics

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _grad_metrics: Any) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        with torch.no_grad():
            rescale(gradient, grad_loss)  # counts as a write: a second backward pass raises
        return first_order_only("SPOLoss", gradient, grad_loss), None, None


def fused_policy_loss(
    logits: Tensor,
    token_ids: Tensor,
    advantages: Tensor,
    action_mask: Tensor,
    options: PolicyLossOptions,
    *,
    temperature: Tensor | float,
    logit_softcap: float | None,
    inplace: bool,
    normalizer: Tensor | float | None,
    **tensors: Any,
) -> PolicyLossOutput:
    """The loss of arguments that are checked already."""
    rows = row_arguments(token_ids, action_mask, temperature, logit_softcap)
    tokens = token_arguments(token_ids.shape, advantages, action_mask, normalizer, **tensors)
    loss, metrics = FusedPolicyLoss.apply(logits, inplace, (*rows, *tokens, *option_arguments(options)))
    return PolicyLossOutput(loss, dict(zip(METRICS, metrics.unbind(), strict=True)))
