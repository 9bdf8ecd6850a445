"""Every recorded step of the public engine, against ours."""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spo_fast.envs.alfworld import TASK_TYPES, AlfworldGame, game_mapping

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("SPO_FAST_SHARED", ROOT.parent / "shared")) / "alfworld"
GENERATED = Path(__file__).parent / "data" / "generated_transcripts.jsonl.xz"


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def differences(game: AlfworldGame, runs: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """Plays the runs; returns how many steps they have and what differs at the first steps that do."""
    found: list[str] = []
    state_of: dict[bytes, str] = {}
    key_of: dict[str, bytes] = {}
    count = 0
    for run in runs:
        for number, step in enumerate(run["steps"]):
            count += 1
            if number == 0:
                observation, info = game.reset()
                got: dict[str, Any] = {}
            else:
                observation, reward, terminated, _, info = game.step(step["cmd"])
                got = {"score": reward, "done": terminated, "won": info["won"]}
            got |= {"obs": observation, "admissible": info["admissible_commands"]}
            expected = {key: step[key] for key in got}
            key, state = game.state_key, step["state"]
            same_partition = state_of.setdefault(key, state) == state and key_of.setdefault(state, key) == key
            if got != expected or not same_partition:
                found.append(f"{game.id} {run['kind']} step {number}: {got} instead of {step}")
    return count, found[:3]


def check(pairs: Iterator[tuple[AlfworldGame, list[dict[str, Any]]]], expected_steps: int) -> None:
    total, found = 0, []
    for game, runs in pairs:
        count, different = differences(game, runs)
        total += count
        found += different
    assert not found, "\n".join(found[:5])
    assert total == expected_steps


@pytest.mark.skipif(
    not SHARED.is_dir(), reason=f"the recordings of real games are not at {SHARED} (set SPO_FAST_SHARED)"
)
def test_real_games_answer_as_the_public_engine_does() -> None:
    common = json.loads((SHARED / "common.json").read_text(encoding="utf-8"))
    games = {}
    for row in rows(SHARED / "games.jsonl.xz"):
        grammar = common["grammar"].replace("UNKNOWN GOAL.", row["task"])
        game = AlfworldGame({"pddl_domain": common["pddl_domain"], "grammar": grammar, **row})
        assert (game.task, game.task_type) == (row["task"], row["task_type"])
        games[row["id"]] = game
    assert len(games) == 110
    check(((games[row["id"]], row["runs"]) for row in rows(SHARED / "transcripts.jsonl.xz")), 12431)


def test_generated_games_answer_as_the_public_engine_does() -> None:
    """``python -m spo_fast.envs.alfworld.parity --generated 12 --seed 7 --record`` wrote the file."""
    recorded = list(rows(GENERATED))
    assert sorted(row["task_type"] for row in recorded) == sorted(2 * TASK_TYPES)
    pairs = (
        (AlfworldGame(game_mapping(row["pddl_problem"], row["task"], id=row["id"])), row["runs"])
        for row in recorded
    )
    check(pairs, 1686)
