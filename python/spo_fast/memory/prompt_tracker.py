"""Prompt memory of SPO++."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spo_fast import _core
from spo_fast.memory._tracker import Floats, Ints, TaskId, Tracker, _column, _floats, _ints, _number


class PromptTracker(Tracker[_core.PromptTracker]):
    r"""Event-time evidence: a baseline frozen at dispatch, and outcomes that count from where they were dispatched.

    With :math:`k` publishes so far, a task registered at :math:`k_0` and its completed outcomes :math:`R_i` dispatched
    at :math:`k_i`,

    .. math:: \alpha = \rho^{k - k_0} \alpha_0 + \sum_i \rho^{k - k_i} R_i, \qquad v = \frac{\alpha}{\alpha + \beta},

    and :math:`\beta` the same with :math:`1 - R_i`. The order in which outcomes arrive does not matter, every call costs
    O(1) a task, and values stay exact however many publishes pass: decay common to both sides is never applied to them.

    >>> tracker = PromptTracker()
    >>> tracker.register(["a"], successes=[4], trials=[8])
    >>> ticket = tracker.dispatch(["a"])
    >>> tracker.complete(ticket, [1.0])
    array([0.5])

    Args:
        rho: evidence kept a publish, ``0 < rho <= 1``.

    Source: SPO++, closed form of the event-time evidence.
    Differs: any number of requests of a task may be in flight; the paper allows one.
    """

    _KIND = "PromptTracker"

    def __init__(self, rho: float = 0.875) -> None:
        super().__init__(_core.PromptTracker(rho))

    @property
    def rho(self) -> float:
        """Evidence kept a publish."""
        return self._core.rho

    @property
    def publishes(self) -> int:
        """How many publishes there have been, k."""
        return self._core.publishes

    @property
    def in_flight(self) -> dict[int, TaskId]:
        """Tickets dispatched and not yet completed or cancelled, and their tasks, in order of dispatch."""
        columns = self._core.columns()
        return {int(t): self._ids[i] for t, i in zip(columns["tickets"], columns["ticket_task"], strict=True)}

    def dispatch(self, task_ids: Sequence[TaskId]) -> Ints:
        """Freeze each task's value for a request that starts now.

        Args:
            task_ids: registered tasks, ``n`` of them, repeats allowed: all of one call share one history.

        Returns:
            Tickets, int64 ``[n]``; no number is ever issued again.

        Raises:
            ValueError: if a task is unknown.
        """
        return self._core.dispatch(self._indices(task_ids))

    def complete(self, tickets: npt.ArrayLike, outcomes: npt.ArrayLike) -> Floats:
        """Record outcomes and return their advantages over the values frozen at dispatch.

        An outcome joins the evidence for requests dispatched from now on; it never moves its own baseline.

        Args:
            tickets: int64 ``[n]``, in flight.
            outcomes: ``[n]`` in [0, 1].

        Returns:
            Outcome minus frozen value, float64 ``[n]``.

        Raises:
            ValueError: if a ticket is unknown, finished or named twice, or an outcome is not in [0, 1].
        """
        numbers = _ints("tickets", tickets)
        return self._core.complete(numbers, _floats("outcomes", outcomes, len(numbers)))

    def cancel(self, tickets: npt.ArrayLike) -> None:
        """Forget requests that will have no outcome.

        Raises:
            ValueError: if a ticket is unknown, finished or named twice.
        """
        self._core.cancel(_ints("tickets", tickets))

    def publish(self, times: int = 1) -> None:
        """Say that the policy was published ``times`` times; older evidence then weighs ``rho ** times`` as much."""
        if isinstance(times, bool) or not isinstance(times, (int, np.integer)):
            raise TypeError(f"times: expected an int, got {times!r}")
        if times > np.iinfo(np.int64).max or times < 0:
            raise ValueError(f"times: expected 0 <= times < 2**63, got {times}")
        self._core.publish(int(times))

    def state_dict(self) -> dict[str, Any]:
        return {"kind": self._KIND, "schema": self._SCHEMA, "task_ids": list(self._ids), **self._core.columns()}

    @classmethod
    def _restored(cls, state: dict[str, Any]) -> _core.PromptTracker:
        return _core.PromptTracker.from_columns(
            rho=float(_number(state, "rho", float, int)),
            publishes=int(_number(state, "publishes", int)),
            next_ticket=int(_number(state, "next_ticket", int)),
            evidence=_column(state, "evidence", np.float64, -1, 4),
            reference=_column(state, "reference", np.int64, -1),
            tickets=_column(state, "tickets", np.int64, -1),
            ticket_task=_column(state, "ticket_task", np.int64, -1),
            ticket_dispatched=_column(state, "ticket_dispatched", np.int64, -1),
            ticket_value=_column(state, "ticket_value", np.float64, -1),
        )

    def __repr__(self) -> str:
        return f"PromptTracker(rho={self.rho}): {len(self)} tasks, {self._core.in_flight} in flight, {self.publishes} publishes"
