"""ALFWorld games played by the public engine (alfworld over textworld), behind the protocol of our own.

It is the reference for `AlfworldGame` and some ten thousand times slower. Its games run in worker processes, because
it crashes in threads and overwrites ``sys.argv``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spo_fast._extras import require
from spo_fast.envs.alfworld.files import TRAJECTORY_FILE
from spo_fast.envs.alfworld.game import AlfworldGame, id_of_path
from spo_fast.envs.protocol import Environment, Step
from spo_fast.envs.worker import WorkerError, WorkerProcess

__all__ = ["TextworldError", "TextworldGame", "TextworldTasks"]

_SERVER = "spo_fast.envs.alfworld.textworld_server:TextworldServer"
_TIMEOUT = 120.0  # seconds; the slowest reset of a real game takes 2.4 on an idle core


class TextworldError(RuntimeError):
    """The public engine refused a game, failed, died or hung; says which game."""


class TextworldGame:
    """One ALFWorld game in the public engine; the calls, returns and id of `AlfworldGame`.

    Args:
        path_or_mapping: a ``game.tw-pddl``, or a mapping with its members.
        max_steps: `step` says truncated from this many steps on, unless the goal holds; None for no limit.
        timeout: seconds that the engine may take over one call before it is given up.

    Raises:
        ImportError: the extra is not installed.
        TextworldError: the engine cannot load the game.

    Differs: there is no snapshot, copy or restore, which the public engine lacks.
    """

    def __init__(
        self,
        path_or_mapping: str | os.PathLike[str] | Mapping[str, Any],
        max_steps: int | None = 50,
        *,
        timeout: float = _TIMEOUT,
    ) -> None:
        process = _Process(timeout)
        try:
            self._begin(_Source(path_or_mapping), max_steps, process)
        except BaseException:
            process.close()
            raise
        self._own = process

    _own: _Process | None = None  # a process that holds this game alone and ends with it

    @classmethod
    def _in(cls, process: _Process, source: _Source, max_steps: int | None) -> TextworldGame:
        game = cls.__new__(cls)
        game._begin(source, max_steps, process)
        return game

    def _begin(self, source: _Source, max_steps: int | None, process: _Process) -> None:
        self._source, self._process = source, process
        self.id = source.id
        self.max_steps = max_steps
        self.steps = 0
        self._number = process.open(source)
        self._release = weakref.finalize(self, process.release, self._number)
        self._release.atexit = False  # the process itself ends then

    @property
    def gamefile(self) -> str:
        """The file the game came from, or its id."""
        return self._source.gamefile

    @property
    def task_type(self) -> str:
        """One of `spo_fast.envs.alfworld.TASK_TYPES`."""
        return self._source.task_type()

    @property
    def state_key(self) -> bytes:
        """16 bytes that are equal for equal dynamic facts of one game, as `AlfworldGame.state_key`; other bytes."""
        key: bytes = self._ask("state_key", self._number)
        return key

    def reset(self) -> tuple[str, dict[str, Any]]:
        """Starts over; returns (observation, info)."""
        observation, won, admissible = self._ask("reset", self._number)
        self.steps = 0
        return observation, self._info(won, admissible)

    def step(self, command: str) -> Step:
        """Says one command; returns (observation, reward, terminated, truncated, info)."""
        return self._stepped(self._ask("step", [(self._number, command)])[0])

    def close(self) -> None:
        """Gives the game up; a later call fails. A game that is merely forgotten is closed too."""
        self._release()
        if self._own is not None:
            self._own.close()

    def _ask(self, method: str, argument: Any) -> Any:
        return self._process.call([self], method, argument)

    def _stepped(self, answer: tuple[str, float, bool, bool, list[str]]) -> Step:
        observation, reward, terminated, won, admissible = answer
        self.steps += 1
        truncated = not terminated and self.max_steps is not None and self.steps >= self.max_steps
        return observation, reward, terminated, truncated, self._info(won, admissible)

    def _info(self, won: bool, admissible: list[str]) -> dict[str, Any]:
        return {"admissible_commands": admissible, "won": won, "gamefile": self.gamefile}

    def __repr__(self) -> str:
        return f"TextworldGame({self.id!r}, steps={self.steps})"

    def __reduce__(self) -> Any:
        raise TypeError("a TextworldGame lives in a process and cannot be pickled")


class TextworldTasks:
    """A `TaskSet` of ALFWorld games in the public engine, shared out over a few worker processes.

    Args:
        games: paths or mappings, as `TextworldGame` takes them. Nothing is loaded before `make`.
        max_steps: after how many steps an episode is truncated.
        processes: how many workers at most; they start when needed and end with `close` or with this object.
        timeout: seconds that the engine may take over one game's step or reset before it is given up.

    Raises:
        ValueError: two games have one id, or processes < 1. ImportError: the extra is not installed.
    """

    def __init__(
        self,
        games: Iterable[str | os.PathLike[str] | Mapping[str, Any]],
        max_steps: int | None = 50,
        processes: int = 2,
        *,
        timeout: float = _TIMEOUT,
    ) -> None:
        if processes < 1:
            raise ValueError(f"processes: expected 1 or more, got {processes}")
        require("the public ALFWorld engine", "alfworld")
        self._sources: dict[str, _Source] = {}
        for source in map(_Source, games):
            if source.id in self._sources:
                raise ValueError(f"games: two have the id {source.id!r}")
            self._sources[source.id] = source
        self._max_steps, self._limit, self._timeout = max_steps, processes, timeout
        self._processes: list[_Process] = []

    @property
    def task_ids(self) -> Sequence[str]:
        """In the order of the games given."""
        return tuple(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def task_type(self, task_id: str) -> str:
        """One of `spo_fast.envs.alfworld.TASK_TYPES`."""
        return self._sources[task_id].task_type()

    def make(self, task_id: str) -> TextworldGame:
        """A new running game of that task, in the worker that holds the fewest."""
        source = self._sources[task_id]
        self._processes = [process for process in self._processes if process.alive]
        process = min(self._processes, key=lambda p: p.games, default=None)
        if process is None or (process.games and len(self._processes) < self._limit):
            process = _Process(self._timeout)
            self._processes.append(process)
        return TextworldGame._in(process, source, self._max_steps)

    def step(self, environments: Sequence[Environment], commands: Sequence[str]) -> list[Step]:
        """Steps each game once, the workers at the same time.

        Raises:
            TextworldError: a game failed. The other workers' games have been stepped.
        """
        if len(environments) != len(commands):
            raise ValueError(f"commands: expected {len(environments)}, one a game, got {len(commands)}")
        shares: dict[_Process, list[int]] = defaultdict(list)
        games: list[TextworldGame] = []
        for i, game in enumerate(environments):
            if not isinstance(game, TextworldGame):
                raise TypeError(f"environments[{i}]: expected a TextworldGame of this set, got {game!r}")
            games.append(game)
            shares[game._process].append(i)
        failures: list[TextworldError] = []
        steps: dict[int, Step] = {}
        waiting = []
        for process, share in shares.items():
            moves = [(games[i]._number, commands[i]) for i in share]
            try:
                process.send([games[i] for i in share], "step", moves)
                waiting.append((process, share))
            except TextworldError as error:
                failures.append(error)
        for process, share in waiting:
            try:
                answers = process.receive([games[i] for i in share])
            except TextworldError as error:
                failures.append(error)
            else:
                steps |= {i: games[i]._stepped(answer) for i, answer in zip(share, answers, strict=True)}
        if failures:
            raise failures[0]
        return [steps[i] for i in range(len(games))]

    def close(self) -> None:
        """Ends the workers, and with them every game made here."""
        for process in self._processes:
            process.close()
        self._processes = []


class _Source:
    """Where a game comes from, and what is known of it without an engine."""

    def __init__(self, path_or_mapping: str | os.PathLike[str] | Mapping[str, Any]) -> None:
        self._type: str | None = None
        self.given: str | dict[str, Any]
        if isinstance(path_or_mapping, Mapping):
            self.given = dict(path_or_mapping)
            self._type = self.given.get("task_type")
            self.id = str(self.given.get("id") or self.given.get("gamefile") or AlfworldGame(self.given).id)
            self.gamefile = str(self.given.get("gamefile") or self.given.get("id") or "")
        else:
            self.given = self.gamefile = os.fspath(path_or_mapping)
            self.id = id_of_path(self.given)

    def task_type(self) -> str:
        if self._type is None and isinstance(self.given, str):
            beside = Path(self.given).with_name(TRAJECTORY_FILE)
            if beside.exists():
                self._type = json.loads(beside.read_text(encoding="utf-8"))["task_type"]
        if self._type is None:
            self._type = AlfworldGame(self.given).task_type
        return self._type

    def for_engine(self) -> str | dict[str, Any]:
        """What the public engine loads: an absolute path, or the members it reads."""
        if isinstance(self.given, str):
            return os.path.abspath(self.given)
        return {key: self.given[key] for key in ("pddl_domain", "grammar", "pddl_problem")}


class _Process:
    """A worker that holds several games, known to it by number."""

    def __init__(self, timeout: float) -> None:
        require("the public ALFWorld engine", "alfworld")
        self._worker = WorkerProcess(_SERVER)
        self._timeout = timeout
        self._numbers = itertools.count()
        self._open: set[int] = set()
        # Games are released by the garbage collector at any moment, so perhaps amid a send: noted here, told later.
        self._released: list[int] = []

    @property
    def games(self) -> int:
        return len(self._open)

    @property
    def alive(self) -> bool:
        return self._worker.alive

    def open(self, source: _Source) -> int:
        number = next(self._numbers)
        with _naming(source.id):
            self._tell_released()
            self._worker.call("open", number, source.id, source.for_engine(), timeout=self._timeout)
        self._open.add(number)
        return number

    def release(self, number: int) -> None:
        self._open.discard(number)
        self._released.append(number)

    def call(self, games: Sequence[TextworldGame], method: str, argument: Any) -> Any:
        self.send(games, method, argument)
        return self.receive(games)

    def send(self, games: Sequence[TextworldGame], method: str, argument: Any) -> None:
        closed = [game.id for game in games if game._number not in self._open]
        if closed:
            raise TextworldError(f"{closed[0]}: the game is closed")
        with _naming(_names(games)):
            self._tell_released()
            self._worker.send(method, argument)

    def receive(self, games: Sequence[TextworldGame]) -> Any:
        with _naming(_names(games)):
            return self._worker.receive(self._timeout * len(games))

    def close(self) -> None:
        self._worker.close()

    def _tell_released(self) -> None:
        released, self._released = self._released, []
        if released and self._worker.alive:
            self._worker.send("close", released)  # its answer is dropped


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Turns a WorkerError into a TextworldError that names the game."""
    try:
        yield
    except WorkerError as error:
        text = str(error)
        raise TextworldError(text if name in text else f"{name}: {text}") from None


def _names(games: Sequence[TextworldGame]) -> str:
    if len(games) == 1:
        return games[0].id
    more = f" and {len(games) - 3} more" if len(games) > 3 else ""
    return f"one of {', '.join(game.id for game in games[:3])}{more}"
