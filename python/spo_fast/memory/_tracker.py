"""What the two trackers share: task ids, priors, values, sampling, state and files."""

from __future__ import annotations

import abc
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from spo_fast.memory._record import read_record, write_record

TaskId: TypeAlias = str | int
Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Self = TypeVar("Self", bound="Tracker[Any]")


class Core(Protocol):
    """What both compiled trackers offer, over task indices."""

    def register(self, successes: Floats, trials: Floats, mass: Floats, /) -> None: ...
    def values(self, tasks: Ints, /) -> Floats: ...
    def evidence(self, tasks: Ints, /) -> Floats: ...
    def __len__(self) -> int: ...


CoreT = TypeVar("CoreT", bound=Core)


class Tracker(abc.ABC, Generic[CoreT]):
    """Beta evidence of many tasks: a compiled core over indices, and the ids that name them.

    A task id is a ``str`` or an ``int`` and comes back as the type it went in: ``1`` and ``"1"`` are two tasks. numpy's
    integers and strings are taken as ``int`` and ``str``; ``bool`` and ``float`` are refused, because ``True == 1.0 == 1``
    would silently name one task.

    Calls take batches, check everything first and raise without having changed anything. Each is one call into the core
    under the interpreter's lock; registration and loading should not run beside other calls.
    """

    _KIND: ClassVar[str]
    _SCHEMA: ClassVar[int] = 1

    _core: CoreT
    _ids: list[TaskId]
    _index: dict[TaskId, int]

    def __init__(self, core: CoreT) -> None:
        self._core = core
        self._ids = []
        self._index = {}

    def register(
        self, task_ids: Sequence[TaskId], successes: npt.ArrayLike, trials: npt.ArrayLike, mass: npt.ArrayLike = 8.0
    ) -> None:
        r"""Add tasks, with the evidence of trials made beforehand.

        Jeffreys' prior scaled to a mass: :math:`\alpha_0 = m (s + 1/2) / (n + 1)`, :math:`\beta_0 = m - \alpha_0`; without
        trials :math:`\alpha_0 = \beta_0 = 1/2`.

        Args:
            task_ids: ids not registered before, ``n`` of them.
            successes: number, or sum of scores, ``[n]`` or one for all; ``0 <= successes <= trials``.
            trials: whole numbers, ``[n]`` or one for all.
            mass: the evidence's weight in outcomes, ``[n]`` or one for all.

        Raises:
            ValueError: if a task is known already or named twice, or a number is out of its range.
            TypeError: if an id is neither ``str`` nor ``int``.

        Source: SPO (arXiv 2509.13232), initialisation; mass ``8 = 1 / (1 - 0.875)``.
        """
        ids = _task_ids(task_ids)
        known = [task for task in ids if task in self._index]
        twice = [task for task, count in Counter(ids).items() if count > 1]
        if known or twice:
            faults = [f"{_shown(known)} registered already"] if known else []
            faults += [f"{_shown(twice)} named twice"] if twice else []
            raise ValueError(f"task_ids: expected new tasks, got {' and '.join(faults)}")
        n = len(ids)
        self._core.register(
            _floats("successes", successes, n), _floats("trials", trials, n), _floats("mass", mass, n)
        )
        self._index.update(zip(ids, range(len(self._ids), len(self._ids) + n), strict=True))
        self._ids.extend(ids)

    def values(self, task_ids: Sequence[TaskId]) -> Floats:
        r"""Success estimates :math:`v = \alpha / (\alpha + \beta)`, float64 ``[n]``, of registered tasks."""
        return self._core.values(self._indices(task_ids))

    def evidence(self, task_ids: Sequence[TaskId]) -> Floats:
        r"""Evidence :math:`(\alpha, \beta)` as it stands now, float64 ``[n, 2]``, of registered tasks."""
        return self._core.evidence(self._indices(task_ids))

    def sampling_weights(self, task_ids: Sequence[TaskId] | None = None) -> Floats:
        r"""How much there is to learn from each task: :math:`\sqrt{v (1 - v)} + 0.05`, float64 ``[n]``.

        Args:
            task_ids: registered tasks; ``None``: all, in the order of :attr:`task_ids`.
        """
        indices = np.arange(len(self), dtype=np.int64) if task_ids is None else self._indices(task_ids)
        v = self._core.values(indices)
        return np.sqrt(v * (1.0 - v)) + 0.05

    def sample(self, n: int, generator: np.random.Generator) -> list[TaskId]:
        """Draw ``n`` different tasks, each draw with probability proportional to :meth:`sampling_weights`.

        Args:
            n: how many; at most ``len(self)``.
            generator: source of randomness; the only thing the draw depends on besides the weights.

        Raises:
            ValueError: if there are fewer than ``n`` tasks.
        """
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
            raise TypeError(f"n: expected an int, got {n!r}")
        if not isinstance(generator, np.random.Generator):
            raise TypeError(f"generator: expected a numpy.random.Generator, got {type(generator).__name__}")
        if not 0 <= n <= len(self):
            raise ValueError(f"n: expected at most the {len(self)} registered tasks and at least 0, got {n}")
        if n == 0:
            return []
        weights = self.sampling_weights()
        drawn = generator.choice(len(self), size=int(n), replace=False, p=weights / weights.sum())
        return [self._ids[i] for i in drawn]

    @property
    def task_ids(self) -> list[TaskId]:
        """All tasks in order of registration (a copy)."""
        return list(self._ids)

    def __contains__(self, task: object) -> bool:
        try:
            return _task_id(task) in self._index
        except TypeError:
            return False

    def __len__(self) -> int:
        return len(self._ids)

    @abc.abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything the tracker holds: numpy arrays, numbers and the list of task ids; shares nothing with it."""

    @classmethod
    @abc.abstractmethod
    def _restored(cls, state: dict[str, Any]) -> CoreT:
        """A core with ``state``; raises ValueError, TypeError or KeyError if that is not one."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace everything, the options included, by what :meth:`state_dict` gave.

        Raises:
            ValueError: if ``state`` is not such a state; the tracker is then as it was.
        """
        try:
            kind, schema = state["kind"], state["schema"]
            if (kind, schema) != (self._KIND, self._SCHEMA):
                raise ValueError(f"expected {self._KIND} of schema {self._SCHEMA}, got {kind} of schema {schema}")
            given = state["task_ids"]
            ids = _task_ids(given)
            index = {task: i for i, task in enumerate(ids)}
            core = self._restored(state)
            if not len(index) == len(ids) == len(core):
                raise ValueError(f"task_ids: expected {len(core)} different tasks, got {len(index)} in {len(ids)}")
        except KeyError as error:
            raise ValueError(f"state: {error} is missing") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"state: {error}") from error
        self._core, self._ids, self._index = core, ids, index

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tracker to ``path``, which holds the old or the whole new file at every moment."""
        state = self.state_dict()
        write_record(path, state.pop("kind"), state.pop("schema"), state)

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str]) -> Self:
        """The tracker that :meth:`save` wrote, with its options, evidence and open tickets.

        Raises:
            ValueError: naming the file, if it is truncated, damaged or not such a file.
        """
        state = read_record(path, cls._KIND, cls._SCHEMA)
        tracker = cls()  # type: ignore[call-arg]  # every subclass has defaults for its options
        try:
            tracker.load_state_dict({"kind": cls._KIND, "schema": cls._SCHEMA, **state})
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from error
        return tracker

    def _indices(self, task_ids: Sequence[TaskId]) -> Ints:
        ids = _task_ids(task_ids)
        unknown = [task for task in ids if task not in self._index]
        if unknown:
            raise ValueError(f"task_ids: expected registered tasks, got {_shown(unknown)}")
        return np.fromiter((self._index[task] for task in ids), dtype=np.int64, count=len(ids))


