"""Log-probs of tokens as torch users and other trainers compute them, ``(logits [N, V], ids [N]) -> [N]``."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Scorer = Callable[[Tensor, Tensor], Tensor]


def eager(logits: Tensor, ids: Tensor) -> Tensor:
    return torch.log_softmax(logits, -1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def cross_entropy(logits: Tensor, ids: Tensor) -> Tensor:
    return -torch.nn.functional.cross_entropy(logits, ids, reduction="none")


def by_row(logits: Tensor, ids: Tensor) -> Tensor:
    """What TRL 1.16 and verl 0.9.1 do without a GPU: for float32 gather - logsumexp, else log_softmax, row by row."""
    if logits.dtype == torch.float32:
        chosen = logits.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        return chosen - torch.stack([torch.logsumexp(row, dim=-1) for row in logits])
    return torch.stack([eager(row, i) for row, i in zip(logits, ids, strict=True)])


def entropy(logits: Tensor) -> Tensor:
    log_p = torch.log_softmax(logits, -1)
    return -(log_p.exp() * log_p).sum(-1)


def available(*, compiled: bool) -> dict[str, Scorer]:
    """Every peer that can run here; TRL's own function only where TRL is installed."""
    peers: dict[str, Scorer] = {
        "torch eager": eager,
        "cross_entropy": cross_entropy,
        "TRL and verl arithmetic": by_row,
    }
    if compiled:
        peers["torch.compile"] = torch.compile(eager)
    try:
        from trl.trainer.utils import selective_log_softmax
    except ImportError:
        return peers
    peers["TRL"] = lambda logits, ids: selective_log_softmax(logits.unsqueeze(1), ids.unsqueeze(1)).squeeze(1)
    return peers
