"""Receipt-order evidence: worked values, array order, drift."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spo_fast import ReceiptOrderTracker
from tests.shared import vectors
from tests.tolerances import FLOAT64


@pytest.mark.parametrize("case", vectors("receipt_order_tracker"))
def test_worked_values(case: Any) -> None:
    tracker = ReceiptOrderTracker(case["rho_min"], case["rho_max"], case["d_half"])
    for line in case["script"]:
        if line["op"] == "register":
            tracker.register([line["task"]], [line["successes"]], [line["trials"]], mass=line["mass"])
            continue
        assert line["op"] == "update"
        advantage = tracker.update([line["task"]], [line["outcome"]], [line["drift"]])
        assert advantage[0] == pytest.approx(line["expect_advantage"], abs=FLOAT64)
        np.testing.assert_allclose(tracker.evidence([line["task"]])[0], line["expect_evidence"], rtol=FLOAT64)


def test_repeat_sees_the_first() -> None:
    """Prior 4, 4; drift 0.06 halves the evidence: 2 + 1, 2 gives v = 0.6 for the second."""
    tracker = ReceiptOrderTracker(rho_min=0.1, rho_max=1.0)
    tracker.register(["a", "b"], successes=4, trials=8)
    np.testing.assert_allclose(
        tracker.update(["a", "b", "a"], [1, 0, 0], [0.06, 0.0, 0.06]), [0.5, -0.5, -0.6], rtol=1e-15
    )
    np.testing.assert_allclose(tracker.evidence(["a", "b"]), [[1.5, 2.0], [4.0, 5.0]], rtol=1e-15)


@pytest.mark.parametrize(
    ("drift", "rho"), [(0.0, 0.96), (1e9, 0.875), (float("inf"), 0.875), (0.06 * 0.1, 2**-0.1)]
)
def test_retention_is_clipped(drift: float, rho: float) -> None:
    tracker = ReceiptOrderTracker()
    tracker.register(["a"], successes=4, trials=8)
    tracker.update(["a"], [1.0], drift)
    np.testing.assert_allclose(tracker.evidence(["a"]), [[rho * 4 + 1, rho * 4]], rtol=1e-15)


@pytest.mark.parametrize(
    ("tasks", "outcomes", "drift", "message"),
    [
        (["a", "x"], [1, 1], [0, 0], "'x'"),
        (["a", "a"], [1, float("nan")], [0, 0], r"outcomes\[1\]"),
        (["a", "a"], [1, 2], [0, 0], r"outcomes\[1\]"),
        (["a", "a"], [1, 1], [0, float("nan")], r"drift\[1\]"),
        (["a", "a"], [1, 1], [-1e-9, 0], r"drift\[0\]"),
        (["a", "a"], [1], [0, 0], "outcomes: expected shape"),
    ],
)
def test_failing_batch_changes_nothing(tasks: list[str], outcomes: Any, drift: Any, message: str) -> None:
    tracker = ReceiptOrderTracker()
    tracker.register(["a"], successes=4, trials=8)
    before = tracker.state_dict()
    with pytest.raises(ValueError, match=message):
        tracker.update(tasks, outcomes, drift)
    np.testing.assert_equal(tracker.state_dict(), before)


@pytest.mark.parametrize(
    "options",
    [(0.0, 0.9, 0.06), (0.9, 0.8, 0.06), (0.5, 1.1, 0.06), (0.5, 0.9, 0.0), (0.5, 0.9, float("nan"))],
)
def test_options_are_checked(options: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match=r"rho_min|d_half"):
        ReceiptOrderTracker(*options)