def _task_id(task: object) -> TaskId:
    if isinstance(task, str):
        return str(task)
    if isinstance(task, (int, np.integer)) and not isinstance(task, bool):
        return int(task)
    raise TypeError(f"task_ids: expected str or int, got {task!r} ({type(task).__name__})")


def _task_ids(task_ids: Iterable[object]) -> list[TaskId]:
    if isinstance(task_ids, (str, bytes)) or not isinstance(task_ids, Iterable):
        raise TypeError(f"task_ids: expected a sequence of ids, got {task_ids!r}; for one task give [{task_ids!r}]")
    return [_task_id(task) for task in task_ids]


def _shown(tasks: Sequence[TaskId]) -> str:
    return ", ".join(map(repr, tasks[:8])) + (f" and {len(tasks) - 8} more" if len(tasks) > 8 else "")


def _floats(name: str, value: npt.ArrayLike, n: int) -> Floats:
    """``value`` as float64 ``[n]``; a single number stands for all."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" and array.size:
        raise TypeError(f"{name}: expected numbers, got {array.dtype}")
    if array.ndim == 0:
        array = np.broadcast_to(array, (n,))
    if array.shape != (n,):
        raise ValueError(f"{name}: expected shape ({n},), one a task or ticket, got {array.shape}")
    return np.ascontiguousarray(array, dtype=np.float64)


def _ints(name: str, value: npt.ArrayLike) -> Ints:
    """``value`` as int64 ``[n]``."""
    array = np.asarray(value)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise TypeError(f"{name}: expected a sequence of ints, got {array.dtype} of shape {array.shape}")
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name}: expected int64, got {array.max()}")
    return np.ascontiguousarray(array, dtype=np.int64)


def _column(state: dict[str, Any], name: str, dtype: type, *shape: int) -> npt.NDArray[Any]:
    """``state[name]``, which must be an array of ``dtype``; a length of -1 is free."""
    array = state[name]
    if not isinstance(array, np.ndarray) or array.dtype != np.dtype(dtype):
        raise TypeError(f"{name}: expected an array of {np.dtype(dtype)}, got {getattr(array, 'dtype', type(array).__name__)}")
    if array.ndim != len(shape) or any(want not in (-1, got) for want, got in zip(shape, array.shape, strict=True)):
        raise ValueError(f"{name}: expected shape {list(shape)}, got {list(array.shape)}")
    return np.ascontiguousarray(array)


def _number(state: dict[str, Any], name: str, *types: type) -> Any:
    value = state[name]
    if isinstance(value, bool) or not isinstance(value, types):
        raise TypeError(f"{name}: expected {' or '.join(t.__name__ for t in types)}, got {value!r}")
    return value
