"""Files of the state table: several processes, killed ones, damaged files; and the core under sanitizers."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spo_fast import StateTable
from tests.memory import hammer
from tests.memory.test_state_table import answers, random_table

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("SPO_FAST_KILLS", "20"))  # make soak: 200


def start(path: Path, name: str, rounds: int, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, hammer.__file__, str(path), name, str(rounds), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_a_file_keeps_everything(tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = random_table(path=path, xi=4)
    before = answers(table)
    with pytest.raises(ValueError, match="table: options: xi: expected this table's 4, got 10"):
        StateTable(path=path)
    other = StateTable(path=path, xi=4)  # beside the first
    assert answers(other) == before
    other.update([["new"]], [True])
    assert table.counts(["new"])[0, 0] == 1 and table.t == other.t
    before = answers(table)
    del table, other
    assert answers(StateTable(path=path, xi=4)) == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("rounds", [3, 60])
def test_processes_lose_no_update(tmp_path: Path, rounds: int) -> None:
    """Also while they make the file, all at once."""
    names = "abcd"
    processes = [start(tmp_path / "table", name, rounds) for name in names]
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == 0
    table = StateTable(path=tmp_path / "table")
    assert table.t == 1 + 2 * rounds * len(names)
    assert table.counts(hammer.COMMON).tolist() == [[rounds * len(names), (rounds + 1) // 2 * len(names)]] * 200
    for name in names:
        for number in range(rounds):
            assert (table.counts(hammer.own(name, number)) == 1).all()
    assert len(table) == 200 + 300 * rounds * len(names)


def test_killed_processes_lose_only_their_batch(tmp_path: Path) -> None:
    """kill -9 at random points, while this process goes on counting in the same file."""
    rng = random.Random(time.time_ns())
    path = tmp_path / "table"
    table = StateTable(path=path)
    finished = here = 0  # rounds known to be counted: by the killed, by this process
    for point in range(KILLS):
        process = start(path, f"run {point}", 100_000, *(["--deltas"] if point % 2 else []))
        assert process.stdout is not None
        output = process.stdout.readline()
        deadline = time.monotonic() + rng.random() * 0.06
        while time.monotonic() < deadline:
            table.update([hammer.own("here", here)], [True])
            here += 1
        process.kill()
        output += process.stdout.read()
        process.wait()
        done = len(output.splitlines())
        finished += done
        for number in range(done):
            assert (table.counts(hammer.own(f"run {point}", number)) == 1).all(), (point, number)
        last = table.counts(hammer.own(f"run {point}", done))  # perhaps partly
        assert last.max() <= 1 and (last[:, 0] == last[:, 1]).all()
        assert table.counts(hammer.own(f"run {point}", done + 1)).max() == 0
        common = table.counts(hammer.COMMON)[:, 0]
        assert (common >= finished).all() and (common <= finished + point + 1).all()
        assert 2 * finished + here < table.t <= 1 + 2 * (finished + point + 1) + here
    for number in range(here):
        assert (table.counts(hammer.own("here", number)) == 1).all()
    visits, states = table.visit_histogram()
    assert states.sum() == len(table)
    delta = table.delta_since(0)
    fresh = StateTable()
    fresh.merge(delta)
    np.testing.assert_array_equal(fresh.counts(hammer.COMMON), table.counts(hammer.COMMON))
    before = answers(table)
    del table
    assert answers(StateTable(path=path)) == before
    assert visits.sum() > 0


def test_a_killed_delta_is_finished(tmp_path: Path) -> None:
    """What a dead process told and nobody got can be asked for again."""
    path = tmp_path / "table"
    first = StateTable(path=path)
    first.update([["x"]], [True])
    mark = first.delta_since(0).to
    first.update([["y"]], [True])
    del first
    code = f"import os, spo_fast; spo_fast.StateTable(path={str(path)!r}).delta_since({mark}); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    again = StateTable(path=path).delta_since(mark)
    assert again.from_mark == mark and len(again) == 1 and again.trajectories == 1


def test_forked_child(tmp_path: Path) -> None:
    code = f"""
import os, spo_fast
for table in (spo_fast.StateTable(path={str(tmp_path / "table")!r}), spo_fast.StateTable()):
    table.update([["a"]], [True])
    child = os.fork()
    table.update([["a", str(os.getpid())]], [True])
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(table.counts(["a"])[0, 0], len(table))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["3", "3", "2", "2"], done.stderr


def refused_or_same(path: Path, before: list[Any], load: Any) -> bool:
    """True if the damage was noticed; else it must have hit what does not matter."""
    try:
        table = load(path)
    except ValueError as error:
        assert path.name in str(error)
        return True
    assert answers(table) == before
    return False


def open_shared(path: Path) -> StateTable:
    return StateTable(path=path)


