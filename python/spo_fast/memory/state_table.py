"""State memory of 3SPO."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spo_fast import _core
from spo_fast._files import replaced
from spo_fast.memory._tracker import Floats, Ints

Texts: TypeAlias = Sequence[str] | Sequence[bytes]
Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class StateDelta:
    """What a :class:`StateTable` counted between two marks. Can be pickled and sent to another host.

    Attributes:
        origin: names the table that counted, 16 bytes.
        from_mark: counted after this mark; 0: since the table was made or loaded.
        to: counted up to this one; the mark to give to :meth:`StateTable.delta_since` next.
        trajectories: how many trajectories.
        options: the table's options.
        rows: uint64 ``[n, 3]``: both words of a key, and visits + 2^32 successes (0 + 2^32: an explored pair).
    """

    origin: bytes
    from_mark: int
    to: int
    trajectories: int
    options: dict[str, Any]
    rows: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.rows)


class StateTable:
    r"""How often each state was visited and how often that ended well, in a hash table that processes can share.

    With :math:`N_t` visits of a state and :math:`N_s` of them in successful trajectories, and :math:`t - 1` trajectories
    counted in all,

    .. math::

        S = \exp(-\alpha \log t \; N_s / (N_t + 10^{-6})) \text{ if } N_t - N_s < \xi \text{ or }
        N_s / (N_t + 10^{-6}) > \zeta \text{, else } 0; \qquad S = 1 \text{ for an unseen state.}

    A state is a ``str`` (its UTF-8 bytes) or ``bytes``, and known by 128 bits of hash. Calls take batches and release the
    interpreter's lock; any thread may call anything at any time. Reads never insert.

    >>> table = StateTable()
    >>> table.update([["kitchen", "hall", "kitchen"]], [True])
    >>> table.counts(["kitchen", "cellar"])
    array([[1, 1],
           [0, 0]])

    Args:
        alpha: how fast solved states lose interest.
        xi: failures below which a state is never given up.
        zeta: share of successes above which it is not.
        omega_k: decay of the novelty weight a visit.
        g_max: most rollouts from a state.
        path: a file that processes of one host share, made if missing; ``None``: this process's memory. All who open it
            must name the same options. What is counted is in the file at once, and there after a crash of any process.
        capacity: states to make room for beforehand; it only saves time.
        seed: 128 secret bits, the same in all tables that are to be merged. Keys are then SipHash-2-4, so that whoever
            writes the texts cannot make two of them meet. ``None``: a faster hash for text that nobody crafts.

    Raises:
        ValueError: if an option is out of its range, or the file is damaged, foreign or has other options.

    Source: 3SPO (arXiv 2606.09961), equations of the state score and the step reward.
    Differs: t counts trajectories, not visits; a state of which nothing but failures is known below ``xi`` has score 1;
    a solved state keeps at least one rollout however large t is.
    """

    def __init__(
        self,
        alpha: float = 50.0,
        xi: int = 10,
        zeta: float = 0.1,
        omega_k: float = 0.1,
        g_max: int = 8,
        path: str | os.PathLike[str] | None = None,
        capacity: int | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        options = _core.StateOptions(
            float(alpha), _whole("xi", xi), float(zeta), float(omega_k), _whole("g_max", g_max), _words(seed)
        )
        room = 0 if capacity is None else _whole("capacity", capacity)
        if not 0 <= room <= 2**32:
            raise ValueError(f"capacity: expected at least 0 and at most 2**32 states, got {capacity}")
        if path is None:
            self._core = _core.StateTable(options, room)
            return
        try:
            self._core = _core.StateTable(options, room, os.fspath(path))
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from error

    def update(self, trajectories: Sequence[Texts], successes: npt.ArrayLike) -> None:
        """Count finished trajectories; a state counts once in each, however often it occurs.

        Args:
            trajectories: the states at which decisions were made, in order, ``n`` lists.
            successes: whether each ended well, bool ``[n]``.
        """
        self._core.update(trajectories, _flags("successes", successes))

    def scores(self, states: Texts) -> Floats:
        """S of each state, float64 ``[n]``."""
        return self._core.scores(states)

    def rollout_counts(self, states: Texts) -> Ints:
        r"""Rollouts worth their cost, int64 ``[n]``: 0 for a state given up, else :math:`\max(1, \lceil g_{max} S \rceil)`."""
        return self._core.rollout_counts(states)

    def novelty_weights(self, states: Texts) -> Floats:
        r"""Weight of novelty in the step reward, float64 ``[n]``: :math:`w = \frac12 \exp(-\omega_k N_t)`."""
        return self._core.novelty_weights(states)

    def step_rewards(self, states: Texts, next_states: Texts, successes: npt.ArrayLike) -> Floats:
        r"""Rewards of steps from the statistics as they are now; ask before :meth:`update`.

        .. math:: R = w [s \ne s'] + (\tfrac12 - w)(S(s) - S(s')) + \tfrac12 [\text{this step ended in success}]

        Args:
            states: s, ``n`` of them.
            next_states: s'.
            successes: whether the step ended the trajectory well, bool ``[n]``.

        Returns:
            float64 ``[n]``.
        """
        return self._core.step_rewards(states, next_states, _flags("successes", successes))

    def mark_explored(self, states: Texts, actions: Texts) -> None:
        """Remember (state, action) pairs; changes no count."""
        self._core.mark_explored(states, actions)

    def is_explored(self, states: Texts, actions: Texts) -> Bools:
        """Which (state, action) pairs were marked, bool ``[n]``."""
        return self._core.is_explored(states, actions)

    def group_ids(self, states: Texts, groups: Sequence[Hashable] | npt.NDArray[Any]) -> Ints:
        """Number (group, state) pairs by first appearance, int64 ``[n]``: GiGPO's step groups. Linear; inserts nothing.

        Args:
            states: ``n`` of them.
            groups: the task group of each, ints or anything hashable.
        """
        return self._core.group_ids(states, _numbers(groups))

    def counts(self, states: Texts) -> Ints:
        """Visits and successes of each state, int64 ``[n, 2]``; 0 for an unseen one."""
        return self._core.counts(states)

    @property
    def unique_states(self) -> int:
        """How many states were visited."""
        return len(self._core)

    @property
    def t(self) -> int:
        """Trajectories counted, plus 1."""
        return self._core.t

    @property
    def nbytes(self) -> int:
        """Memory or disk that the states take."""
        return self._core.nbytes

    def visit_histogram(self) -> tuple[Ints, Ints]:
        """Numbers of visits that occur, ascending, and how many states have each."""
        table = self._core.visit_histogram()
        return table[:, 0], table[:, 1]

    def coverage(self, k: int = 2, *, reference: StateTable | None = None, epsilon: float = 0.01) -> float:
        r"""How well the states are covered.

        Without ``reference``: the share of visited states that were visited at least ``k`` times (0 for an empty table).
        With it: the L1-coverage of its visitation distribution q by this table's p, both shares of all visits,

        .. math:: \sum_s \frac{q(s)^2}{p(s) + \varepsilon q(s)},

        which is :math:`1 / (1 + \varepsilon)` for p = q and :math:`1 / \varepsilon` if no state of the reference was visited.

        Args:
            k: visits that make a state covered.
            reference: a table with the same options.
            epsilon: > 0; bounds the figure.

        Source: L1-coverage, "Scalable Online Exploration via Coverability" (arXiv 2403.06571), for one distribution.
        """
        if reference is not None:
            if not epsilon > 0:
                raise ValueError(f"epsilon: expected a number > 0, got {epsilon}")
            return self._core.l1_coverage(reference._core, float(epsilon))
        visits, states = self.visit_histogram()
        return float(states[visits >= k].sum() / max(states.sum(), 1))

    def delta_since(self, mark: int) -> StateDelta:
        """What this table itself counted after ``mark``, for tables of other hosts.

        What it merged from deltas is not in it: whoever wants that merges those deltas. Sending is the caller's affair:
        one delta after the other, each once at least.

        Args:
            mark: 0 (everything), ``to`` of the last delta (what is new), or ``from_mark`` of the last delta, should that
                have got lost.

        Raises:
            ValueError: at any other mark.
        """
        origin, start, to, trajectories, rows = self._core.delta_since(_whole("mark", mark))
        return StateDelta(origin, start, to, trajectories, _options(self._core), rows)

    def merge(self, other_or_delta: StateTable | StateDelta) -> bool:
        """Add what another table counted.

        A table: visits and successes add, explored pairs unite, t becomes the sum of both less 1. A delta: the same for
        what it holds, unless this table has it already. Order does not matter, except among deltas of one origin.

        Returns:
            False if nothing was added because the delta was known.

        Raises:
            ValueError: if the options differ, or deltas are missing between the last one of this origin and this one.
        """
        if isinstance(other_or_delta, StateTable):
            self._core.merge_table(other_or_delta._core)
            return True
        if not isinstance(other_or_delta, StateDelta):
            raise TypeError(f"expected a StateTable or a StateDelta, got {type(other_or_delta).__name__}")
        delta = other_or_delta
        options = dict(delta.options)
        options["seed"] = _words(options["seed"])
        return self._core.merge_delta(
            _core.StateOptions(**options),
            delta.origin,
            delta.from_mark,
            delta.to,
            delta.trajectories,
            delta.rows,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checksummed copy to ``path``, which holds the old or the whole new file at every moment."""
        with replaced(path) as descriptor:
            self._core.write(descriptor)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> StateTable:
        """The table that :meth:`save` wrote, in this process's memory; answers are the same to the bit.

        Its deltas are its own: they tell what it counts from now on, under a new origin.

        Raises:
            ValueError: naming the file, if it is truncated, damaged or not such a file.
        """
        table = cls.__new__(cls)
        with open(path, "rb") as file:
            try:
                table._core = _core.StateTable.read(file.fileno())
            except ValueError as error:
                raise ValueError(f"{os.fspath(path)}: {error}") from error
        return table

    def __len__(self) -> int:
        return len(self._core)

    def __repr__(self) -> str:
        options = ", ".join(f"{k}={v}" for k, v in _options(self._core).items() if k != "seed")
        return f"StateTable({options}): {len(self)} states, {self.t - 1} trajectories"


