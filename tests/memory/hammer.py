"""A process that counts in a shared table, for tests that kill it or run several: hammer.py PATH NAME ROUNDS

Each round counts one trajectory of states that all hammers share and one of its own; its number is printed once it is
counted. ``--deltas`` also tells deltas.
"""

from __future__ import annotations

import os
import sys

from spo_fast import StateTable

COMMON = [f"common {i}" for i in range(200)]


def own(name: str, number: int) -> list[str]:
    return [f"{name} {number} {i}" for i in range(300)]


def main(path: str, name: str, rounds: str, *options: str) -> None:
    table = StateTable(path=path)
    for number in range(int(rounds)):
        table.update([COMMON, own(name, number)], [number % 2 == 0, True])
        if "--deltas" in options:
            table.delta_since(0)
        os.write(1, b"%d\n" % number)


if __name__ == "__main__":
    main(*sys.argv[1:])
