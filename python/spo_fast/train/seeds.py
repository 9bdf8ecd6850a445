"""Streams of random numbers, apart from each other for any seed."""

from __future__ import annotations

import numpy as np

ROLLOUT, FIRST_VALUES, EVALUATION, SCHEDULE, MINIBATCHES = range(1, 6)


def stream_seed(seed: int, stream: int) -> int:
    """A 63-bit seed for one purpose of a run."""
    return int(np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0] >> 1)
