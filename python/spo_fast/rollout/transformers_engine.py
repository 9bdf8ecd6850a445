"""Continuous batching over a Hugging Face causal LM, in this process, on the weights being trained."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from spo_fast.rollout.engine import Generation
from spo_fast.rollout.sampling import counter_uniform, sample_tokens
from spo_fast.rollout.slot_cache import SlotCache


@dataclass
class _Slot:
    """One request's conversation. ``context`` counts the tokens that the cache holds for it."""

    request: int
    history: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    context: int = 0
    generated: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    budget: int = 0


def _at(slots: Sequence[_Slot | None], row: int) -> _Slot:
    slot = slots[row]
    assert slot is not None
    return slot


class _SlotCacheForward:
    """Every slot keeps its keys and values between turns; a turn costs its new tokens alone.

    Right for models whose layers all attend (fully, or within a sliding window).
    """

    def __init__(self, model: Any, slots: int):
        config = model.config.get_text_config()
        self._model = model
        self._slots = slots
        self._window = getattr(config, "sliding_window", None)
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if not kinds <= {"full_attention", "sliding_attention"}:
            raise ValueError(f"layers of kinds {sorted(kinds)} keep more than keys and values")
        self._kinds = kinds if getattr(config, "layer_types", None) else None
        self._cache = SlotCache(config.num_hidden_layers, slots)
        names = inspect.signature(model.base_model.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        self._limits_logits = "logits_to_keep" in inspect.signature(model.forward).parameters

    def __call__(self, rows: list[int], slots: Sequence[_Slot | None]) -> torch.Tensor:
        """Feeds each of these rows its slot's pending tokens; logits [b, V] after the last of them."""
        device = self._model.device
        lengths = [len(_at(slots, row).pending) for row in rows]
        width = max(lengths)
        even = min(lengths) == width
        # One token for most slots: running the idle ones along costs less than gathering the others' keys and
        # values. What that writes lies beyond the idle slot's context, and the tokens that come next overwrite it.
        whole = width == 1 and 2 * len(rows) >= self._slots
        served = list(range(self._slots)) if whole else rows
        ids = torch.zeros(len(served), width, dtype=torch.int64)
        for place, row in enumerate(rows):
            ids[row if whole else place, : lengths[place]] = torch.tensor(_at(slots, row).pending)
        starts = torch.tensor([0 if (slot := slots[row]) is None else slot.context for row in served])
        positions = starts[:, None] + torch.arange(width)
        reach = int(positions.max()) + 1  # padded queries included: the cache must hold what they write
        ids, positions = ids.to(device), positions.to(device)
        at = None if whole else torch.tensor(rows, device=device)
        kwargs: dict[str, Any] = {self._cache_name: self._cache.at(at, positions, reach)}
        if self._limits_logits and even:
            kwargs["logits_to_keep"] = 1
        out = self._model(
            input_ids=ids,
            attention_mask=self._masks(positions, reach),
            position_ids=positions,
            use_cache=True,
            **kwargs,
        ).logits
        if even:
            return out[rows, -1] if whole else out[:, -1]
        return out[torch.arange(len(rows), device=device), torch.tensor(lengths, device=device) - 1]

    def _masks(self, positions: torch.Tensor, reach: int) -> Any:
        """Who may see whom, [b, 1, q, reach]; a mapping for models that mask by the kind of layer."""
        keys = torch.arange(reach, device=positions.device)
        seen = keys[None, None, None, :] <= positions[:, None, :, None]
        near = seen
        if self._window is not None:
            near = seen & (keys[None, None, None, :] > positions[:, None, :, None] - self._window)
        if self._kinds is None:
            return self._native(near)  # a model with a window and one kind of layer has it in all of them
        masks = {"full_attention": self._native(seen)}
        if "sliding_attention" in self._kinds:
            masks["sliding_attention"] = self._native(near)
        return masks

    def _native(self, mask: torch.Tensor) -> torch.Tensor:
        """As this model's attention takes it: eager attention adds the mask to its scores."""
        if self._model.config._attn_implementation != "eager":
            return mask
        dtype = self._model.dtype
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(
            ~mask, torch.finfo(dtype).min
        )


class _RecomputeForward:
    """Feeds whole conversations, left-padded, each time: right for every causal LM, and slow.

    For models with recurrent or convolutional layers, whose state cannot take a chunk of new tokens per row.
    """

    def __init__(self, model: Any, slots: int):
        self._model = model

    def __call__(self, rows: list[int], slots: Sequence[_Slot | None]) -> torch.Tensor:
        texts = [_at(slots, row).history for row in rows]
        width = max(map(len, texts))
        ids = torch.zeros(len(texts), width, dtype=torch.int64)
        mask = torch.zeros(len(texts), width, dtype=torch.int64)
        for i, text in enumerate(texts):
            ids[i, width - len(text) :] = torch.tensor(text)
            mask[i, width - len(text) :] = 1
        positions = (mask.cumsum(1) - 1).clamp_(min=0)
        device = self._model.device
        out = self._model(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            position_ids=positions.to(device),
            use_cache=False,
        )
        return out.logits[:, -1]


def _agrees(model: Any, vocab: int) -> bool:
    """Whether the slot cache gives the logits of a plain forward, on a short made-up two-turn conversation."""
    model.eval()
    rng = np.random.default_rng(0)
    first, second = (rng.integers(0, vocab, size=n).tolist() for n in (7, 5))
    try:
        forward = _SlotCacheForward(model, 3)
        other, slot = _Slot(0, pending=second), _Slot(1, pending=first)
        slots = [other, None, slot]
        forward([0, 2], slots)
        slot.context, slot.pending = len(first), second
        got = forward([2], slots)[0].float()
        want = model(input_ids=torch.tensor([first + second], device=model.device)).logits[0, -1].float()
    except (ValueError, TypeError, IndexError, RuntimeError, AttributeError, KeyError, NotImplementedError):
        return False
    scale = max(1.0, float(want.abs().max()))
    tolerance = 1e-3 if model.dtype == torch.float32 else 5e-2
    return bool((got - want).abs().max() <= tolerance * scale)


class TransformersEngine:
    """Generates with the model object that the trainer updates: no weights to synchronise.

    Args:
        model: a Hugging Face causal LM. Whether its layers can share a slot cache is tried out on it, once.
        stop_ids: tokens that end a turn.
        slots: how many requests may be in flight.
        temperature: of sampling; 0 is greedy.
        seed: names the stream of random numbers; see ``spo_fast.rollout.sampling``.
    """

    def __init__(
        self, model: Any, *, stop_ids: frozenset[int], slots: int, temperature: float = 1.0, seed: int = 0
    ):
        if slots < 1:
            raise ValueError(f"slots: expected at least 1, got {slots}")
        if temperature < 0:
            raise ValueError(f"temperature: expected 0 (greedy) or more, got {temperature}")
        self._model = model
        self._stop_ids = stop_ids
        self._temperature = temperature
        self._seed = seed
        self._slots: list[_Slot | None] = [None] * slots
        self._row_of: dict[int, int] = {}
        self.decode_steps = 0
        self.generated_tokens = 0
        with torch.inference_mode():
            self.cached = _agrees(model, model.config.get_text_config().vocab_size)
        self._forward = (_SlotCacheForward if self.cached else _RecomputeForward)(model, slots)

    @property
    def free_slots(self) -> int:
        return len(self._slots) - len(self._row_of)

    def submit(self, request: int, token_ids: list[int], max_new_tokens: int) -> None:
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens: expected at least 1, got {max_new_tokens}")
        row = self._row_of.get(request)
        if row is None:
            if not self.free_slots:
                raise ValueError(f"request {request}: all {len(self._slots)} slots are taken")
            row = self._slots.index(None)
            self._slots[row] = _Slot(request)
            self._row_of[request] = row
        slot = _at(self._slots, row)
        slot.pending = slot.pending + token_ids
        slot.history += token_ids
        slot.generated, slot.logprobs, slot.budget = [], [], max_new_tokens

    def release(self, request: int) -> None:
        self._slots[self._row_of.pop(request)] = None

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        waiting = [(row, s) for row, s in enumerate(self._slots) if s is not None and s.budget > 0]
        if not waiting:
            return []
        self._model.eval()
        self.decode_steps += 1
        finished: list[Generation] = []
        # new turns bring many tokens, the others one: two forwards waste less than one padded to the longest
        chunks = [(row, s) for row, s in waiting if len(s.pending) > 1]
        singles = [(row, s) for row, s in waiting if len(s.pending) == 1]
        for part in (chunks, singles):
            if part:
                finished += self._advance([row for row, _ in part], [s for _, s in part])
        return sorted(finished, key=lambda g: g.request)

    def _advance(self, rows: list[int], slots: list[_Slot]) -> list[Generation]:
        logits = self._forward(rows, self._slots)
        uniforms = counter_uniform(
            self._seed, np.array([s.request for s in slots]), np.array([len(s.history) for s in slots])
        )
        tokens, logprobs = sample_tokens(logits, uniforms, self._temperature)
        self.generated_tokens += len(slots)
        finished = []
        for slot, token, logprob in zip(slots, tokens.tolist(), logprobs.tolist(), strict=True):
            slot.context += len(slot.pending)
            slot.pending = [token]
            slot.history.append(token)
            slot.generated.append(token)
            slot.logprobs.append(logprob)
            slot.budget -= 1
            stopped = token in self._stop_ids
            if stopped or slot.budget == 0:
                slot.budget = 0
                finished.append(Generation(slot.request, slot.generated, slot.logprobs, stopped))
        return finished
