"""Log-probabilities under a linear head on a CPU: torch multiplies a tile at a time, the compiled core does the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

import spo_fast._core as _core
from spo_fast.kernels.common.autograd import first_order_only
from spo_fast.kernels.common.cpu import described, readable, threads
from spo_fast.kernels.linear_token_logprob.checks import selected_rows
from spo_fast.kernels.token_logprob.checks import check_row_values

DTYPES = (torch.float32, torch.bfloat16, torch.float16)

# a tile of 8 MiB of float32: stays in the last cache between the product and the sums over it
CHUNK_TOKENS, CHUNK_VOCAB = 512, 4096

_SCHEMA = (
    "Tensor hidden, Tensor weight, Tensor? bias, Tensor token_ids, Tensor? mask, Tensor? row_index, "
    "Tensor? temperatures, float temperature, float softcap, float logit_scale, int chunk_tokens, int chunk_vocab"
)


class _Arguments(NamedTuple):
    """Those of ``_SCHEMA``."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    token_ids: Tensor
    mask: Tensor | None
    row_index: Tensor | None
    temperatures: Tensor | None
    temperature: float
    softcap: float
    logit_scale: float
    chunk_tokens: int
    chunk_vocab: int


class _Block(NamedTuple):
    """Some of the rows to compute."""

    numbers: Tensor  # int64 [n], of the flattened rows
    hidden: Tensor  # [n, H]
    ids: Tensor
    heat: Tensor | None  # [n], temperatures

    def described(self, tile: Tensor, a: _Arguments) -> Any:
        """``tile [n, width]`` of this block's logits, as the core takes it."""
        return (
            described(tile),
            described(self.ids),
            None,
            described(self.heat),
            a.temperature,
            a.softcap,
        )


class _Head:
    """The head's rows, a tile at a time, each product in the same memory."""

    def __init__(self, a: _Arguments) -> None:
        self._a = a
        width = min(a.chunk_vocab, a.weight.shape[0])
        self._memory = a.hidden.new_empty(min(a.chunk_tokens, _row_count(a)) * width)

    def tiles(self, block: _Block) -> Iterator[tuple[slice, Tensor]]:
        """Which tokens of the vocabulary, and their logits ``[n, width]``, float32 where they were scaled or shifted."""
        a, n = self._a, block.numbers.numel()
        for first in range(0, a.weight.shape[0], a.chunk_vocab):
            part = slice(first, min(first + a.chunk_vocab, a.weight.shape[0]))
            width = part.stop - part.start
            tile = self._memory[: n * width].view(n, width)
            torch.mm(block.hidden, a.weight[part].T, out=tile)
            if a.bias is not None:
                tile = tile.float().add_(a.bias[part])
            if a.logit_scale != 1:
                tile = tile.float().mul_(a.logit_scale)
            yield part, tile


def _row_count(a: _Arguments) -> int:
    return math.prod(a.hidden.shape[:-1])


def _blocks(a: _Arguments) -> Iterator[_Block]:
    """The rows to compute, ``chunk_tokens`` at a time; a wrong one raises before anything is yielded."""
    flat = torch.Size([_row_count(a)])
    mask = None if a.mask is None else a.mask.reshape(-1)
    rows = selected_rows(a.row_index, mask, flat, a.hidden.device)
    hidden, ids = a.hidden.reshape(-1, a.hidden.shape[-1]), a.token_ids.reshape(-1)
    heat = None if a.temperatures is None else a.temperatures.reshape(-1)
    check_row_values(ids[rows.numbers], a.weight.shape[0], 1.0 if heat is None else heat[rows.numbers])
    for part in rows.blocks(a.chunk_tokens):
        numbers = part.numbers
        yield _Block(numbers, hidden[numbers], ids[numbers], None if heat is None else heat[numbers])