def _options(core: _core.StateTable) -> dict[str, Any]:
    options = core.options
    seed = None if options.seed is None else options.seed[0] | options.seed[1] << 64
    names = ("alpha", "xi", "zeta", "omega_k", "g_max")
    return {**{name: getattr(options, name) for name in names}, "seed": seed}


def _words(seed: int | None) -> tuple[int, int] | None:
    if seed is None:
        return None
    if not 0 <= _whole("seed", seed) < 2**128:
        raise ValueError(f"seed: expected 0 <= seed < 2**128, got {seed}")
    return seed & (2**64 - 1), seed >> 64


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: expected an int, got {value!r}")
    return int(value)


def _flags(name: str, value: npt.ArrayLike) -> Bools:
    array = np.asarray(value)
    if array.ndim != 1:
        raise ValueError(f"{name}: expected a sequence of bool, got shape {array.shape}")
    if array.dtype.kind == "b" or array.size == 0:
        return np.ascontiguousarray(array, dtype=np.bool_)
    if array.dtype.kind not in "iuf" or not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name}: expected bool, or 0 and 1, got {array.dtype} with other values")
    return array.astype(np.bool_)


def _numbers(groups: Sequence[Hashable] | npt.NDArray[Any]) -> Ints:
    if isinstance(groups, np.ndarray) and groups.dtype.kind in "iu" and groups.ndim == 1:
        return np.ascontiguousarray(groups.astype(np.int64))
    seen: dict[Any, int] = {}
    return np.fromiter((seen.setdefault(group, len(seen)) for group in groups), dtype=np.int64)
