"""SPO++ and SPO differ in when a value is read and when an outcome is filed."""

import numpy as np
import pytest

from spo_fast.rollout.collector import Request, Trajectory
from spo_fast.train.baselines import ReceiptOrderBaseline, StreamAlignedBaseline


def trajectory(number, task, outcome, ticket=-1, logprobs=(-1.0, -2.0)):
    return Trajectory(
        Request(number, task, ticket), "", [1, 2, 3], [0, 1, 1], [0.0, *logprobs], outcome=outcome
    )


def test_stream_aligned_values_are_frozen_at_dispatch():
    baseline = StreamAlignedBaseline(0.875)
    baseline.tracker.register(["a"], [4], [8], mass=8.0)
    (first,) = baseline.dispatch(["a"])
    (second,) = baseline.dispatch(["a"])
    assert baseline.advantages([trajectory(1, "a", 1.0, second)]) == pytest.approx([0.5])
    assert baseline.advantages([trajectory(0, "a", 1.0, first)]) == pytest.approx([0.5]), (
        "not moved by the other outcome"
    )
    baseline.publish()
    (third,) = baseline.dispatch(["a"])
    # evidence 4 + 2 and 4, all aged by the same factor
    assert baseline.advantages([trajectory(2, "a", 0.0, third)]) == pytest.approx([-0.6])


def test_stream_aligned_cancel():
    baseline = StreamAlignedBaseline(0.875)
    baseline.tracker.register(["a"], [4], [8], mass=8.0)
    tickets = baseline.dispatch(["a"])
    baseline.cancel(tickets)
    with pytest.raises(ValueError):
        baseline.advantages([trajectory(0, "a", 1.0, tickets[0])])


def test_receipt_order_drift_is_measured_on_the_previous_trajectory():
    asked = []

    def logprobs(trajectories):
        asked.append([t.request.number for t in trajectories])
        return [np.array([-1.0, -2.0]) - 0.01 for _ in trajectories]

    baseline = ReceiptOrderBaseline(logprobs)
    baseline.tracker.register(["a", "b"], [4, 4], [8, 8], mass=8.0)
    first = baseline.advantages([trajectory(0, "a", 1.0), trajectory(1, "b", 0.0)])
    assert asked == [[0, 1]], "at the first visit, on its own trajectory"
    assert first == pytest.approx([0.5, -0.5])
    second = baseline.advantages([trajectory(2, "a", 1.0), trajectory(3, "a", 1.0)])
    assert asked[1] == [0, 2], "within a batch too, the previous one"
    rho = 2 ** (-0.01 / 0.06)
    a0, b0 = rho * 4 + 1, rho * 4
    a1, b1 = rho * a0 + 1, rho * b0
    assert second == pytest.approx([1 - a0 / (a0 + b0), 1 - a1 / (a1 + b1)])
    assert baseline.tracker.evidence(["a"])[0] == pytest.approx([rho * a1 + 1, rho * b1])
    assert baseline.dispatch(["a", "b"]) == [-1, -1]
