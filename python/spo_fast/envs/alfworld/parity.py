"""Plays games in our engine and in the public one side by side and says whether they answer alike.

    python -m spo_fast.envs.alfworld.parity --games FOLDER [--limit N] [--steps 40] [--seed 0]
    python -m spo_fast.envs.alfworld.parity --generated N [--record FILE]

Four runs a game: its walkthrough; random admissible and impossible commands; all but the walkthrough's end, then
wandering; the walkthrough, then on after the win, looking closely at what each command changed. Observation, reward,
done, won and the admissible commands must be equal at every step, and the state keys must tell the same states apart.
A game that only one of the engines can load is a difference too. Exit status 0: games were
played and there is no difference; 1: otherwise.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spo_fast.envs.alfworld.expert import expert_plan
from spo_fast.envs.alfworld.files import find_games
from spo_fast.envs.alfworld.game import AlfworldGame
from spo_fast.envs.alfworld.generator import generate_games
from spo_fast.envs.alfworld.textworld import TextworldError, TextworldGame

__all__ = ["GameReport", "compare_game", "main", "record"]

RUNS = ("walkthrough", "random", "detour", "probe")
_IMPOSSIBLE = ("", "look around", "go to nowhere 1", "open", "take mug 99 from shelf 99", "examine", "xyzzy")
_CHANGES = ("open", "close", "take", "move", "clean", "heat", "cool", "slice", "use")

_Game = str | os.PathLike[str] | Mapping[str, Any]
_Commands = Callable[[Sequence[str]], str | None]
"""Says the next command, or None at the end, given the commands that are admissible now."""


@dataclass
class GameReport:
    """What a comparison found.

    Attributes:
        runs: by kind, the steps as the public engine answered them, each {cmd, obs, score, done, won, admissible,
            state}, the reset first; "state" numbers the game's states in the order of their appearance.
        won: whether the walkthrough wins in the public engine.
        differences: texts, at most one a run, which ends there.
    """

    id: str
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    won: bool = False
    differences: list[str] = field(default_factory=list)


def compare_game(game: _Game, steps: int = 40, seed: int = 0) -> GameReport:
    """Plays one game in both engines.

    Args:
        game: a ``game.tw-pddl`` or a mapping.
        steps: length of the random run, and how long the others go on after the walkthrough.
        seed: with the game's id, decides the commands.

    Raises:
        ImportError: the public engine is not installed. OSError: the file cannot be read.
    """
    refusals = []
    try:
        ours = AlfworldGame(game, max_steps=None)
    except ValueError as error:
        refusals.append(f"ours: {error}")
    try:
        public = TextworldGame(game, max_steps=None)
    except TextworldError as error:
        refusals.append(f"public: {error}")
    if refusals:
        name = game.get("id", "the game") if isinstance(game, Mapping) else os.fspath(game)
        if len(refusals) == 2:
            return GameReport(str(name))
        return GameReport(str(name), differences=[f"{name}\n  only one engine loads it; {refusals[0]}"])
    report = GameReport(ours.id)
    pair = _Pair(ours, public)
    try:
        walkthrough = _walkthrough(game, ours)
        for kind in RUNS:
            commands = _commands(kind, walkthrough, steps, random.Random(f"{seed} {ours.id} {kind}"))
            report.runs[kind], difference = pair.play(commands)
            if difference:
                report.differences.append(f"{ours.id}\n  run {kind}, {difference}")
        report.won = bool(walkthrough) and report.runs["walkthrough"][-1]["won"]
    except TextworldError as error:
        report.differences.append(f"{ours.id}\n  the public engine failed: {error}")
    finally:
        public.close()
    return report


class _Pair:
    """One game in both engines."""

    def __init__(self, ours: AlfworldGame, public: TextworldGame) -> None:
        self._ours, self._public = ours, public
        # Which key of ours goes with which of theirs, both ways: the partitions of states are to be equal.
        self._theirs_of: dict[bytes, bytes] = {}
        self._ours_of: dict[bytes, bytes] = {}
        self._number_of: dict[bytes, int] = {}

    def play(self, commands: _Commands) -> tuple[list[dict[str, Any]], str | None]:
        """Returns what the public engine answered, and the first difference if there is one."""
        theirs, ours = _reset_row(*self._public.reset()), _reset_row(*self._ours.reset())
        said: list[dict[str, Any]] = []
        while True:
            number, difference = self._state()
            difference = _difference(ours, theirs) or difference
            said.append({**theirs, "state": number})
            if difference:
                return (
                    said,
                    f"step {len(said) - 1}, after {[row['cmd'] for row in said[1:]]}:\n  {difference}",
                )
            command = commands(theirs["admissible"])
            if command is None:
                return said, None
            theirs = _step_row(command, *self._public.step(command))
            ours = _step_row(command, *self._ours.step(command))

    def _state(self) -> tuple[int, str | None]:
        """The number of the public engine's state, and how ours differs in telling states apart."""
        ours, theirs = self._ours.state_key, self._public.state_key
        number = self._number_of.setdefault(theirs, len(self._number_of))
        if self._theirs_of.setdefault(ours, theirs) != theirs:
            return number, "our state key was met before, in another state of the public engine"
        if self._ours_of.setdefault(theirs, ours) != ours:
            return number, "the public engine was in this state before, with another state key of ours"
        return number, None


