"""Damaged games against the loader, compiled with AddressSanitizer and UndefinedBehaviorSanitizer.

SPO_FAST_FUZZ_RUNS says how many; SPO_FAST_FUZZ_SEED says which.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spo_fast.envs.alfworld import TASK_TYPES
from tests.envs.small_games import kitchen

ROOT = Path(__file__).resolve().parents[2]
# The environment's own cmake counts too, also when its bin is not on the PATH.
CMAKE = shutil.which("cmake") or shutil.which("cmake", path=str(Path(sys.executable).parent))


@pytest.mark.skipif(not CMAKE or not shutil.which("g++"), reason="needs cmake and g++")
def test_the_loader_survives_damaged_games(tmp_path: Path) -> None:
    build = ROOT / "build" / "fuzz"  # kept, so that only the first run compiles
    options = [
        "-DSPO_BUILD_PYTHON=OFF",
        "-DSPO_BUILD_FUZZERS=ON",
        "-DSPO_SANITIZE=ON",
        "-DCMAKE_BUILD_TYPE=",
        "-DCMAKE_CXX_FLAGS=-O1",
    ]
    subprocess.run([str(CMAKE), "-S", str(ROOT), "-B", str(build), *options], check=True, capture_output=True)
    subprocess.run(
        [str(CMAKE), "--build", str(build), "-j", "2", "--target", "alfworld_fuzz"],
        check=True,
        capture_output=True,
    )
    seeds = []
    for task_type in TASK_TYPES:
        seeds.append(tmp_path / f"{task_type}.json")
        seeds[-1].write_text(json.dumps(kitchen(task_type)))
    runs, seed = os.environ.get("SPO_FAST_FUZZ_RUNS", "8000"), os.environ.get("SPO_FAST_FUZZ_SEED", "1")
    fuzz = [str(build / "alfworld_fuzz"), runs, seed, *map(str, seeds)]
    done = subprocess.run(fuzz, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    played = int(done.stdout.split(":")[1].split()[0])
    assert played > 100, done.stdout
