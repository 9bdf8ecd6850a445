"""Weighted centring and scaling of advantages, by group, in plain torch."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

Measure = Literal["action_token", "trajectory"]
MEASURES: tuple[Measure, ...] = get_args(Measure)


class Units(NamedTuple):
    """What statistics are taken over: values, the weight of each, and the group it belongs to; one axis."""

    values: Tensor  # float64; read only where the weight is positive
    weights: Tensor  # float64, >= 0
    groups: Tensor  # int64 in [0, n_groups)


class Statistics(NamedTuple):
    """Mean and deviation of each group, and whether it is to be scaled."""

    mean: Tensor
    deviation: Tensor
    varies: Tensor  # bool: neither constant nor a single unit


def group_statistics(units: Units, n_groups: int, process_group: Any | None = None) -> Statistics:
    r"""Weighted mean and deviation of each group in float64.

    .. math:: \mu = \frac{\sum_i w_i A_i}{\sum_i w_i}, \qquad \sigma^2 = \frac{\sum_i w_i (A_i - \mu)^2}{\sum_i w_i - 1}

    Both are taken about the group's least value: a large common offset then costs no digits.

    Args:
        units: of this process.
        n_groups: length of the tables.
        process_group: if given, the statistics are those of all its processes together.
    """
    counted = units.weights > 0
    values = torch.where(counted, units.values, 0.0)

    def table(fill: float, x: Tensor, reduce: str) -> Tensor:
        start = torch.full((n_groups,), fill, dtype=torch.float64, device=values.device)
        result = start.scatter_reduce(0, units.groups, x, reduce, include_self=True)
        return _all_reduced(result, reduce, process_group)

    least = table(math.inf, torch.where(counted, values, math.inf), "amin")
    most = table(-math.inf, torch.where(counted, values, -math.inf), "amax")
    count = table(0.0, units.weights, "sum")
    least = torch.where(count > 0, least, 0.0)
    offset = torch.where(counted, values - least[units.groups], 0.0)
    mean = table(0.0, units.weights * offset, "sum") / count.clamp(min=1)
    spread = torch.where(counted, offset - mean[units.groups], 0.0)
    variance = table(0.0, units.weights * spread.square(), "sum") / (count - 1).clamp(min=1)
    varies = (least != most) & (count > 1)
    return Statistics(least + mean, variance.sqrt(), varies)


def normalize(
    values: Tensor, counted: Tensor, groups: Tensor, stats: Statistics, center: bool, scale: bool, eps: float
) -> Tensor:
    """(A - mean) / (deviation + eps) of float64 ``values``, each by its group; 0 where not ``counted``."""
    varies = stats.varies[groups]
    result = values - stats.mean[groups] if center else values
    if center:
        result = torch.where(varies, result, 0.0)
    if scale:
        result = torch.where(varies, result / (stats.deviation[groups] + eps), result)
    return torch.where(counted, result, 0.0)


def _all_reduced(table: Tensor, reduce: str, process_group: Any | None) -> Tensor:
    if process_group is None:
        return table
    import torch.distributed as dist

    operation = {"sum": dist.ReduceOp.SUM, "amin": dist.ReduceOp.MIN, "amax": dist.ReduceOp.MAX}[reduce]
    dist.all_reduce(table, op=operation, group=process_group)
    return table
