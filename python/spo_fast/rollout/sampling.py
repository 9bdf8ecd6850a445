"""Sampling tokens with counter-based random numbers.

The number that picks a token depends on (seed, request, position) alone: not on which requests share the batch,
not on how many were drawn before. Nothing has to be saved to resume, and a request replays on its own.
"""

from __future__ import annotations

import numpy as np
import torch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection that scrambles 64 bits."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def counter_uniform(seed: int, requests: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Uniform numbers in [0, 1), float64, one for each (seed, request, position)."""
    with np.errstate(over="ignore"):
        state = _mix(np.full(len(requests), seed % 2**64, dtype=np.uint64) + _GOLDEN)
        state = _mix(state ^ (np.asarray(requests, dtype=np.uint64) * _GOLDEN))
        state = _mix(state + (np.asarray(positions, dtype=np.uint64) + np.uint64(1)) * _GOLDEN)
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sample_tokens(
    logits: torch.Tensor, uniforms: np.ndarray, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws one token a row by inverting the cumulative distribution.

    Args:
        logits: [B, V], any floating dtype.
        uniforms: [B] float64 in [0, 1).
        temperature: divides the logits; 0 takes the most probable token.

    Returns:
        token ids [B] int64 and their log-probabilities [B] float32 under softmax(logits / temperature)
        (under softmax(logits) when temperature is 0).
    """
    scaled = logits.float() if temperature == 0 else logits.float() / temperature
    logprobs = torch.log_softmax(scaled, dim=-1)
    if temperature == 0:
        tokens = logprobs.argmax(dim=-1)
    else:
        cumulative = logprobs.double().exp().cumsum(dim=-1)
        threshold = torch.from_numpy(uniforms).to(logits.device) * cumulative[:, -1]
        tokens = torch.searchsorted(cumulative, threshold[:, None], right=True).squeeze(1)
        tokens = tokens.clamp_(max=logits.shape[-1] - 1)
    return tokens, logprobs.gather(1, tokens[:, None]).squeeze(1)
