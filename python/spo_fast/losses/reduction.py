"""From tokens to units and sequences, and from there to one number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

Aggregation = Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm"]
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)


@dataclass(frozen=True)
class Layout:
    """Which sequence each token belongs to: rows of ``[B, T]``, or spans of a packed ``[N]``."""

    shape: torch.Size
    sequences: int
    span: Tensor | None  # int64 [N]: the sequence of each packed token; None if padded

    def sum(self, x: Tensor) -> Tensor:
        """Sums of ``x`` over each sequence, ``[B]``."""
        if self.span is None:
            return x.sum(-1)
        return x.new_zeros(self.sequences).index_add(0, self.span, x)

    def spread(self, x: Tensor) -> Tensor:
        """One number a sequence, ``[B]``, given to each of its tokens."""
        if self.span is None:
            return x.unsqueeze(-1).expand(self.shape)
        return x[self.span]


def count_sequences(name: str, tokens: Tensor, cu_seqlens: Tensor | None, *, read: bool) -> int:
    """How many sequences ``tokens`` hold: ``[B, T]``, or ``[N]`` with ``cu_seqlens [B + 1]``.

    Args:
        name: how errors call ``tokens``.
        read: whether the values of ``cu_seqlens`` may be looked at (on a GPU that waits for it).

    Raises:
        ValueError: if the shapes are others, or the offsets do not run from 0 to N without falling.
    """
    if cu_seqlens is None:
        if tokens.dim() != 2:
            raise ValueError(
                f"{name}: expected shape [B, T], or [N] with cu_seqlens, got {list(tokens.shape)}"
            )
        return tokens.shape[0]
    if tokens.dim() != 1 or cu_seqlens.dim() != 1 or cu_seqlens.numel() < 1 or cu_seqlens.is_floating_point():
        raise ValueError(
            f"{name}, cu_seqlens: expected [N] and int32 [B + 1], "
            f"got {list(tokens.shape)} and {cu_seqlens.dtype} {list(cu_seqlens.shape)}"
        )
    n = tokens.numel()
    if read:
        rising = bool((cu_seqlens.diff() >= 0).all())
        if not rising or int(cu_seqlens[0]) != 0 or int(cu_seqlens[-1]) != n:
            raise ValueError(f"cu_seqlens: expected offsets rising from 0 to {n}, got {cu_seqlens.tolist()}")
    return cu_seqlens.numel() - 1


def layout_of(name: str, tokens: Tensor, cu_seqlens: Tensor | None, *, read: bool) -> Layout:
    """The layout of ``tokens``; arguments and errors are those of :func:`count_sequences`."""
    sequences = count_sequences(name, tokens, cu_seqlens, read=read)
    if cu_seqlens is None:
        return Layout(tokens.shape, sequences, None)
    ends = cu_seqlens[1:].to(torch.int64).contiguous()
    span = torch.searchsorted(ends, torch.arange(tokens.numel(), device=tokens.device), right=True)
    span = span.clamp(max=sequences - 1)  # offsets that end early, unread, must not index out of bounds
    return Layout(tokens.shape, sequences, span)


def segment_units(segment_ids: Tensor, mask: Tensor, layout: Layout) -> Tensor:
    """Number each distinct pair (sequence, segment id): int64 in [0, tokens), shaped like ``segment_ids``.

    Sorting instead of ``unique`` keeps every shape known to the host, so a GPU is not waited for.
    """
    ids = torch.where(mask, segment_ids, 0).reshape(-1).to(torch.int64)
    n = ids.numel()
    sequence = layout.spread(torch.arange(layout.sequences, device=ids.device)).reshape(-1)
    order = torch.argsort(ids, stable=True)
    order = order[torch.argsort(sequence[order], stable=True)]
    ids, sequence = ids[order], sequence[order]
    first = torch.zeros(n, dtype=torch.int64, device=ids.device)
    first[1:] = (ids[1:] != ids[:-1]) | (sequence[1:] != sequence[:-1])
    return torch.empty_like(first).scatter_(0, order, first.cumsum(0)).view(segment_ids.shape)


def unit_mean(x: Tensor, mask: Tensor, units: Tensor) -> Tensor:
    """Mean of ``x`` over the action tokens of each unit, given to every token of it.

    Args:
        x: one number a token, 0 where ``mask`` is not set; differentiated.
        mask: bool, shaped like ``x``.
        units: int64 in [0, tokens), shaped like ``x``.
    """
    flat, n = units.reshape(-1), x.numel()
    total = x.new_zeros(n).index_add(0, flat, x.reshape(-1))
    count = x.new_zeros(n).index_add(0, flat, mask.reshape(-1).to(x.dtype))
    return (total / count.clamp(min=1))[flat].view(x.shape)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of ``x`` over ``mask``; 0 if nothing is set. ``x`` is not read elsewhere."""
    return torch.where(mask, x, 0.0).sum() / mask.sum().clamp(min=1)


def aggregate(
    losses: Tensor,
    mask: Tensor,
    layout: Layout,
    aggregation: Aggregation,
    normalizer: Tensor | float | None = None,
    max_length: int | None = None,
) -> Tensor:
    r"""One loss out of one a token.

    .. math:: \mathrm{token\_mean} = \frac1n \sum_t l_t, \qquad
              \mathrm{seq\_mean\_\cdot} = \frac1n \sum_b f_b \sum_{t \in b} l_t

    with n the action tokens or the sequences that have any, and :math:`f_b` 1 (``token_sum``), one over the sequence's
    action tokens (``token_mean``) or one over ``max_length`` (``token_sum_norm``).

    Args:
        losses: one a token; read where ``mask`` is set; differentiated.
        mask: bool, shaped like ``losses``.
        layout: of both.
        aggregation: which mean.
        normalizer: n, in place of the count of this batch: with the count of the whole batch, micro-batches add up to it.
            0 gives 0.
        max_length: for ``seq_mean_token_sum_norm``.

    Returns:
        A scalar attached to ``losses``; 0 if no token is set.
    """
    losses = torch.where(mask, losses, 0.0)
    lengths = layout.sum(mask.to(losses.dtype))
    if aggregation == "token_mean":
        total, count = losses.sum(), lengths.sum()
    else:
        sums = layout.sum(losses)
        if aggregation == "seq_mean_token_mean":
            sums = sums / lengths.clamp(min=1)
        elif aggregation == "seq_mean_token_sum_norm":
            if max_length is None:
                raise ValueError(
                    "max_length: expected a number with aggregation='seq_mean_token_sum_norm', got None"
                )
            sums = sums / max_length
        total, count = sums.sum(), (lengths > 0).sum()
    if isinstance(normalizer, Tensor):
        count = normalizer.to(losses.device, losses.dtype)
    elif normalizer is not None:
        count = torch.full_like(count, normalizer, dtype=losses.dtype)
    return torch.where(count == 0, 0.0, total / torch.where(count == 0, 1, count))


def check_normalizer(normalizer: Tensor | float | None) -> list[str]:
    """What is wrong with a normalizer; a tensor's value is never read."""
    if isinstance(normalizer, Tensor):
        if normalizer.dim() == 0:
            return []
        return [f"normalizer: expected a number or a 0-d tensor, got shape {list(normalizer.shape)}"]
    if normalizer is None or (normalizer >= 0 and math.isfinite(normalizer)):
        return []
    return [f"normalizer: expected a number >= 0, got {normalizer}"]
