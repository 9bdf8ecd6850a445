"""The linear head and its gradient for one block of tokens, in plain torch."""

from __future__ import annotations

from torch import Tensor

from spo_fast.kernels.token_logprob.reference import compute_dtype


def head_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, logit_scale: float) -> Tensor:
    """logit_scale (hidden W^T + bias) of ``hidden [n, H]``, in the compute dtype ``[n, V]``."""
    logits = (hidden @ weight.T).to(compute_dtype(hidden.dtype))
    if bias is not None:
        logits += bias
    return logits if logit_scale == 1.0 else logits.mul_(logit_scale)


def add_head_gradients(
    grad_logits: Tensor,
    hidden: Tensor,
    weight: Tensor,
    logit_scale: float,
    grad_weight: Tensor | None,
    grad_bias: Tensor | None,
    *,
    with_hidden: bool,
) -> Tensor | None:
    """Add this block's share to ``grad_weight`` and ``grad_bias``; return the gradient of ``hidden [n, H]``.

    Args:
        grad_logits: gradient of :func:`head_logits`, ``[n, V]``, compute dtype; overwritten.
    """
    grad_product = grad_logits if logit_scale == 1.0 else grad_logits.mul_(logit_scale)
    if grad_bias is not None:
        grad_bias += grad_product.sum(0)
    grad_product = grad_product.to(weight.dtype)
    if grad_weight is not None:
        grad_weight += grad_product.T @ hidden
    return grad_product @ weight if with_hidden else None
