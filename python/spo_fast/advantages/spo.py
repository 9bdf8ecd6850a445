"""Advantages of SPO and SPO++."""

from __future__ import annotations

from typing import Any

import numpy as np


def spo_advantages(rewards: Any, values: Any) -> Any:
    r"""Single-stream advantages :math:`A = R - v`.

    Args:
        rewards: R, one a trajectory, ``[S]``; a torch tensor or anything numpy takes.
        values: v, frozen before the reward was known, ``[S]``; of the same kind.

    Returns:
        ``[S]``, of the same kind; normalise it with :func:`spo_fast.normalize_advantages`.

    Raises:
        ValueError: if the shapes differ.

    Source: SPO (arXiv 2509.13232); SPO++ freezes v at dispatch.
    """
    if not hasattr(rewards, "detach"):
        rewards, values = np.asarray(rewards), np.asarray(values)
    if rewards.shape != values.shape:
        raise ValueError(f"rewards, values: expected one shape, got {tuple(rewards.shape)} and {tuple(values.shape)}")
    return rewards - values
