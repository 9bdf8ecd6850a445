"""The state table under pytest-benchmark: pytest benchmarks/test_state_table.py

Fresh 400-byte strings in batches, beside a dict of str, a dict of 16-byte digests, and the published way (a dict, and a
JSON file of all of it rewritten at each trajectory). SPO_FAST_KEYS: how many keys (default 200,000). The C++ core by
itself, two processes on one file, saving and loading, and the table of all of it: benchmarks/state_table.py.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from state_table import BATCH, PEERS, check_parity, fresh_texts

KEYS = int(os.environ.get("SPO_FAST_KEYS", "200000")) // BATCH * BATCH


@pytest.fixture(scope="module", autouse=True)
def parity() -> None:
    check_parity()


@pytest.mark.parametrize("operation", ["insert", "update", "look_up"])
@pytest.mark.parametrize("peer", PEERS)
def test_strings(benchmark: Any, peer: str, operation: str) -> None:
    benchmark.extra_info["keys"] = KEYS
    memory = PEERS[peer]()
    if operation != "insert":
        for start in range(0, KEYS, BATCH):
            memory.update(fresh_texts(start))

    def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
        nonlocal memory
        if operation == "insert":
            memory = PEERS[peer]()
        return ([fresh_texts(start) for start in range(0, KEYS, BATCH)],), {}

    def run(batches: list[list[str]]) -> None:
        for batch in batches:
            if operation == "look_up":
                memory.look_up(batch)
            else:
                memory.update(batch)

    benchmark.pedantic(run, setup=setup, rounds=3)
