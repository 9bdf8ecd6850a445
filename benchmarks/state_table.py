"""Figures of the state table, as a table: python benchmarks/state_table.py [part ...]

Parts: core (the C++ core by itself; needs g++), python, published, files, processes; without any: all. Medians of
several passes, the peers' passes between ours. On a virtual machine the first passes also pay for memory that the host
has not given yet.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spo_fast import StateTable

ROOT = Path(__file__).resolve().parents[1]
LENGTH, BATCH = 30, 3000
FILLER = " You see a mug 1, a shelf 2 and a drawer 3 to the left." * 8


def fresh_texts(start: int, count: int = BATCH) -> list[str]:
    """400 characters each; new objects, whose hashes Python has not cached."""
    return [f"You are in room {i}.{FILLER}"[:400] for i in range(start, start + count)]


class Table:
    def __init__(self) -> None:
        self.table = StateTable()

    def update(self, texts: list[str]) -> None:
        trajectories = [texts[i : i + LENGTH] for i in range(0, len(texts), LENGTH)]
        self.table.update(trajectories, [True] * len(trajectories))

    def look_up(self, texts: list[str]) -> Any:
        return self.table.counts(texts)


class DictOfStr:
    """What a trainer would write: a state's two counts in a list."""

    def __init__(self) -> None:
        self.counts: dict[Any, list[int]] = {}

    def key(self, text: str) -> Any:
        return text

    def update(self, texts: list[str]) -> None:
        for start in range(0, len(texts), LENGTH):
            for key in {self.key(text) for text in texts[start : start + LENGTH]}:
                entry = self.counts.get(key)
                if entry is None:
                    self.counts[key] = [1, 1]
                else:
                    entry[0] += 1
                    entry[1] += 1

    def look_up(self, texts: list[str]) -> Any:
        nothing = [0, 0]
        return [self.counts.get(self.key(text), nothing) for text in texts]


class DictOfDigests(DictOfStr):
    def key(self, text: str) -> Any:
        return hashlib.blake2b(text.encode(), digest_size=16).digest()


PEERS: dict[str, Callable[[], Any]] = {
    "table": Table,
    "dict_of_str": DictOfStr,
    "dict_of_digests": DictOfDigests,
}


def check_parity() -> None:
    """All count the same; nothing is timed before."""
    peers = [peer() for peer in PEERS.values()]
    for peer in peers:
        for start in (0, 1500, 600):
            peer.update(fresh_texts(start))
    answers = [np.asarray(peer.look_up(fresh_texts(0, 9000))) for peer in peers]
    assert all((answer == answers[0]).all() for answer in answers) and answers[0].sum() == 18_000


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def core(passes: int = 5) -> None:
    """The C++ executable, at a million keys and at ten."""
    names = (
        "hash",
        "mapping",
        "owners",
        "segment_map",
        "state_table",
        "state_delta",
        "state_file",
        "evidence",
    )
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "state_table_core"
        sources = [ROOT / "csrc" / "src" / f"{name}.cpp" for name in names]
        flags = ["-std=c++20", "-O3", "-DNDEBUG", "-pthread", f"-I{ROOT / 'csrc' / 'include'}"]
        main = ROOT / "benchmarks" / "state_table_core.cpp"
        subprocess.run(["g++", *flags, str(main), *map(str, sources), "-o", str(program)], check=True)
        for keys in (1_000_000, 10_000_000):
            runs = [
                subprocess.run([program, str(keys)], check=True, capture_output=True, text=True).stdout
                for _ in range(passes)
            ]
            print(f"core, {keys:,} keys, medians of {passes} processes:")
            for lines in zip(*(run.splitlines() for run in runs), strict=True):
                print(_median_line(lines), flush=True)


def _median_line(lines: Sequence[str]) -> str:
    """One line for lines that differ in their figures alone."""
    number = re.compile(r"\d+\.\d+")
    medians = [
        statistics.median(map(float, figures)) for figures in zip(*map(number.findall, lines), strict=True)
    ]
    values = iter(medians)
    return number.sub(lambda _: f"{next(values):.1f}", lines[0])


