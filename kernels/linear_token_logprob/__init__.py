"""Log-probabilities of given tokens under a linear head, without its logits."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from spo_fast.kernels.common.autograd import first_order_only
from spo_fast.kernels.common.rows import Rows, rows_per_block
from spo_fast.kernels.linear_token_logprob import cpu
from spo_fast.kernels.linear_token_logprob.checks import check_arguments, selected_rows
from spo_fast.kernels.linear_token_logprob.reference import add_head_gradients, head_logits
from spo_fast.kernels.token_logprob.checks import check_row_values, shape_faults, softcap_faults
from spo_fast.kernels.token_logprob.reference import RowStats, backward_rows, compute_dtype, forward_rows

__all__ = ["linear_token_logprobs"]


def linear_token_logprobs(
    hidden: Tensor,
    lm_head_weight: Tensor,
    token_ids: Tensor,
    *,
    bias: Tensor | None = None,
    action_mask: Tensor | None = None,
    row_index: Tensor | None = None,
    temperature: Tensor | float = 1.0,
    logit_softcap: float | None = None,
    logit_scale: float = 1.0,
    return_entropy: bool = False,
    chunk_tokens: int | None = None,
    chunk_vocab: int | None = None,
    backend: Literal["cpu", "reference"] = "reference",
) -> Tensor | tuple[Tensor, Tensor]:
    """See :func:`spo_fast.linear_token_logprobs`; ``backend`` is one that can compute it."""
    check_arguments(hidden, lm_head_weight, bias, row_index, logit_scale, chunk_tokens, chunk_vocab)
    lead = hidden.shape[:-1]
    faults = shape_faults(lead, token_ids, action_mask, temperature) + softcap_faults(logit_softcap)
    if faults:
        raise ValueError("; ".join(faults))
    if isinstance(temperature, Tensor):
        temperature = temperature.detach().expand(lead)

    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        # What autocast would do to the product, done here so that the recomputation in backward sees the same numbers.
        dtype = torch.get_autocast_dtype(device)
        hidden, lm_head_weight = hidden.to(dtype), lm_head_weight.to(dtype)
    if backend == "cpu":
        with torch.autocast(device, enabled=False):
            logprobs, entropy = cpu.LinearTokenLogprob.apply(
                hidden,
                lm_head_weight,
                bias,
                token_ids,
                action_mask,
                row_index,
                temperature,
                logit_softcap,
                float(logit_scale),
                return_entropy,
                chunk_tokens or cpu.CHUNK_TOKENS,
                chunk_vocab or cpu.CHUNK_VOCAB,
            )
        return (logprobs, entropy) if return_entropy else logprobs
    if not lead:
        lead, hidden, token_ids = torch.Size([1]), hidden.unsqueeze(0), token_ids.unsqueeze(0)
        action_mask = None if action_mask is None else action_mask.unsqueeze(0)
        temperature = temperature.unsqueeze(0) if isinstance(temperature, Tensor) else temperature
        shape = torch.Size([])
    else:
        shape = lead
    rows = selected_rows(row_index, action_mask, lead, hidden.device)
    with torch.autocast(device, enabled=False):
        logprobs, entropy = _LinearTokenLogprob.apply(
            hidden,
            lm_head_weight,
            bias,
            token_ids,
            rows.numbers,
            temperature,
            logit_softcap,
            float(logit_scale),
            return_entropy,
            chunk_tokens or rows_per_block(lm_head_weight.shape[0]),
        )
    return (logprobs.view(shape), entropy.view(shape)) if return_entropy else logprobs.view(shape)


class _LinearTokenLogprob(torch.autograd.Function):
    """Keeps its inputs and three numbers a row; logits exist one block of tokens at a time, in both passes."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        token_ids: Tensor,
        index: Tensor,
        temperature: Tensor | float,
        softcap: float | None,
        logit_scale: float,
        with_entropy: bool,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        lead, dtype = hidden.shape[:-1], compute_dtype(hidden.dtype)
        rows = Rows(index, None)
        ids = rows.take(token_ids, lead).long()
        heat = rows.take(temperature, lead).to(dtype) if isinstance(temperature, Tensor) else None
        check_row_values(ids, weight.shape[0], 1.0 if heat is None else heat)

        logprobs, entropy = (torch.zeros(lead, dtype=dtype, device=hidden.device) for _ in range(2))
        stats = RowStats(
            *(torch.empty(ids.numel(), dtype=dtype, device=hidden.device) for _ in RowStats._fields)
        )
        for start, block in zip(range(0, ids.numel(), chunk), rows.blocks(chunk), strict=True):
            part = slice(start, start + chunk)
            values, block_stats = forward_rows(
                head_logits(block.take(hidden, lead), weight, bias, logit_scale),
                ids[part],
                temperature if not isinstance(temperature, Tensor) else heat[part],  # type: ignore[index]
                softcap,
                with_entropy=with_entropy,
            )
            for whole, piece in zip(stats, block_stats, strict=True):
                whole[part] = piece
            block.put(logprobs, lead, values)
            block.put(entropy, lead, block_stats.entropy)

        ctx.set_materialize_grads(False)
        ctx.save_for_backward(hidden, weight, bias, ids, heat, index, *stats)
        ctx.options = (None if heat is not None else temperature, softcap, logit_scale, chunk)
        if not with_entropy:
            ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(
        ctx: Any, grad_logprobs: Tensor | None, grad_entropy: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        if grad_logprobs is None and grad_entropy is None:
            return (None,) * 10
        hidden, weight, bias, ids, heat, index, *stats = ctx.saved_tensors
        temperature, softcap, logit_scale, chunk = ctx.options
        needed = ctx.needs_input_grad[:3]
        lead, dtype = hidden.shape[:-1], stats[0].dtype
        rows = Rows(index, None)
        with torch.no_grad(), torch.autocast(hidden.device.type, enabled=False):
            grad_hidden = (
                torch.zeros_like(hidden, memory_format=torch.contiguous_format) if needed[0] else None
            )
            # Sums over all blocks stay in the compute dtype until the end.
            grad_weight = torch.zeros_like(weight, dtype=dtype) if needed[1] else None
            grad_bias = torch.zeros_like(bias, dtype=dtype) if needed[2] else None
            for start, block in zip(range(0, ids.numel(), chunk), rows.blocks(chunk), strict=True):
                part = slice(start, start + chunk)
                block_hidden = block.take(hidden, lead)
                grad_logits = backward_rows(
                    head_logits(block_hidden, weight, bias, logit_scale),
                    ids[part],
                    temperature if heat is None else heat[part],
                    softcap,
                    RowStats(*(s[part] for s in stats)),
                    *(None if g is None else block.take(g, lead) for g in (grad_logprobs, grad_entropy)),
                )
                rows_gradient = add_head_gradients(
                    grad_logits,
                    block_hidden,
                    weight,
                    logit_scale,
                    grad_weight,
                    grad_bias,
                    with_hidden=needed[0],
                )
                if grad_hidden is not None and rows_gradient is not None:
                    block.put(grad_hidden, lead, rows_gradient)
        sources = (hidden, weight, bias, grad_logprobs, grad_entropy)
        gradients = [
            None if g is None else first_order_only("linear_token_logprobs", g.to(x.dtype), *sources)
            for g, x in ((grad_hidden, hidden), (grad_weight, weight), (grad_bias, bias))
        ]
        return *gradients, *(None,) * 7
