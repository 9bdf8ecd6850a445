"""Token log-probabilities in plain torch: the definition that every other backend is judged against."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from spo_fast.kernels.common.rows import row_sum


class RowStats(NamedTuple):
    """What the forward pass leaves for the backward pass, one number a row."""

    maximum: Tensor  # of z; 0 in rows of only -inf
    log_sum: Tensor  # log sum exp(z - maximum); 0 in rows of only -inf
    entropy: Tensor  # 0 unless it was asked for


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64 and float32 for all else: statistics are never narrower than float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def scale(logits: Tensor, temperature: Tensor | float, softcap: float | None) -> Tensor:
    """z = softcap(logits) / temperature of ``logits [n, V]``; infinities pass unchanged."""
    z = logits
    if softcap is not None:
        z = torch.where(logits.isinf(), logits, softcap * torch.tanh(logits / softcap))
    if isinstance(temperature, Tensor):
        return z / temperature.unsqueeze(-1)
    return z if temperature == 1.0 else z / temperature


def forward_rows(
    logits: Tensor, ids: Tensor, temperature: Tensor | float, softcap: float | None, *, with_entropy: bool
) -> tuple[Tensor, RowStats]:
    r"""Log-probabilities of ``ids [n]`` under ``logits [n, V]``.

    .. math:: \log p_a = (z_a - m) - \log \sum_j e^{z_j - m}, \qquad m = \max_j z_j

    in this order: z - lse would cancel to the rounding of lse. A row whose id is outside [0, V) becomes NaN.
    """
    z = scale(logits, temperature, softcap)
    maximum = z.amax(-1)
    nothing = maximum == -math.inf  # probability nowhere
    maximum = torch.where(nothing, 0.0, maximum)
    foreign = (ids < 0) | (ids >= logits.shape[-1])
    maximum = torch.where(foreign, math.nan, maximum)
    ids = torch.where(foreign, 0, ids)

    shifted = z - maximum.unsqueeze(-1)
    log_sum = torch.where(nothing, 0.0, row_sum(shifted.exp()).log())
    logprobs = shifted.gather(-1, ids.unsqueeze(-1)).squeeze(-1) - log_sum
    if not with_entropy:
        return logprobs, RowStats(maximum, log_sum, torch.zeros_like(log_sum))
    log_p = shifted.sub_(log_sum.unsqueeze(-1))
    entropy = row_sum(torch.where(z == -math.inf, 0.0, -log_p * log_p.exp()))
    return logprobs, RowStats(maximum, log_sum, entropy)


def backward_rows(
    logits: Tensor,
    ids: Tensor,
    temperature: Tensor | float,
    softcap: float | None,
    stats: RowStats,
    grad_logprobs: Tensor | None,
    grad_entropy: Tensor | None,
) -> Tensor:
    r"""Gradient with respect to ``logits [n, V]``.

    With upstream :math:`g` of the log-prob of token :math:`a` and :math:`h` of the entropy :math:`H`,

    .. math:: \partial / \partial z_j = g ([j = a] - p_j) - h p_j (\log p_j + H)

    and the chain through softcap and temperature; exactly 0 at infinite logits that make no NaN.
    """
    log_p = scale(logits, temperature, softcap) - stats.maximum.unsqueeze(-1) - stats.log_sum.unsqueeze(-1)
    p = log_p.exp()
    gradient = torch.zeros_like(p)
    if grad_logprobs is not None:
        index = torch.where((ids < 0) | (ids >= logits.shape[-1]), 0, ids).unsqueeze(-1)
        chosen = log_p.gather(-1, index)
        g = torch.where(chosen == -math.inf, 0.0, grad_logprobs.unsqueeze(-1))
        # 1 - p of the chosen token as -expm1(log p): the difference loses everything when p is near 1
        gradient = (-g * p).scatter_(-1, index, -g * torch.expm1(chosen))
    if grad_entropy is not None:
        gradient -= grad_entropy.unsqueeze(-1) * p * (log_p + stats.entropy.unsqueeze(-1))
    if softcap is not None:
        gradient *= 1.0 - torch.tanh(logits / softcap).square_()
    if isinstance(temperature, Tensor):
        gradient /= temperature.unsqueeze(-1)
    elif temperature != 1.0:
        gradient /= temperature
    return torch.where(logits == -math.inf, 0.0, gradient)