def python(keys: int = 999_000, passes: int = 3) -> None:
    """Fresh strings in batches of 3,000, each peer in turn."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for _ in range(passes):
        for name, peer in PEERS.items():
            memory = peer()
            for operation, call in (
                ("insert", memory.update),
                ("update", memory.update),
                ("look-up", memory.look_up),
            ):
                total = 0.0
                for start in range(0, keys, BATCH):
                    texts = fresh_texts(start)
                    total += timed(lambda texts=texts: call(texts))  # noqa: B023
                seconds.setdefault((operation, name), []).append(total)
    for operation in ("insert", "update", "look-up"):
        ours = statistics.median(seconds[operation, "table"])
        line = f"{operation} {ours / keys * 1e9:.0f} ns"
        for name in ("dict_of_str", "dict_of_digests"):
            theirs = statistics.median(seconds[operation, name])
            line += f"; {name} {theirs / keys * 1e9:.0f} ns, {theirs / ours:.1f} times"
        print(f"python, {keys:,} fresh strings: {line}")


def published(states: int = 50_000, passes: int = 5) -> None:
    """One trajectory of 30 steps: counted in the shared file; or in a dict, and all of that written as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        table, theirs = StateTable(path=Path(folder) / "table"), DictOfStr()
        for start in range(0, states, LENGTH):
            texts = fresh_texts(start, LENGTH)
            table.update([texts], [True])
            theirs.update(texts)
        trajectories = [fresh_texts(start, LENGTH) for start in range(0, 200 * LENGTH, LENGTH)]
        ours = statistics.median(
            timed(lambda texts=texts: table.update([texts], [True])) for texts in trajectories
        )

        def rewrite() -> None:
            theirs.update(fresh_texts(0, LENGTH))
            with open(Path(folder) / "states.json", "w") as file:
                json.dump(theirs.counts, file)

        other = statistics.median(timed(rewrite) for _ in range(passes))
    print(
        f"published way, {states:,} states: {other * 1e3:.0f} ms; the table {ours * 1e6:.1f} us, {other / ours:,.0f} times"
    )


def files(states: int = 10_000_000, passes: int = 3) -> None:
    """Saving and loading, from and to the page cache, without fsync."""
    table = StateTable(capacity=states)
    for start in range(0, states, 100_000):
        table.update([[b"%d" % i for i in range(start, start + 100_000)]], [True])
    os.fsync = lambda _: None  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        saved = statistics.median(timed(lambda: table.save(path)) for _ in range(passes))
        loaded = statistics.median(timed(lambda: StateTable.load(path)) for _ in range(passes))
        print(f"{states:,} states, {path.stat().st_size >> 20} MiB: save {saved:.2f} s, load {loaded:.2f} s")


WORKER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from state_table import *
table = StateTable(path=sys.argv[2])
batches = [[f"{i}" for i in range(start, start + BATCH)] for start in range(0, 300_000, BATCH)]
print("ready", flush=True)
sys.stdin.readline()
for _ in range(8):
    for batch in batches:
        table.update([batch], [True])
        table.counts(batch)
print("done", flush=True)
"""


def processes() -> None:
    """Updates and look-ups of 300,000 known states by one process and by two; shared memory, no disk."""
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
    seconds = {}
    with tempfile.TemporaryDirectory(dir=folder) as shared:
        for count in (1, 2, 1, 2):
            command = [sys.executable, "-c", WORKER, str(Path(__file__).parent), str(Path(shared) / "table")]
            workers = [
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)
            ]
            for worker in workers:
                worker.stdout.readline()  # type: ignore[union-attr]

            def work(workers: list[subprocess.Popen[bytes]] = workers) -> None:
                for worker in workers:
                    worker.stdin.write(b"\n")  # type: ignore[union-attr]
                    worker.stdin.flush()  # type: ignore[union-attr]
                for worker in workers:
                    worker.stdout.readline()  # type: ignore[union-attr]

            seconds[count] = timed(work)  # the second time the states are there already
            for worker in workers:
                worker.communicate()
    print(f"two processes on one file: {2 * seconds[1] / seconds[2]:.2f} times the work of one")


if __name__ == "__main__":
    check_parity()
    parts = {call.__name__: call for call in (core, python, published, files, processes)}
    for part in sys.argv[1:] or parts:
        parts[part]()
