"""The report's figures: calibration, residual centres, differences with intervals. Pure functions of arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spo_fast.ops import normalize_advantages
from spo_fast.train.evaluation import wilson_interval
from spo_fast.train.summary import area_under_curve

Difference = tuple[float, float, float]
"""(difference, low, high): an estimate and its 95 % interval."""


@dataclass(frozen=True)
class Bin:
    """Episodes whose predicted success lay in one interval.

    Attributes:
        predicted: their mean value.
        observed: their success rate.
        low: lower end of its 95 % Wilson interval.
        high: upper end.
        episodes: how many.
    """

    predicted: float
    observed: float
    low: float
    high: float
    episodes: int


@dataclass(frozen=True)
class Calibration:
    """How well values predicted outcomes.

    Attributes:
        bins: those that hold episodes, by rising value.
        brier: mean squared error of the values, in [0, 1]; 0 is perfect.
        constant_brier: the same of a constant guess at the mean outcome: what there is to beat.
        ece: expected calibration error, the mean over episodes of |predicted - observed| of their bin.
    """

    bins: tuple[Bin, ...]
    brier: float
    constant_brier: float
    ece: float
    episodes: int


def calibration(values: np.ndarray, outcomes: np.ndarray, bins: int = 10) -> Calibration:
    r"""Predicted against observed success in bins of equal width.

    .. math:: \mathrm{Brier} = \frac1N \sum_i (v_i - y_i)^2, \qquad
              \mathrm{ECE} = \sum_b \frac{n_b}{N} |\bar v_b - \bar y_b|

    Args:
        values: predicted success of each episode, in [0, 1], ``[N]``, N > 0.
        outcomes: what came of it, in [0, 1], ``[N]``.
        bins: bin b holds the values in [b / bins, (b + 1) / bins); the last one 1 as well.
    """
    index = np.clip((values * bins).astype(int), 0, bins - 1)
    rows = []
    for b in np.unique(index):
        inside = index == b
        won, n = float(outcomes[inside].sum()), int(inside.sum())
        rows.append(Bin(float(values[inside].mean()), won / n, *wilson_interval(won, n), n))
    return Calibration(
        bins=tuple(rows),
        brier=float(np.mean((values - outcomes) ** 2)),
        constant_brier=float(np.var(outcomes)),
        ece=sum(row.episodes * abs(row.predicted - row.observed) for row in rows) / len(values),
        episodes=len(values),
    )


def token_mean(advantages: np.ndarray, lengths: np.ndarray) -> float:
    r"""Mean advantage of an action token, :math:`\sum_i L_i A_i / \sum_i L_i`; NaN without tokens.

    It is the centre of the batch under the action-token measure, with which the loss averages.
    """
    tokens = lengths.sum()
    return float((lengths * advantages).sum() / tokens) if tokens else math.nan


@dataclass(frozen=True)
class Centres:
    """Where the advantages of each update are centred under the action-token measure.

    Attributes:
        steps: the updates.
        whitened: centre of outcome - value whitened by the mean and deviation over trajectories.
        used: centre of the advantages that the loss got.
    """

    steps: np.ndarray
    whitened: np.ndarray
    used: np.ndarray


def residual_centres(
    steps: np.ndarray, outcomes: np.ndarray, values: np.ndarray, lengths: np.ndarray, advantages: np.ndarray
) -> Centres:
    """What trajectory whitening leaves, or would have left, of a centre: arrays of one number an episode.

    Trajectory whitening centres the mean over episodes, but the loss averages over tokens: where long episodes have
    other advantages than short ones, a common push on all tokens remains.

    Source: SPO++, action-token-measure normalisation.
    """
    order = np.unique(steps)
    whitened, used = [], []
    for step in order:
        now = steps == step
        raw = normalize_advantages(outcomes[now] - values[now], lengths=lengths[now], measure="trajectory")
        whitened.append(token_mean(raw, lengths[now]))
        used.append(token_mean(advantages[now], lengths[now]))
    return Centres(order, np.array(whitened), np.array(used))


def moving_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Mean over a centred window of ``width`` (odd), shorter at both ends; NaN do not count."""
    return pooled_mean(np.where(np.isfinite(values), values, 0.0), np.isfinite(values).astype(float), width)


