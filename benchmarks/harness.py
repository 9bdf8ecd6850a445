"""Contenders for one task: checked first, timed in turns, and written to a file that only grows."""

from __future__ import annotations

import csv
import datetime
import gc
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from spo_fast import _core

OURS = "spo_fast"
ROOT = Path(__file__).resolve().parents[1]
COLUMNS = (
    "time git machine torch threads task vocabulary dtype mask_share contender median_ms low_ms high_ms times_ours "
    "extra_mib error_against_float64 read_gb_s share_of_bandwidth"
).split()

Work = Callable[[], Any]
SHORTEST_MS = 10  # what is timed at once
PAUSE_S = 0.02  # before it: OpenMP's threads spin for a while after the work of whoever came before


def compare(
    benchmark: Any,
    request: pytest.FixtureRequest,
    task: str,
    contenders: dict[str, Work],
    *,
    errors: dict[str, float] | None = None,
    allowed: float | None = None,
    traffic: int | None = None,
    rounds: int = 7,
    **case: Any,
) -> dict[str, float]:
    """Time every contender in turns; ratios of medians to ours go to ``extra_info`` and to ``--csv``.

    Args:
        contenders: ``spo_fast`` and its peers, by name.
        errors: of each against float64, on inputs of the kind that is timed.
        allowed: the largest error of ours with which a time means anything.
        traffic: bytes that the task must at least read, to relate ours to the read bandwidth of the same minute.
        case: vocabulary, dtype and mask_share.

    Returns:
        Median milliseconds by contender.
    """
    errors = errors or {}
    if allowed is not None:
        assert errors[OURS] <= allowed, f"{task}: error {errors[OURS]}, allowed {allowed}: not timed"
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for work in contenders.values():
        work()  # warm-up, compilation
    gc.collect()
    calls = {name: max(1, int(SHORTEST_MS / _milliseconds(work))) for name, work in contenders.items()}
    for _ in range(rounds):
        for name, work in contenders.items():
            times[name].append(_milliseconds(work, calls[name]))
    memory = {name: _extra_mib(work) for name, work in contenders.items()}
    bandwidth = read_bandwidth() if traffic else None
    medians = {name: statistics.median(values) for name, values in times.items()}
    share = round(traffic / medians[OURS] / 1e6 / bandwidth, 3) if bandwidth and traffic else ""
    rows = [
        {
            "task": task,
            "contender": name,
            "median_ms": round(medians[name], 4),
            "low_ms": round(min(values), 4),
            "high_ms": round(max(values), 4),
            "times_ours": round(medians[name] / medians[OURS], 3),
            "extra_mib": round(memory[name], 1),
            "error_against_float64": errors.get(name, ""),
            "read_gb_s": round(bandwidth, 2) if bandwidth else "",
            "share_of_bandwidth": share if name == OURS else "",
            **case,
        }
        for name, values in times.items()
    ]
    benchmark.extra_info |= {**case, **{str(row["contender"]): row["times_ours"] for row in rows}}
    if share:
        benchmark.extra_info["share_of_bandwidth"] = share
    if path := request.config.getoption("--csv"):
        append(Path(path), rows)
    benchmark.pedantic(contenders[OURS], rounds=3)
    return medians


def _milliseconds(work: Work, calls: int = 1) -> float:
    """Of a call; the mean of several, as short ones need."""
    time.sleep(PAUSE_S)
    start = time.perf_counter()
    for _ in range(calls):
        result = work()
        del result
    elapsed = (time.perf_counter() - start) * 1e3
    return elapsed / calls


def _extra_mib(work: Work) -> float:
    """By how much a call raises the peak of resident memory; nan where the system does not tell."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        work()
        return max(0, _status("VmHWM") - before) / 1024
    except OSError:
        return float("nan")


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key + ":"))


def read_bandwidth() -> float:
    """GB/s at which torch's threads read a large array: the best of a few sums of int64."""
    words = torch.ones(1 << 24, dtype=torch.int64)
    return words.numel() * 8 / min(_milliseconds(words.sum) for _ in range(5)) / 1e6


def append(path: Path, rows: list[dict[str, Any]]) -> None:
    """Add rows, with when and where they come from."""
    origin = {
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "git": _git(),
        "machine": _machine(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = not path.exists()
    if not fresh and path.read_text(encoding="utf-8").split("\n")[0].split(",") != list(COLUMNS):
        raise ValueError(f"--csv: {path} has other columns than {', '.join(COLUMNS)}; name another file")
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if fresh:
            writer.writeheader()
        writer.writerows({**origin, **row} for row in rows)


def _git() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def _machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor()
    return f"{name}, {_core.cpu_path()}"