@torch.library.custom_op(
    "spo_fast::linear_token_logprob",
    mutates_args=(),
    device_types="cpu",
    schema=f"({_SCHEMA}, bool with_entropy) -> (Tensor, Tensor, Tensor, Tensor)",
)
def forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-probs, entropies (empty unless asked for), and for the backward pass statistics and the chosen logits."""
    a, with_entropy = _Arguments(*arguments[:-1]), arguments[-1]
    lead, n = a.hidden.shape[:-1], _row_count(a)
    logprobs = torch.zeros(n)
    entropy = torch.zeros(n if with_entropy else 0)
    stats, chosen = torch.zeros(n, 3, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    head = _Head(a)
    for block in _blocks(a):
        size = block.numbers.numel()
        sums = torch.tensor([-math.inf, 0.0, 0.0], dtype=torch.float64).repeat(size, 1)
        logits, scores, entropies = (
            torch.empty(size, dtype=t) for t in (torch.float64, torch.float32, torch.float32)
        )
        for part, tile in head.tiles(block):
            rows = block.described(tile, a)
            _core.add_tile(rows, part.start, with_entropy, described(sums), described(logits), threads())
        _core.score_tiles(
            rows,
            described(sums),
            described(logits),
            described(scores),
            described(entropies if with_entropy else None),
        )
        for whole, piece in ((stats, sums), (chosen, logits), (logprobs, scores)):
            whole[block.numbers] = piece
        if with_entropy:
            entropy[block.numbers] = entropies
    return logprobs.view(lead), entropy.view(lead if with_entropy else 0), stats, chosen


@forward.register_fake
def _(hidden: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    lead, n = hidden.shape[:-1], hidden.shape[:-1].numel()
    return (
        hidden.new_empty(lead, dtype=torch.float32),
        hidden.new_empty(lead if arguments[-1] else 0, dtype=torch.float32),
        hidden.new_empty((n, 3), dtype=torch.float64),
        hidden.new_empty(n, dtype=torch.float64),
    )


@torch.library.custom_op(
    "spo_fast::linear_token_logprob_backward",
    mutates_args=(),
    device_types="cpu",
    schema=(
        f"({_SCHEMA}, Tensor stats, Tensor chosen, Tensor? grad_logprobs, Tensor? grad_entropy, bool[] needed) "
        "-> (Tensor, Tensor, Tensor)"
    ),
)
def backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of hidden, weight and bias, the latter two in float32; those not needed are empty."""
    a = _Arguments(*arguments[:12])
    stats, chosen, *upstream, needed = arguments[12:]
    upstream = [None if g is None else g.reshape(-1) for g in upstream]
    n, width = _row_count(a), a.hidden.shape[-1]
    grad_hidden = torch.zeros(n if needed[0] else 0, width, dtype=a.hidden.dtype)
    grad_weight = torch.zeros(a.weight.shape if needed[1] else (0,))
    grad_bias = torch.zeros(a.weight.shape[0] if needed[2] else 0)
    head = _Head(a)
    for block in _blocks(a):
        kept, logits = stats[block.numbers], chosen[block.numbers]
        grads = [None if g is None else g[block.numbers] for g in upstream]
        by_hidden = torch.zeros(block.numbers.numel() if needed[0] else 0, width)
        for part, tile in head.tiles(block):
            _core.write_tile_gradient(
                block.described(tile, a),
                part.start,
                described(kept),
                described(logits),
                *(described(g) for g in grads),  # type: ignore[call-arg]
                threads(),
            )
            if a.logit_scale != 1:
                tile.mul_(a.logit_scale)
            if needed[2]:
                grad_bias[part] += tile.sum(0, dtype=torch.float32)
            product = tile.to(a.weight.dtype)
            if needed[1]:
                _add_product(grad_weight[part], product.T, block.hidden)
            if needed[0]:
                _add_product(by_hidden, product, a.weight[part])
        if needed[0]:
            grad_hidden[block.numbers] = by_hidden.to(a.hidden.dtype)
    return grad_hidden.view(a.hidden.shape if needed[0] else (0, width)), grad_weight, grad_bias


def _add_product(total: Tensor, x: Tensor, y: Tensor) -> None:
    """``total += x @ y``, a float32 sum whatever the dtype of the product."""
    if x.dtype == total.dtype:
        total.addmm_(x, y)
    else:
        total += x @ y


@backward.register_fake
def _(hidden: Tensor, weight: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    needed = arguments[-1]
    return (
        hidden.new_empty(hidden.shape if needed[0] else (0, hidden.shape[-1])),
        weight.new_empty(weight.shape if needed[1] else (0,), dtype=torch.float32),
        weight.new_empty(weight.shape[0] if needed[2] else 0, dtype=torch.float32),
    )


class LinearTokenLogprob(torch.autograd.Function):
    """Keeps its inputs and four numbers a row; logits exist one tile at a time, in both passes."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        token_ids: Tensor,
        mask: Tensor | None,
        row_index: Tensor | None,
        temperature: Tensor | float,
        softcap: float | None,
        logit_scale: float,
        with_entropy: bool,
        chunk_tokens: int,
        chunk_vocab: int,
    ) -> tuple[Tensor, Tensor]:
        single = not isinstance(temperature, Tensor)
        tensors = (
            hidden,
            weight,
            bias,
            readable(token_ids),
            mask,
            row_index,
            None if single else temperature,
        )
        numbers = (
            float(temperature) if single else 1.0,
            softcap or 0.0,
            logit_scale,
            chunk_tokens,
            chunk_vocab,
        )
        logprobs, entropy, stats, chosen = forward(*tensors, *numbers, with_entropy)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, stats, chosen)
        ctx.numbers = numbers
        if not with_entropy:
            ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(
        ctx: Any, grad_logprobs: Tensor | None, grad_entropy: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        if grad_logprobs is None and grad_entropy is None:
            return (None,) * 12
        *tensors, stats, chosen = ctx.saved_tensors
        sources = tensors[:3]
        needed = list(ctx.needs_input_grad[:3])
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            gradients = backward(*tensors, *ctx.numbers, stats, chosen, grad_logprobs, grad_entropy, needed)
        named = [
            first_order_only("linear_token_logprobs", g.to(x.dtype), *sources, grad_logprobs, grad_entropy)
            if need
            else None
            for g, x, need in zip(gradients, sources, needed, strict=True)
        ]
        return *named, *(None,) * 9