def test_every_flipped_bit_of_a_saved_copy_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table"
    random_table(trajectories=2).save(path)
    whole = path.read_bytes()
    damaged = [whole[:n] for n in range(0, len(whole), 7)] + [whole + b"\0", whole[24:], whole * 2]
    for i in range(len(whole)):
        flipped = bytearray(whole)
        flipped[i] ^= 1 << (i % 8)
        damaged.append(bytes(flipped))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="table: "):
            StateTable.load(path)


def test_damaged_shared_files(tmp_path: Path) -> None:
    rng = random.Random(time.time_ns())
    path, copy = tmp_path / "table", tmp_path / "copy"
    table = random_table(path=path, trajectories=60)
    table.delta_since(0)
    before = answers(table)
    shutil.copy(path, tmp_path / "open")
    del table
    size = path.stat().st_size
    data = path.read_bytes()
    places = [i for i in range(0, size, 8) if data[i : i + 8] != bytes(8)]
    refused = 0
    for number in range(300):
        copy.write_bytes(data)
        with open(copy, "r+b") as file:
            at = rng.choice(places) + rng.randrange(8) if number % 4 else rng.randrange(size)
            file.seek(at)
            file.write(bytes([data[at] ^ 1 << rng.randrange(8)]))
        refused += refused_or_same(copy, before, open_shared)
    assert refused > 150
    for length in [0, 1, 100, 4096, 2**17, 6 * 2**20, *(rng.randrange(size) for _ in range(20)), size - 4096]:
        copy.write_bytes(data[:length])
        with pytest.raises(ValueError, match="copy: "):
            StateTable(path=copy)
    assert answers(open_shared(tmp_path / "open")) == before  # not closed, as after a crash


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    shared, saved, foreign = tmp_path / "shared", tmp_path / "saved", tmp_path / "foreign"
    random_table(path=shared)
    random_table().save(saved)
    foreign.write_bytes(os.urandom(8 << 20))
    for path, load, message in (
        (shared, StateTable.load, "a shared file, not a saved copy"),
        (saved, open_shared, "a saved copy, not a shared file"),
        (foreign, StateTable.load, "does not begin like one"),
        (foreign, open_shared, "does not begin like one"),
    ):
        with pytest.raises(ValueError, match=message):
            load(path)
    for call in (StateTable.load, lambda p: StateTable(path=p / "x")):
        with pytest.raises(FileNotFoundError):
            call(tmp_path / "none")


def test_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table"
    random_table().save(path)
    old = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        StateTable().save(path)
    assert path.read_bytes() == old and list(tmp_path.iterdir()) == [path]


def test_bytes_reach_the_disk_before_the_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    sync, replace = os.fsync, os.replace

    def noted_sync(descriptor: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def noted_replace(source: Any, target: Any) -> None:
        events.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    random_table().save(tmp_path / "table")
    assert events == ["file", "rename", "folder"]


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    """A limit on the file's size stands for it."""
    code = f"""
import resource, signal, spo_fast
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
table = spo_fast.StateTable(path={str(tmp_path / "table")!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))
try:
    for i in range(1000):
        table.update([[f"{{i}} {{j}}" for j in range(100)]], [True])
except OSError as error:
    counts = table.counts([f"{{k}} {{j}}" for k in range(i) for j in range(100)])
    print(type(error).__name__, counts.min(), counts.max(), len(table) >= 100 * i)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "OSError 1 1 True\n", done.stdout + done.stderr


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
@pytest.mark.parametrize("sanitizers", ["thread", "address,undefined"])
def test_under_sanitizers(tmp_path: Path, sanitizers: str) -> None:
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
    sources = [ROOT / "csrc" / "src" / f"{name}.cpp" for name in names]
    sources.append(ROOT / "tests" / "cpp" / "state_table_stress.cpp")
    headers = [*(ROOT / "csrc").rglob("*.hpp")]
    program = (
        ROOT / "build" / "sanitized" / f"state_table_stress-{sanitizers}"
    )  # kept, so that few runs compile
    newest = max(path.stat().st_mtime for path in [*sources, *headers])
    if not program.exists() or program.stat().st_mtime < newest:
        program.parent.mkdir(parents=True, exist_ok=True)
        flags = [
            "-std=c++20",
            "-O1",
            "-g",
            f"-fsanitize={sanitizers}",
            "-fno-sanitize-recover=all",
            "-pthread",
        ]
        command = ["g++", *flags, f"-I{ROOT / 'csrc' / 'include'}", *map(str, sources), "-o", str(program)]
        subprocess.run(command, check=True)
    done = subprocess.run([program, tmp_path], capture_output=True, text=True, timeout=300)
    assert done.stdout == "every count is right\n" and done.returncode == 0, done.stderr[-4000:]
