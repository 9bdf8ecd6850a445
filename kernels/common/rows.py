"""Rows of a ``[..., V]`` tensor: which to compute, in which blocks, and sums whose bits do not depend on the others."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

# numbers in one block of rows: 64 MiB of float32, small beside the logits and large beside a kernel launch
_BLOCK_NUMBERS = 1 << 24


class Rows(NamedTuple):
    """Rows to compute, by their number in the flattened leading axes."""

    numbers: Tensor  # int64 [n]
    keep: Tensor | None  # bool [n]: rows of the mask where it was not worth a sync to leave the others out

    def blocks(self, size: int) -> Iterator[Rows]:
        """The same rows, at most ``size`` at a time."""
        for start in range(0, self.numbers.numel(), size):
            part = slice(start, start + size)
            yield Rows(self.numbers[part], None if self.keep is None else self.keep[part])

    def take(self, x: Tensor, lead: torch.Size, fill: float = 0) -> Tensor:
        """These rows of ``x [*lead, ...]``, whatever its strides; ``fill`` where they are not kept."""
        taken = x[torch.unravel_index(self.numbers, lead)]
        if self.keep is None:
            return taken
        return torch.where(self.keep.view(-1, *[1] * (taken.dim() - 1)), taken, fill)

    def put(self, x: Tensor, lead: torch.Size, values: Tensor) -> None:
        """Write ``values`` to these rows of ``x [*lead, ...]``."""
        x[torch.unravel_index(self.numbers, lead)] = values.to(x.dtype)


def select_rows(mask: Tensor | None, lead: torch.Size, device: torch.device, *, compact: bool) -> Rows:
    """The rows where ``mask [*lead]`` is non-zero.

    With ``compact`` exactly those, which on a GPU waits for their count; without it every row, and which to keep.
    """
    if mask is not None and compact:
        return Rows(torch.nonzero(mask.reshape(-1)).squeeze(-1), None)
    everything = torch.arange(math.prod(lead), device=device)
    return Rows(everything, None if mask is None else mask.reshape(-1) != 0)


def rows_per_block(width: int) -> int:
    """How many rows of ``width`` numbers make a block."""
    return max(1, _BLOCK_NUMBERS // max(1, width))


def row_sum(x: Tensor) -> Tensor:
    """Sum over the last axis of ``x [n, V]``.

    torch splits a reduction to a single number between threads, which rounds differently from the same row among others;
    with two rows it never does.
    """
    if x.shape[0] == 1:
        return torch.cat([x, x]).sum(-1)[:1]
    return x.sum(-1)


def may_sync(device: torch.device) -> bool:
    """Whether a check may read values: always on a CPU, elsewhere only when asked for (``SPO_FAST_CHECK=1``)."""
    return device.type == "cpu" or os.environ.get("SPO_FAST_CHECK", "") not in ("", "0")