def _reset_row(observation: str, info: dict[str, Any]) -> dict[str, Any]:
    return _row(None, observation, 0, False, info)


def _step_row(
    command: str, observation: str, reward: float, done: bool, truncated: bool, info: dict[str, Any]
) -> dict[str, Any]:
    return _row(command, observation, reward, done, info)


def _row(
    command: str | None, observation: str, reward: float, done: bool, info: dict[str, Any]
) -> dict[str, Any]:
    return {
        "cmd": command,
        "obs": observation,
        "score": int(reward),
        "done": done,
        "won": info["won"],
        "admissible": info["admissible_commands"],
    }


def _difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str | None:
    for name, expected in theirs.items():
        got = ours[name]
        if got == expected:
            continue
        if name == "admissible" and set(got) != set(expected):
            only_ours, only_public = sorted(set(got) - set(expected)), sorted(set(expected) - set(got))
            return f"admissible commands\n    only ours:   {only_ours}\n    only public: {only_public}"
        return f"{name}\n    ours:   {got!r}\n    public: {expected!r}"
    return None


def _walkthrough(game: _Game, ours: AlfworldGame) -> list[str]:
    """The game's own, or else the expert's; empty where neither is."""
    members = game if isinstance(game, Mapping) else json.loads(Path(game).read_text(encoding="utf-8"))
    try:
        return list(members.get("walkthrough") or expert_plan(ours))
    except ValueError:
        return []


def _commands(kind: str, walkthrough: list[str], steps: int, rng: random.Random) -> _Commands:
    """A run of that kind: so much of the walkthrough, then so many steps of wandering."""
    if kind == "detour":
        walkthrough = walkthrough[: max(0, len(walkthrough) - rng.randint(1, 3))]
    scripted = deque([] if kind == "random" else walkthrough)
    wander = _wander(rng, closely=kind == "probe")
    left = 0 if kind == "walkthrough" else steps

    def command(admissible: Sequence[str]) -> str | None:
        nonlocal left
        if scripted:
            return scripted.popleft()
        left -= 1
        return wander(admissible) if left >= 0 else None

    return command


def _wander(rng: random.Random, closely: bool) -> Callable[[Sequence[str]], str]:
    """Random commands that tend to change something; `closely` looks, examines and lists after each change."""
    seen: list[str] = []
    due: list[str] = []

    def command(admissible: Sequence[str]) -> str:
        if due:
            return due.pop()
        seen.extend(admissible)
        if rng.random() < 0.15:
            return _impossible(rng, admissible, seen)
        changes = [c for c in admissible if c.startswith(_CHANGES)]
        chosen = rng.choice(changes if changes and rng.random() < 0.5 else admissible)
        if closely and chosen.startswith(_CHANGES):
            words = chosen.replace(" from ", " to ").replace(" with ", " to ").split(" ", 1)[1]
            due.extend(["inventory", *(f"examine {name}" for name in words.split(" to ")), "look"])
        return chosen

    return command


