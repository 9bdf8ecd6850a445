"""Token log-probabilities in the compiled core, for logits on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import spo_fast._core as _core
from spo_fast.kernels.common.autograd import first_order_only
from spo_fast.kernels.common.cpu import described, readable, threads, untouched_zeros

DTYPES = (torch.float32, torch.bfloat16, torch.float16)

ROWS_SCHEMA = "Tensor token_ids, Tensor? mask, Tensor? temperatures, float temperature, float softcap"


def row_arguments(
    token_ids: Tensor, mask: Tensor | None, temperature: Tensor | float, softcap: float | None
) -> tuple[Any, ...]:
    """The arguments of ``ROWS_SCHEMA``."""
    single = not isinstance(temperature, Tensor)
    return (
        readable(token_ids),
        readable(mask),
        None if single else temperature,
        float(temperature) if single else 1.0,
        softcap or 0.0,
    )


def gradient_memory(logits: Tensor, mask: Tensor | None) -> tuple[Tensor, bool]:
    """Memory for a gradient shaped like ``logits``, and whether it is 0 already."""
    if mask is None:
        return torch.empty(logits.shape, dtype=logits.dtype), False
    return untouched_zeros(logits.shape, logits.dtype), True


def described_rows(
    logits: Tensor,
    token_ids: Tensor,
    mask: Tensor | None,
    temperatures: Tensor | None,
    temperature: float,
    softcap: float,
) -> Any:
    """Rows of logits and what scores them, as ``spo_fast._core`` takes them."""
    tensors = (described(x) for x in (logits, token_ids, mask, temperatures))
    return (*tensors, temperature, softcap)


@torch.library.custom_op(
    "spo_fast::token_logprob",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor logits, {ROWS_SCHEMA}, bool with_entropy) -> (Tensor, Tensor, Tensor)",
)
def forward(
    logits: Tensor,
    token_ids: Tensor,
    mask: Tensor | None,
    temperatures: Tensor | None,
    temperature: float,
    softcap: float,
    with_entropy: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs, entropies (empty unless asked for) and float64 ``[..., 3]`` for the backward pass."""
    lead = logits.shape[:-1]
    logprobs = torch.empty(lead)
    entropy = torch.empty(lead if with_entropy else 0)
    stats = torch.empty(*lead, 3, dtype=torch.float64)
    _core.token_logprob_forward(
        described_rows(logits, token_ids, mask, temperatures, temperature, softcap),
        described(logprobs),
        described(entropy if with_entropy else None),
        described(stats),
        threads(),
    )
    return logprobs, entropy, stats


@forward.register_fake
def _(
    logits: Tensor,
    token_ids: Tensor,
    mask: Any,
    temperatures: Any,
    temperature: Any,
    softcap: Any,
    with_entropy: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    lead = logits.shape[:-1]
    return (
        logits.new_empty(lead, dtype=torch.float32),
        logits.new_empty(lead if with_entropy else 0, dtype=torch.float32),
        logits.new_empty((*lead, 3), dtype=torch.float64),
    )


def write_gradient(
    out: Tensor,
    rows: tuple[Any, ...],
    stats: Tensor,
    grad_logprobs: Tensor | None,
    grad_entropy: Tensor | None,
    *,
    clean: bool,
) -> Tensor:
    """Write the gradient of ``rows``, the arguments of :func:`described_rows`, to ``out``, shaped like the logits.

    Args:
        out: any strides, of memory of its own; may be the logits themselves.
        clean: ``out`` is 0 already, so masked rows need no writing.
    """
    _core.token_logprob_backward(
        described_rows(*rows),
        described(stats),
        described(grad_logprobs),
        described(grad_entropy),
        described(out),
        clean,
        threads(),
    )
    return out


@torch.library.custom_op(
    "spo_fast::token_logprob_backward",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor logits, {ROWS_SCHEMA}, Tensor stats, Tensor? grad_logprobs, Tensor? grad_entropy) -> Tensor",
)
def backward(
    logits: Tensor,
    token_ids: Tensor,
    mask: Tensor | None,
    temperatures: Tensor | None,
    temperature: float,
    softcap: float,
    stats: Tensor,
    grad_logprobs: Tensor | None,
    grad_entropy: Tensor | None,
) -> Tensor:
    """The gradient in memory of its own."""
    rows = (logits, token_ids, mask, temperatures, temperature, softcap)
    out, clean = gradient_memory(logits, mask)
    return write_gradient(out, rows, stats, grad_logprobs, grad_entropy, clean=clean)


@backward.register_fake
def _(logits: Tensor, *_others: Any) -> Tensor:
    return logits.new_empty(logits.shape)


@torch.library.custom_op(
    "spo_fast::token_logprob_backward_",
    mutates_args={"logits"},
    device_types="cpu",
    schema=f"(Tensor(a!) logits, {ROWS_SCHEMA}, Tensor stats, Tensor? grad_logprobs, Tensor? grad_entropy) -> ()",
)
def backward_inplace(
    logits: Tensor,
    token_ids: Tensor,
    mask: Tensor | None,
    temperatures: Tensor | None,
    temperature: float,
    softcap: float,
    stats: Tensor,
    grad_logprobs: Tensor | None,
    grad_entropy: Tensor | None,
) -> None:
    """The gradient over the logits; their version counter counts it."""
    rows = (logits, token_ids, mask, temperatures, temperature, softcap)
    write_gradient(logits, rows, stats, grad_logprobs, grad_entropy, clean=False)


class TokenLogprob(torch.autograd.Function):
    """Keeps the caller's logits and three numbers a row."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        token_ids: Tensor,
        mask: Tensor | None,
        temperature: Tensor | float,
        softcap: float | None,
        with_entropy: bool,
        inplace: bool,
    ) -> tuple[Tensor, Tensor]:
        rows = row_arguments(token_ids, mask, temperature, softcap)
        logprobs, entropy, stats = forward(logits, *rows, with_entropy)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, *rows[:3], stats)
        ctx.numbers, ctx.inplace = rows[3:], inplace
        if not with_entropy:
            ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(
        ctx: Any, grad_logprobs: Tensor | None, grad_entropy: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        nothing = (None,) * 6
        if grad_logprobs is None and grad_entropy is None:
            return None, *nothing
        logits, token_ids, mask, temperatures, stats = ctx.saved_tensors
        rest = (token_ids, mask, temperatures, *ctx.numbers, stats, grad_logprobs, grad_entropy)
        with torch.no_grad():
            if ctx.inplace:
                # detach() shares storage and version counter: autograd learns that the logits are gone.
                gradient = logits.detach()
                backward_inplace(gradient, *rest)
            else:
                gradient = backward(logits.detach(), *rest)
        return first_order_only("token_logprobs", gradient, logits, grad_logprobs, grad_entropy), *nothing
