"""What the CPU backends of the operators share: how tensors cross to the compiled core, threads, fresh memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

_NAMES = {
    torch.bool: "bool",
    torch.uint8: "uint8",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}
_WORDS = {2: np.int16, 4: np.int32, 8: np.int64}


def readable(x: Tensor | None) -> Tensor | None:
    """``x``, or a copy in a dtype that the core reads: of masks and ids in rarer integer types."""
    return x if x is None or x.dtype in _NAMES else x.to(torch.int64)


def described(x: Tensor | None) -> Any:
    """Address, dtype, shape and strides of ``x``, as ``spo_fast._core`` takes an array; ``x`` must outlive the call."""
    return None if x is None else (x.data_ptr(), _NAMES[x.dtype], x.shape, x.stride())


def threads() -> int:
    """As many as torch would use."""
    return torch.get_num_threads()


def untouched_zeros(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """Contiguous zeros that cost nothing until they are written to.

    Of a large block the system hands out each page, cleared, at its first use. ``torch.zeros`` writes all of it;
    calloc, which numpy calls, does not.
    """
    words = torch.from_numpy(np.zeros(math.prod(shape), dtype=_WORDS[dtype.itemsize]))
    return words.view(dtype).view(shape)
