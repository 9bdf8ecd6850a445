"""Prompt memory of SPO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spo_fast import _core
from spo_fast.memory._tracker import Floats, TaskId, Tracker, _column, _floats, _number


class ReceiptOrderTracker(Tracker[_core.ReceiptOrderTracker]):
    r"""Evidence folded in the order of receipt, forgotten faster the further the policy has moved.

    .. math:: \rho = \mathrm{clip}(2^{-D / D_\mathrm{half}}, \rho_\mathrm{min}, \rho_\mathrm{max}), \qquad
              \alpha \leftarrow \rho \alpha + R, \qquad \beta \leftarrow \rho \beta + 1 - R

    >>> tracker = ReceiptOrderTracker()
    >>> tracker.register(["a"], successes=[4], trials=[8])
    >>> tracker.update(["a"], [1.0], drift=[0.01])
    array([0.5])

    Args:
        rho_min, rho_max: limits of the evidence kept an outcome, ``0 < rho_min <= rho_max <= 1``.
        d_half: the drift at which half the evidence is kept, in nats.

    Source: SPO (arXiv 2509.13232), adaptive value tracker.
    """

    _KIND = "ReceiptOrderTracker"

    def __init__(self, rho_min: float = 0.875, rho_max: float = 0.96, d_half: float = 0.06) -> None:
        super().__init__(_core.ReceiptOrderTracker(rho_min, rho_max, d_half))

    @property
    def rho_min(self) -> float:
        """Least evidence kept an outcome."""
        return self._core.rho_min

    @property
    def rho_max(self) -> float:
        """Most evidence kept an outcome."""
        return self._core.rho_max

    @property
    def d_half(self) -> float:
        """Drift at which half the evidence is kept."""
        return self._core.d_half

    def update(self, task_ids: Sequence[TaskId], outcomes: npt.ArrayLike, drift: npt.ArrayLike) -> Floats:
        """Record outcomes in array order; a task named again sees its earlier outcomes of the same call.

        Args:
            task_ids: registered tasks, ``n`` of them.
            outcomes: ``[n]`` in [0, 1].
            drift: ``[n]`` or one for all, >= 0: mean ``|old - current|`` log-prob over the action tokens of the task's
                previous trajectory (at its first visit: of this one).

        Returns:
            Outcome minus the value just before it, float64 ``[n]``.

        Raises:
            ValueError: if a task is unknown, an outcome is not in [0, 1], or a drift is negative or NaN.
        """
        indices = self._indices(task_ids)
        n = len(indices)
        return self._core.update(indices, _floats("outcomes", outcomes, n), _floats("drift", drift, n))

    def state_dict(self) -> dict[str, Any]:
        return {
            "kind": self._KIND,
            "schema": self._SCHEMA,
            "rho_min": self.rho_min,
            "rho_max": self.rho_max,
            "d_half": self.d_half,
            "task_ids": list(self._ids),
            "evidence": self._core.evidence(np.arange(len(self), dtype=np.int64)),
        }

    @classmethod
    def _restored(cls, state: dict[str, Any]) -> _core.ReceiptOrderTracker:
        return _core.ReceiptOrderTracker.from_evidence(
            rho_min=float(_number(state, "rho_min", float, int)),
            rho_max=float(_number(state, "rho_max", float, int)),
            d_half=float(_number(state, "d_half", float, int)),
            evidence=_column(state, "evidence", np.float64, -1, 2),
        )

    def __repr__(self) -> str:
        return (
            f"ReceiptOrderTracker(rho_min={self.rho_min}, rho_max={self.rho_max}, d_half={self.d_half}): {len(self)} tasks"
        )
