"""Event-time evidence: worked values, exact rational oracle, atomic batches."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from spo_fast import PromptTracker
from tests.shared import vectors
from tests.tolerances import FLOAT64, TRACKER


def tracker_with(*tasks: Any, rho: float = 0.875) -> PromptTracker:
    tracker = PromptTracker(rho)
    tracker.register(list(tasks), successes=4, trials=8)
    return tracker


@pytest.mark.parametrize("case", vectors("prompt_tracker"))
def test_worked_values(case: Any) -> None:
    tracker, tickets = PromptTracker(case["rho"]), {}
    for line in case["script"]:
        match line["op"]:
            case "register":
                tracker.register([line["task"]], [line["successes"]], [line["trials"]], mass=line["mass"])
            case "dispatch":
                assert tracker.values([line["task"]])[0] == pytest.approx(line["expect_value"], abs=FLOAT64)
                tickets[line["ticket"]] = tracker.dispatch([line["task"]])
            case "complete":
                advantage = tracker.complete(tickets[line["ticket"]], [line["outcome"]])
                assert advantage[0] == pytest.approx(line["expect_advantage"], abs=FLOAT64)
            case "publish":
                tracker.publish(line.get("times", 1))
            case "evidence":
                np.testing.assert_allclose(
                    tracker.evidence([line["task"]])[0], line["expect"], atol=FLOAT64, rtol=FLOAT64
                )
            case other:
                raise AssertionError(other)


def test_by_hand() -> None:
    """rho 1/2; prior 4, 4. One success dispatched now, one failure dispatched a publish later and received first."""
    tracker = tracker_with("a", rho=0.5)
    (early,) = tracker.dispatch(["a"])
    tracker.publish()
    (late,) = tracker.dispatch(["a"])
    assert tracker.complete([late], [0.0]) == [-0.5]
    np.testing.assert_array_equal(tracker.evidence(["a"]), [[2.0, 3.0]])
    assert tracker.complete([early], [1.0]) == [0.5]
    np.testing.assert_array_equal(tracker.evidence(["a"]), [[2.5, 3.0]])
    assert tracker.values(["a"])[0] == 2.5 / 5.5


def test_jeffreys_prior() -> None:
    tracker = PromptTracker()
    tracker.register(["none", "some", "light"], [0, 6, 0], [0, 8, 8], mass=[8, 8, 2])
    np.testing.assert_allclose(
        tracker.evidence(["none", "some", "light"]),
        [[0.5, 0.5], [8 * 6.5 / 9, 8 * 2.5 / 9], [1 / 9, 17 / 9]],
        rtol=1e-15,
    )


def test_value_is_frozen_at_dispatch_and_shared_within_a_call() -> None:
    tracker = tracker_with("a")
    first, second = tracker.dispatch(["a", "a"])
    assert tracker.complete([first], [1.0]) == [0.5]
    assert tracker.values(["a"])[0] > 0.5
    assert tracker.complete([second], [1.0]) == [0.5]  # dispatched before anything was known


def test_task_untouched_for_many_publishes() -> None:
    """Row 18 of the inputs that break libraries of this kind."""
    tracker = tracker_with("a")
    tracker.complete(tracker.dispatch(["a"]), [1.0])
    before = tracker.values(["a"])[0]
    tracker.publish(10_000)
    assert tracker.values(["a"])[0] == before  # to the bit
    tracker.publish(2**62)
    assert tracker.values(["a"])[0] == before
    np.testing.assert_array_equal(tracker.evidence(["a"]), [[0.0, 0.0]])  # 0.875^10000 is below any double
    assert tracker.complete(tracker.dispatch(["a"]), [1.0])[0] == 1.0 - before
    assert tracker.values(["a"])[0] == 1.0


def test_outcome_that_arrives_ten_thousand_publishes_late() -> None:
    tracker = tracker_with("a")
    (old,) = tracker.dispatch(["a"])
    tracker.publish(10_000)
    tracker.complete(tracker.dispatch(["a"]), [0.0])
    before = tracker.values(["a"])[0]
    assert tracker.complete([old], [1.0])[0] == 0.5
    assert tracker.values(["a"])[0] == before


def test_publishes_do_not_overflow() -> None:
    tracker = tracker_with("a")
    tracker.publish(2**63 - 1)
    with pytest.raises(ValueError, match="overflow"):
        tracker.publish()
    assert tracker.publishes == 2**63 - 1
    for times in (-1, 2**63):
        with pytest.raises(ValueError, match="times"):
            tracker.publish(times)


def test_many_outcomes_in_two_orders() -> None:
    """Decay so slow that every outcome still counts, and every one of 20,000 moves the mantissas."""
    rho, n = 1 - 1e-6, 20_000
    rng = np.random.default_rng(0)
    outcomes = rng.random(n)
    orders = np.arange(n), rng.permutation(n)
    results = []
    for order in orders:
        tracker = tracker_with("a", rho=rho)
        tickets = np.empty(n, dtype=np.int64)
        for i in range(n):
            tickets[i] = tracker.dispatch(["a"])[0]
            tracker.publish(7)
        for i in order:
            tracker.complete(tickets[i : i + 1], outcomes[i : i + 1])
        results.append(tracker.values(["a"])[0])
    assert abs(results[0] - results[1]) <= TRACKER


@pytest.mark.parametrize(
    ("tickets", "outcomes", "message"),
    [
        ([0, 0], [1.0, 1.0], "ticket 0 appears twice"),
        ([0, 7], [1.0, 1.0], "ticket 7 was never issued"),
        ([0, -1], [1.0, 1.0], "ticket -1 was never issued"),
        ([0, 1], [1.0, float("nan")], r"outcomes\[1\]: expected a number in \[0, 1\], got nan"),
        ([0, 1], [1.0, 1.5], "got 1.5"),
        ([0, 1], [-0.1, 1.0], "got -0.1"),
        ([0, 1], [1.0], "shape"),
        ([0, 2], [1.0, 1.0], "ticket 2 has been completed or cancelled already"),
        ([0, 3], [1.0, 1.0], "ticket 3 has been completed or cancelled already"),
    ],
)
def test_failing_batch_changes_nothing(tickets: list[int], outcomes: list[float], message: str) -> None:
    tracker = tracker_with("a", "b")
    tracker.dispatch(["a", "b", "a", "b"])
    tracker.complete([2], [0.0])
    tracker.cancel([3])
    before = tracker.state_dict()
    with pytest.raises(ValueError, match=message):
        tracker.complete(tickets, outcomes)
    np.testing.assert_equal(tracker.state_dict(), before)
    if len(tickets) == len(outcomes) and "outcomes" not in message and "got" not in message:
        with pytest.raises(ValueError, match=message):
            tracker.cancel(tickets)
        np.testing.assert_equal(tracker.state_dict(), before)


def test_all_faults_in_one_message() -> None:
    tracker = tracker_with("a")
    tracker.dispatch(["a"])
    with pytest.raises(ValueError, match=r"ticket 5 was never issued; outcomes\[0\].*outcomes\[1\]"):
        tracker.complete([0, 5], [2.0, float("nan")])
    with pytest.raises(ValueError, match="'x', 1"):
        tracker.dispatch(["a", "x", 1])
    assert len(tracker.in_flight) == 1


def test_tickets_are_never_reused() -> None:
    tracker = tracker_with("a")
    first = tracker.dispatch(["a"] * 3)
    assert first.dtype == np.int64
    tracker.cancel(first)
    state = tracker.state_dict()
    assert set(tracker.dispatch(["a"] * 3)).isdisjoint(first)
    other = PromptTracker()
    other.load_state_dict(state)
    assert set(other.dispatch(["a"] * 3)).isdisjoint(first)


@pytest.mark.parametrize("rho", [0.0, -0.5, 1.5, float("nan"), float("inf")])
def test_rho_is_checked(rho: float) -> None:
    with pytest.raises(ValueError, match="rho"):
        PromptTracker(rho)


class AgainstFractions(RuleBasedStateMachine):
    """Any interleaving of calls, against sums of exact rationals over the whole history."""

    tickets = Bundle("tickets")

    @initialize(rho=st.sampled_from([0.5, 0.875, 0.99, 1.0, 1 / 3]), tasks=st.integers(1, 3))
    def start(self, rho: float, tasks: int) -> None:
        self.tracker = PromptTracker(rho)
        self.rho = Fraction(rho)
        self.k = 0
        self.history: dict[int, list[tuple[int, Fraction, Fraction]]] = {}
        self.open: dict[int, tuple[int, int, float]] = {}
        for task in range(tasks):
            self.tracker.register([task], [task], [4])
            alpha, beta = self.tracker.evidence([task])[0]
            self.history[task] = [(0, Fraction(alpha), Fraction(beta))]

    def exact(self, task: int) -> tuple[Fraction, Fraction]:
        decayed = [(self.rho ** (self.k - at), a, b) for at, a, b in self.history[task]]
        return sum(w * a for w, a, _ in decayed), sum(w * b for w, _, b in decayed)  # type: ignore[return-value]

    @rule(target=tickets, data=st.data())
    def dispatch(self, data: st.DataObject) -> Any:
        tasks = data.draw(st.lists(st.sampled_from(sorted(self.history)), max_size=4))
        tickets = self.tracker.dispatch(tasks).tolist()
        for ticket, task in zip(tickets, tasks, strict=True):
            alpha, beta = self.exact(task)
            self.open[ticket] = (task, self.k, float(alpha / (alpha + beta)))
        return multiple(*tickets)

    @rule(ticket=consumes(tickets), outcome=st.sampled_from([0.0, 1.0, 0.25, 0.1]))
    def complete(self, ticket: int, outcome: float) -> None:
        task, at, value = self.open.pop(ticket)
        assert abs(self.tracker.complete([ticket], [outcome])[0] - (outcome - value)) <= TRACKER
        self.history[task].append((at, Fraction(outcome), 1 - Fraction(outcome)))

    @rule(ticket=consumes(tickets))
    def cancel(self, ticket: int) -> None:
        del self.open[ticket]
        self.tracker.cancel([ticket])

    @rule(times=st.one_of(st.integers(0, 3), st.integers(0, 40)))
    def publish(self, times: int) -> None:
        self.tracker.publish(times)
        self.k += times

    @rule()
    def reload(self) -> None:
        state = self.tracker.state_dict()
        self.tracker = PromptTracker()
        self.tracker.load_state_dict(state)

    @invariant()
    def agrees(self) -> None:
        for task in getattr(self, "history", ()):
            alpha, beta = self.exact(task)
            assert abs(self.tracker.values([task])[0] - float(alpha / (alpha + beta))) <= TRACKER
            np.testing.assert_allclose(
                self.tracker.evidence([task])[0], [float(alpha), float(beta)], rtol=TRACKER, atol=1e-300
            )
        if hasattr(self, "open"):
            assert self.tracker.in_flight == {
                ticket: task for ticket, (task, _, _) in sorted(self.open.items())
            }


TestAgainstFractions = AgainstFractions.TestCase
TestAgainstFractions.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@settings(max_examples=50, deadline=None)
@given(data=st.data(), rho=st.sampled_from([0.5, 0.875, 0.999, 1.0]))
def test_arrival_order_does_not_matter(data: st.DataObject, rho: float) -> None:
    events = data.draw(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 1)), min_size=1, max_size=20))
    order = data.draw(st.permutations(range(len(events))))
    values = []
    for arrival in (range(len(events)), order):
        tracker, tickets = tracker_with("a", rho=rho), []
        for gap, _ in events:
            tracker.publish(gap)
            tickets.append(tracker.dispatch(["a"])[0])
        for i in arrival:
            tracker.complete([tickets[i]], [events[i][1]])
        values.append(tracker.values(["a"])[0])
    assert abs(values[0] - values[1]) <= TRACKER