def _impossible(rng: random.Random, admissible: Sequence[str], seen: Sequence[str]) -> str:
    """A command that mostly does nothing; spaces around one are the exception that must be forgiven."""
    usual = rng.choice(admissible)
    return rng.choice(
        [rng.choice(_IMPOSSIBLE), rng.choice(seen), usual.upper(), usual.replace(" ", "  "), f" {usual}\t"]
    )


def record(
    games: Sequence[Mapping[str, Any]], reports: Sequence[GameReport], file: str | os.PathLike[str]
) -> None:
    """Writes what the public engine answered, a game a line, xz-compressed.

    A line has {id, split, task_type, task, pddl_problem, walkthrough, runs: [{kind, steps}]}; domain and grammar are
    `game_mapping`'s and are not repeated.
    """
    target = Path(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    members = ("id", "split", "task_type", "task", "pddl_problem", "walkthrough")
    with lzma.open(target, "wt", encoding="utf-8", preset=9 | lzma.PRESET_EXTREME) as lines:
        for game, report in zip(games, reports, strict=True):
            runs = [{"kind": kind, "steps": steps} for kind, steps in report.runs.items()]
            row = {**{key: game[key] for key in members}, "runs": runs}
            lines.write(json.dumps(row, separators=(",", ":")) + "\n")


def _compare_all(games: Sequence[_Game], steps: int, seed: int, processes: int) -> Iterator[GameReport]:
    """In the order given; the threads only wait for their games' processes."""
    waiting: deque[Future[GameReport]] = deque()
    with ThreadPoolExecutor(processes) as pool:
        try:
            for game in games:  # a few at a time: reports of thousands of games would fill the memory
                waiting.append(pool.submit(compare_game, game, steps, seed))
                if len(waiting) > 2 * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m spo_fast.envs.alfworld.parity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--games", metavar="FOLDER", help="a folder of game.tw-pddl files, at any depth")
    source.add_argument("--generated", metavar="N", type=int, help="so many generated games instead")
    parser.add_argument("--limit", metavar="N", type=int, help="only N games, spread over the folder")
    parser.add_argument("--steps", type=int, default=40, help="random steps a run (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2, help="games played at once (%(default)s)")
    parser.add_argument(
        "--record", metavar="FILE", help="with --generated: write the public engine's answers"
    )
    return parser


def _games(options: argparse.Namespace) -> Sequence[_Game]:
    if options.generated is not None:
        # As in real games, some receptacles share a place.
        return generate_games(options.generated, options.seed, shared_locations=0.3)
    paths = find_games(options.games)
    if options.limit is None or options.limit >= len(paths):
        return paths
    return [paths[i * len(paths) // options.limit] for i in range(options.limit)]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.record and options.generated is None:
        parser.error("--record: only generated games may be recorded; give --generated N")
    for name in ("generated", "limit", "steps", "processes"):
        if (value := getattr(options, name)) is not None and value < 1:
            parser.error(f"--{name}: expected 1 or more, got {value}")
    start = time.perf_counter()
    played = runs = steps = won = different = 0
    kept: list[GameReport] = []
    try:
        games = _games(options)
        for report in _compare_all(games, options.steps, options.seed, options.processes):
            if report.differences and not different:
                print(f"The first difference: {report.differences[0]}", flush=True)
            played += bool(report.runs)
            runs += len(report.runs)
            steps += sum(map(len, report.runs.values()))
            won += report.won
            different += len(report.differences)
            if options.record:
                kept.append(report)
            if sys.stderr.isatty():
                print(f"\r{played} of {len(games)} games", end="", file=sys.stderr, flush=True)
    except (ImportError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(
        f"{played} of {len(games)} games played, {runs} runs, {steps:,} steps in "
        f"{time.perf_counter() - start:.0f} s; {won} walkthroughs won; {different} differences"
    )
    if options.record:
        record([game for game in games if isinstance(game, Mapping)], kept, options.record)
        print(f"{options.record}: {os.path.getsize(options.record):,} bytes")
    return 0 if played and not different else 1


if __name__ == "__main__":
    sys.exit(main())
