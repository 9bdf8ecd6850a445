"""Intervals of success rates, against numbers worked by hand."""

import math

import pytest

from spo_fast.train.evaluation import paired_difference, wilson_interval


def test_wilson_interval():
    # p = 1/2, n = 4, z = 2: middle 1/2, half sqrt(1/4 / 4 + 4 / 64) * 2 / (1 + 4 / 4) = sqrt(1/8)
    assert wilson_interval(2, 4, z=2) == pytest.approx((0.5 - math.sqrt(1 / 8), 0.5 + math.sqrt(1 / 8)))
    # p = 0: from 0 to (z^2 / n) / (1 + z^2 / n)
    assert wilson_interval(0, 4, z=2) == pytest.approx((0, 0.5))
    assert wilson_interval(0, 0) == (0, 1)


def test_the_interval_holds_the_proportion_whatever_rounding_does():
    for n in range(1, 400):
        for successes in (0, 1, n - 1, n):
            low, high = wilson_interval(successes, n)
            assert 0 <= low <= successes / n <= high <= 1


def test_paired_difference():
    # differences 1, 0, 1, 0: mean 1/2, deviation sqrt(1/3), half z sqrt(1/3) / 2
    difference, low, high = paired_difference([0, 1, 0, 0], [1, 1, 1, 0], z=2)
    half = math.sqrt(1 / 3)
    assert (difference, low, high) == pytest.approx((0.5, 0.5 - half, 0.5 + half))
    assert paired_difference([0], [1])[1:] == (-math.inf, math.inf)