def pooled_mean(sums: np.ndarray, counts: np.ndarray, width: int) -> np.ndarray:
    """Sum over sum in a centred window of ``width`` (odd), shorter at both ends; NaN where nothing is counted."""
    window, half = np.ones(width), width // 2
    total = np.convolve(sums, window)[half : half + len(sums)]
    count = np.convolve(counts, window)[half : half + len(counts)]
    return np.divide(total, count, out=np.full(len(sums), math.nan), where=count > 0.5)


def smoothing_width(points: int) -> int:
    """How many updates a smoothed curve averages: 5, or a twentieth of a long run; odd."""
    return max(5, points // 20) | 1


def binned_means(x: np.ndarray, y: np.ndarray, bins: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean x, mean y, standard error of mean y) in bins of about equally many points, by rising x.

    Equal x stay in one bin, so there may be fewer; a bin of one point has the error NaN.
    """
    edges = np.unique(np.quantile(x, np.linspace(0, 1, bins + 1)))
    index = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, max(len(edges) - 2, 0))
    groups = [index == b for b in np.unique(index)]
    errors = [y[g].std(ddof=1) / math.sqrt(g.sum()) if g.sum() > 1 else math.nan for g in groups]
    return np.array([x[g].mean() for g in groups]), np.array([y[g].mean() for g in groups]), np.array(errors)


def unpaired_difference(wins_a: float, n_a: int, wins_b: float, n_b: int) -> Difference:
    """Success rate of b minus that of a, from independent episodes.

    Source: Newcombe 1998, method 10: the two Wilson intervals put together; right near 0 and 1 too.
    """
    a, b = wins_a / n_a, wins_b / n_b
    low_a, high_a = wilson_interval(wins_a, n_a)
    low_b, high_b = wilson_interval(wins_b, n_b)
    return b - a, b - a - math.hypot(b - low_b, high_a - a), b - a + math.hypot(high_b - b, a - low_a)


def auc_difference(
    rewards_a: Sequence[float], n_a: int, rewards_b: Sequence[float], n_b: int, z: float = 1.96
) -> Difference:
    r"""Area under b's curve minus that under a's, over the updates that both have.

    The interval is that of the episodes' luck, given the policies: :math:`\mathrm{Var} = \sum_t w_t^2 (r_t (1 - r_t) / n)`
    for each run, w_t the trapezoid's weights: an estimate; too wide where tasks differ in difficulty, 0 at r = 0 or 1.

    Args:
        rewards_a: mean outcome of each update's batch.
        n_a: episodes of a batch.
        rewards_b: the same of b.
        n_b: the same of b.
    """
    updates = min(len(rewards_a), len(rewards_b))
    a, b = np.asarray(rewards_a[:updates], dtype=float), np.asarray(rewards_b[:updates], dtype=float)
    weights = np.ones(updates)
    if updates > 1:
        weights[[0, -1]] = 0.5
        weights /= updates - 1
    variance = (weights**2 * (a * (1 - a) / n_a + b * (1 - b) / n_b)).sum()
    difference, half = area_under_curve(list(b)) - area_under_curve(list(a)), z * math.sqrt(variance)
    return difference, difference - half, difference + half


def t_difference(a: Sequence[float], b: Sequence[float]) -> Difference:
    """Mean of b - a over pairs and its 95 % interval by Student's t; infinite for one pair."""
    d = np.asarray(b, dtype=float) - np.asarray(a, dtype=float)
    mean = float(d.mean())
    half = t_quantile(len(d) - 1) * float(d.std(ddof=1)) / math.sqrt(len(d)) if len(d) > 1 else math.inf
    return mean, mean - half, mean + half


def t_quantile(degrees: int, level: float = 0.95) -> float:
    """The t with P(|T| < t) = level under Student's distribution of ``degrees`` >= 1 degrees of freedom."""
    low, high = 0.0, math.pi / 2  # of atan(t / sqrt(degrees)), in which the probability is smooth and bounded
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _central_probability(middle, degrees) < level else (low, middle)
    return math.tan(low) * math.sqrt(degrees)


def _central_probability(theta: float, degrees: int) -> float:
    """P(|T| < sqrt(degrees) tan(theta)). Source: Abramowitz and Stegun 26.7.3 and 26.7.4."""
    first = degrees % 2  # the power of cos in the series' first term
    term = total = math.cos(theta) ** first if degrees > 1 else 0.0
    for k in range(first + 2, degrees - 1, 2):
        term *= (k - 1) / k * math.cos(theta) ** 2
        total += term
    if first:
        return 2 / math.pi * (theta + math.sin(theta) * total)
    return math.sin(theta) * total
