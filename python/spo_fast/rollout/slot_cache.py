"""A key-value cache with a row a slot, each row at its own length: what continuous batching needs."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer, stored [slots, heads, length, head_dim]; grows in length as needed.

    Set ``rows`` and ``positions`` before a forward. A row's new entries go to its own positions; what padding
    writes beyond a row's length is hidden by the mask and overwritten by the tokens that come next.
    """

    is_sliding = False

    def __init__(self, slots: int):
        super().__init__()
        self.slots = slots
        self.rows: torch.Tensor | None = None  # [b] int64; None: all slots in order
        self.positions: torch.Tensor | None = None  # [b, q] int64
        self.visible = 0  # how many positions the mask covers

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        _, heads, _, dim = key_states.shape
        self.keys = key_states.new_zeros(self.slots, heads, 0, dim)
        self.values = value_states.new_zeros(self.slots, heads, 0, value_states.shape[-1])
        self.is_initialized = True

    def _reserve(self, length: int) -> None:
        have = self.keys.shape[2]
        if length <= have:
            return
        more = max(length, have * 3 // 2, 256) - have
        self.keys, self.values = (
            torch.cat([kept, kept.new_zeros(*kept.shape[:2], more, kept.shape[3])], dim=2)
            for kept in (self.keys, self.values)
        )

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self._reserve(self.visible)
        assert self.positions is not None
        rows = torch.arange(self.slots, device=key_states.device) if self.rows is None else self.rows
        self.keys[rows[:, None], :, self.positions] = key_states.transpose(1, 2)
        self.values[rows[:, None], :, self.positions] = value_states.transpose(1, 2)
        keys, values = self.keys[:, :, : self.visible], self.values[:, :, : self.visible]
        if self.rows is None:
            return keys, values
        return keys.index_select(0, self.rows), values.index_select(0, self.rows)

    def get_seq_length(self) -> int:
        return self.visible

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.visible, 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # its name before transformers 5.2x


class SlotCache(Cache):
    def __init__(self, layers: int, slots: int):
        super().__init__(layers=[SlotLayer(slots) for _ in range(layers)])

    def at(self, rows: torch.Tensor | None, positions: torch.Tensor, visible: int) -> SlotCache:
        """Points the next forward at these rows and positions; returns itself."""
        for layer in self.layers:
            layer.rows, layer.positions, layer.visible = rows, positions, visible
        return self
