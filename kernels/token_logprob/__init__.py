"""Log-probabilities of given tokens under logits."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from spo_fast.kernels.common.autograd import first_order_only
from spo_fast.kernels.common.rows import Rows, rows_per_block, select_rows
from spo_fast.kernels.token_logprob import cpu
from spo_fast.kernels.token_logprob.checks import check_arguments, check_row_values
from spo_fast.kernels.token_logprob.reference import RowStats, backward_rows, compute_dtype, forward_rows

__all__ = ["token_logprobs"]


def token_logprobs(
    logits: Tensor,
    token_ids: Tensor,
    *,
    action_mask: Tensor | None = None,
    temperature: Tensor | float = 1.0,
    logit_softcap: float | None = None,
    return_entropy: bool = False,
    inplace_backward: bool = False,
    backend: Literal["cpu", "reference"] = "reference",
) -> Tensor | tuple[Tensor, Tensor]:
    """See :func:`spo_fast.token_logprobs`; ``backend`` is one that can compute it."""
    lead = logits.shape[:-1]
    check_arguments(logits, token_ids, action_mask, temperature, logit_softcap, inplace_backward)
    if not lead:  # a single row
        logits, token_ids = logits.unsqueeze(0), token_ids.unsqueeze(0)
        action_mask = None if action_mask is None else action_mask.unsqueeze(0)
    if isinstance(temperature, Tensor):
        temperature = temperature.detach().expand(token_ids.shape)

    function = cpu.TokenLogprob if backend == "cpu" else _TokenLogprob
    logprobs, entropy = function.apply(
        logits, token_ids, action_mask, temperature, logit_softcap, return_entropy, inplace_backward
    )
    if return_entropy:
        return logprobs.view(lead), entropy.view(lead)
    return logprobs.view(lead)


class _TokenLogprob(torch.autograd.Function):
    """Keeps the caller's logits and three numbers a row, and recomputes the rest block by block."""

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
        lead, vocabulary = logits.shape[:-1], logits.shape[-1]
        dtype = compute_dtype(logits.dtype)
        rows = select_rows(mask, lead, logits.device, compact=logits.device.type == "cpu")
        ids = rows.take(token_ids, lead).long()
        heat = rows.take(temperature, lead, fill=1).to(dtype) if isinstance(temperature, Tensor) else None
        check_row_values(ids, vocabulary, 1.0 if heat is None else heat)

        logprobs, entropy = (torch.zeros(lead, dtype=dtype, device=logits.device) for _ in range(2))
        n = ids.numel()
        stats = RowStats(*(torch.empty(n, dtype=dtype, device=logits.device) for _ in RowStats._fields))
        size = rows_per_block(vocabulary)
        for start, block in zip(range(0, n, size), rows.blocks(size), strict=True):
            part = slice(start, start + size)
            values, block_stats = forward_rows(
                block.take(logits, lead).to(dtype),
                ids[part],
                temperature if not isinstance(temperature, Tensor) else heat[part],  # type: ignore[index]
                softcap,
                with_entropy=with_entropy,
            )
            for whole, piece in zip(stats, block_stats, strict=True):
                whole[part] = piece
            block.put(logprobs, lead, _kept(values, block))
            block.put(entropy, lead, _kept(block_stats.entropy, block))

        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, ids, mask, heat, rows.numbers, rows.keep, *stats)
        ctx.options = (None if heat is not None else temperature, softcap, inplace)
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
        logits, ids, mask, heat, numbers, keep, *stats = ctx.saved_tensors
        temperature, softcap, inplace = ctx.options
        lead, vocabulary = logits.shape[:-1], logits.shape[-1]
        rows = Rows(numbers, keep)
        with torch.no_grad():
            # detach() shares storage and version counter: writing through it tells autograd that the logits are gone.
            gradient = (
                logits.detach()
                if inplace
                else torch.zeros_like(logits, memory_format=torch.contiguous_format)
            )
            size = rows_per_block(vocabulary)
            for start, block in zip(range(0, ids.numel(), size), rows.blocks(size), strict=True):
                part = slice(start, start + size)
                block_gradient = backward_rows(
                    block.take(logits, lead).to(stats[0].dtype),
                    ids[part],
                    temperature if heat is None else heat[part],
                    softcap,
                    RowStats(*(s[part] for s in stats)),
                    *(None if g is None else block.take(g, lead) for g in (grad_logprobs, grad_entropy)),
                )
                block.put(gradient, lead, block_gradient)
            if inplace:
                if mask is None:
                    gradient.add_(0)  # counts as a write even if there was no row to write
                else:
                    gradient.masked_fill_((mask == 0).unsqueeze(-1), 0)
        return first_order_only("token_logprobs", gradient, logits, grad_logprobs, grad_entropy), *nothing


def _kept(values: Tensor, block: Rows) -> Tensor:
    return values if block.keep is None else torch.where(block.keep, values, 0.0)
