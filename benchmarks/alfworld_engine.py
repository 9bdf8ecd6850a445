"""Times the ALFWorld engine on a folder of games, beside the public engine where that is installed.

    python benchmarks/alfworld_engine.py --games FOLDER [--batch 64] [--steps 200000] [--public-steps 60]

One thread. Commands are Python strings: each a random one of the game's admissible commands, or, one time in ten,
one that does nothing. Games start over every 50 steps; choosing commands is not timed.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spo_fast.envs.alfworld import AlfworldBatch, AlfworldGame, find_games

EPISODE = 50
INVALID = ("go to the moon", "take mug 99 from shelf 99", "", "examine")


@dataclass
class Figure:
    name: str
    value: float
    unit: str
    bound: str


def best(measure: Callable[[], float], times: int = 5) -> float:
    """The smallest of several measurements: what the code costs when nothing else runs."""
    return min(measure() for _ in range(times))


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def choose(rng: random.Random, info: dict[str, Any]) -> str:
    return rng.choice(INVALID) if rng.random() < 0.1 else rng.choice(info["admissible_commands"])


def record_commands(games: Sequence[AlfworldGame], rounds: int, seed: int = 0) -> list[list[str]]:
    """The commands of `rounds` batched steps, chosen by playing them once."""
    rng = random.Random(seed)
    batch = AlfworldBatch(games)
    commands: list[list[str]] = []
    infos: list[dict[str, Any]] = []
    for round_ in range(rounds):
        if round_ % EPISODE == 0:
            infos = batch.reset()[1]
        # Copies, so that the timed run meets strings of its own, as from a tokenizer.
        commands.append(["".join(list(choose(rng, info))) for info in infos])
        infos = batch.step(commands[-1])[4]
    return commands


def steps_per_second(games: Sequence[AlfworldGame], rounds: int, threads: int = 1) -> float:
    """Batched steps, each building the observations, admissible-command lists and infos as Python objects."""
    commands = record_commands(games, rounds)
    batch = AlfworldBatch(games, threads)

    def run() -> float:
        total = 0.0
        for start in range(0, rounds, EPISODE):
            batch.reset()
            begin = time.perf_counter()
            for round_ in range(start, min(start + EPISODE, rounds)):
                batch.step(commands[round_])
            total += time.perf_counter() - begin
        return len(games) * rounds / total

    return max(run() for _ in range(3))


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def measure_memory(paths: Sequence[Path], copies: int = 20_000) -> list[Figure]:
    """Resident memory of loaded games and of copies. Call it first: later, freed memory would hide the growth."""

    def growth(objects: list[Any], make: Callable[[], list[Any]]) -> float:
        gc.collect()
        before = resident_bytes()
        objects += make()
        return (resident_bytes() - before) / len(objects)

    loaded: list[Any] = []
    running: list[Any] = []

    def load_and_play() -> list[Any]:
        games = [AlfworldGame(path) for path in paths]
        for seed in range(3):
            record_commands(games, EPISODE, seed)  # fills the caches of command strings
        return games

    return [
        Figure("a loaded and played game", growth(loaded, load_and_play) / 1e3, "kB", "<= 1,000"),
        Figure("a further running copy", growth(running, lambda: [loaded[i % len(loaded)].copy() for i in range(copies)]) / 1e3, "kB", "<= 100"),
    ]  # fmt: skip


def measure(paths: Sequence[Path], batch: int, steps: int) -> list[Figure]:
    memory = measure_memory(paths)
    games = [AlfworldGame(path) for path in paths]
    loads = [best(lambda p=path: seconds(lambda: AlfworldGame(p)), 3) for path in paths]
    playing = [games[i % len(games)].copy() for i in range(batch)]
    rate = steps_per_second(playing, max(EPISODE, steps // batch))
    one = playing[0]
    state = one.snapshot()
    repeat = 1000

    def each(work: Callable[[], Any]) -> float:
        return best(lambda: seconds(lambda: [work() for _ in range(repeat)])) / repeat

    return [
        Figure("steps, admissible lists built", rate, "/s", ">= 100,000"),
        Figure("load, median", 1e3 * statistics.median(loads), "ms", "<= 5"),
        Figure("load, slowest", 1e3 * max(loads), "ms", "<= 5"),
        Figure("reset", 1e3 * each(one.reset), "ms", "<= 1"),
        Figure("snapshot", 1e6 * each(one.snapshot), "us", "<= 10"),
        Figure("restore", 1e6 * each(lambda: one.restore(state)), "us", "<= 10"),
        Figure("copy", 1e6 * each(one.copy), "us", ""),
        Figure("state_key", 1e6 * each(lambda: one.state_key), "us", ""),
        *memory,
    ]


def measure_public(path: Path, steps: int) -> list[Figure] | str:
    """The public engine on one game, or what to install for it."""
    try:
        from spo_fast.envs.alfworld.textworld import TextworldGame

        start = time.perf_counter()
        game = TextworldGame(path)
        load = time.perf_counter() - start
    except ImportError as error:
        return f"The public engine is not installed: pip install 'spo-fast[alfworld]' ({error})"
    start = time.perf_counter()
    _, info = game.reset()
    reset = time.perf_counter() - start
    rng = random.Random(0)
    start = time.perf_counter()
    for _ in range(steps):
        info = game.step(choose(rng, info))[4]
    rate = steps / (time.perf_counter() - start)
    return [
        Figure("steps, admissible lists built", rate, "/s", ""),
        Figure("load, median", 1e3 * load, "ms", ""),
        Figure("reset", 1e3 * reset, "ms", ""),
    ]


def report(ours: list[Figure], public: list[Figure] | str) -> str:
    theirs = {} if isinstance(public, str) else {figure.name: figure for figure in public}
    lines = [f"{'':32}{'spo_fast':>14}{'bound':>13}{'public':>14}{'ratio':>10}"]
    for figure in ours:
        other = theirs.get(figure.name)
        value = f"{figure.value:,.0f}" if figure.value >= 100 else f"{figure.value:.3g}"
        line = f"{figure.name:32}{value + ' ' + figure.unit:>14}{figure.bound:>13}"
        if other:
            ratio = max(figure.value, other.value) / min(figure.value, other.value)
            line += f"{f'{other.value:,.3g} {other.unit}':>14}{ratio:>9,.0f}x"
        lines.append(line.rstrip())
    return "\n".join(lines + ([public] if isinstance(public, str) else []))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", required=True, help="a folder of game.tw-pddl files")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--public-steps", type=int, default=60)
    options = parser.parse_args()
    paths = find_games(options.games)
    print(f"{len(paths)} games; one thread, {options.batch} games a batch, {options.steps:,} steps")
    print(
        report(measure(paths, options.batch, options.steps), measure_public(paths[0], options.public_steps))
    )


if __name__ == "__main__":
    main()
