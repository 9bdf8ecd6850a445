"""Kills real runs at random moments, goes on with them, and compares what they leave with runs never killed.

``python -m tests.train.killed_runs KILLS FOLDER SEED`` prints how many kills hit and ends with 0, or with a traceback.
A process of its own: it forks its runs, so that a kill costs no new interpreter, and must not have run threads before.
"""

import contextlib
import dataclasses
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from spo_fast.train import resume, train

from .conftest import SMALL

LOGS = ("episodes", "transcripts", "evaluations")


def configuration(number):
    """Both algorithms, both ways of publication."""
    parts = {
        "rollout": dataclasses.replace(SMALL.rollout, at_publication=("join", "discard")[number // 2 % 2]),
        "optimisation": dataclasses.replace(SMALL.optimisation, updates=7, optimizer_steps=2, weight_average=0.5),
        "record": dataclasses.replace(SMALL.record, checkpoint_every=2, transcripts=1),
    }  # fmt: skip
    return dataclasses.replace(SMALL, algorithm=("spo++", "spo")[number % 2], threads=1, **parts)


def start(config, folder):
    """Forks a process that begins or resumes the run; its pid."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    with contextlib.suppress(BaseException), (folder.parent / f"{folder.name}.log").open("a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            if (folder / "config.json").exists():
                resume(folder, quiet=True)
            else:
                train(dataclasses.replace(config, output=folder), quiet=True)
            status = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=log)
    os._exit(status)


def finish(config, folder):
    pid = start(config, folder)
    _, status = os.waitpid(pid, 0)
    log = folder.parent / f"{folder.name}.log"
    assert status == 0, log.read_text()


def left_by(folder):
    """All that must not depend on being killed."""
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "metrics": [{k: v for k, v in m.items() if not k.endswith("_s")} for m in metrics],
        "model": (folder / "model" / "model.safetensors").read_bytes(),
        **{name: (folder / f"{name}.jsonl").read_text() for name in LOGS},
    }


def main(kills, folder, seed):
    rng = random.Random(seed)
    hit = number = 0
    while hit < kills:
        config = configuration(number)
        whole, killed = folder / f"whole{number}", folder / f"killed{number}"
        began = time.perf_counter()
        finish(config, whole)
        seconds = time.perf_counter() - began
        for _ in range(6):
            pid = start(config, killed)
            time.sleep(rng.uniform(0, seconds))
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            hit += os.WIFSIGNALED(status)
            if not os.WIFSIGNALED(status) or hit == kills:
                break
        finish(config, killed)
        expected, got = left_by(whole), left_by(killed)
        assert len(expected["metrics"]) == config.optimisation.updates
        for name, value in expected.items():
            assert got[name] == value, f"run {number} (seed {seed}): {name} differ"
        number += 1
    print(f"{hit} kills in {number} runs")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
