"""The folder of worked values and recordings that lies beside a checkout, where there is one."""

from __future__ import annotations

import json
import lzma
import math
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("SPO_FAST_SHARED", ROOT.parent / "shared"))


def vectors(name: str) -> list[Any]:
    """Cases of ``vectors/name.json`` as parameters for ``pytest.mark.parametrize``; one skipped, with the reason, without it."""
    path = SHARED / "vectors" / f"{name}.json"
    if not path.is_file():
        reason = f"no worked values at {path}; SPO_FAST_SHARED names their folder"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason), id="missing")]
    cases = json.loads(path.read_text(encoding="utf-8"))
    return [pytest.param(_numbers(case), id=str(i)) for i, case in enumerate(cases)]


def real_games() -> list[dict[str, Any]]:
    """The real ALFWorld games of ``alfworld/`` as mappings; skips the test, with the reason, without them."""
    folder = SHARED / "alfworld"
    if not folder.is_dir():
        pytest.skip(f"no real games at {folder}; SPO_FAST_SHARED names the folder above")
    common = json.loads((folder / "common.json").read_text(encoding="utf-8"))
    games = []
    with lzma.open(folder / "games.jsonl.xz", "rt", encoding="utf-8") as rows:
        for row in map(json.loads, rows):
            task = f"Your task is to: {row['task']}"
            grammar = common["grammar"].replace("Your task is to: UNKNOWN GOAL.", task)
            games.append({**row, "pddl_domain": common["pddl_domain"], "grammar": grammar})
    return games


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    return -math.inf if value == "-inf" else value
