"""Games on disk, in ALFWorld's layout: FOLDER/json_2.1.1/<split>/<task>/<trial>/game.tw-pddl."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spo_fast._files import write_text
from spo_fast.envs.alfworld.game import SPLITS, AlfworldGame

__all__ = ["find_games", "load_games", "save_games"]

GAME_FILE = "game.tw-pddl"
TRAJECTORY_FILE = "traj_data.json"
_UNSOLVABLE = re.compile(rb'"solvable"\s*:\s*false')


def find_games(folder: str | os.PathLike[str], split: str | None = None) -> list[Path]:
    """The game files under a folder, sorted by path.

    Left out, as the public engine leaves them out, are games marked unsolvable, and tasks with sliced objects or movable
    receptacles, which ALFRED has and ALFWorld has not.

    Args:
        folder: ``$ALFWORLD_DATA``, its ``json_2.1.1``, or any folder that holds games at any depth.
        split: "train", "valid_seen" or "valid_unseen": only files below a folder of that name. None: all.

    Raises:
        ValueError: unknown split. FileNotFoundError: no folder, or no game in it.
    """
    if split is not None and split not in SPLITS:
        raise ValueError(f"split: expected one of {', '.join(SPLITS)}, or None, got {split!r}")
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder")
    found = sorted(root.rglob(GAME_FILE))
    if split is not None and root.name != split:
        found = [path for path in found if split in path.relative_to(root).parts]
    found = [path for path in found if _is_offered(path, str(path.relative_to(root)))]
    if not found:
        what = f"no {GAME_FILE}" + (f" of the split {split!r}" if split else "")
        raise FileNotFoundError(f"{what} under {root}; alfworld-download fetches the real games")
    return found


def _is_offered(path: Path, name: str) -> bool:
    # Sought in the text, since parsing thousands of files takes long; in a JSON string the quotes would be escaped.
    return "movable" not in name and "Sliced" not in name and not _UNSOLVABLE.search(path.read_bytes())


def load_games(
    folder: str | os.PathLike[str], split: str | None = None, max_steps: int | None = 50
) -> list[AlfworldGame]:
    """Loads every game under a folder, sorted by path. See `find_games` and `AlfworldGame`."""
    return [AlfworldGame(path, max_steps) for path in find_games(folder, split)]


def save_games(games: Iterable[Mapping[str, Any]], folder: str | os.PathLike[str]) -> list[Path]:
    """Writes games as ALFWorld lays them out, each file whole or not at all.

    Args:
        games: mappings with ``pddl_domain``, ``grammar``, ``pddl_problem``, ``task_type`` and an ``id``
            "split/task/trial"; ``walkthrough`` and ``pddl_params`` are written too where given.
        folder: what ``$ALFWORLD_DATA`` would name; files go below its ``json_2.1.1``.

    Returns:
        The game files, in the order given.

    Raises:
        ValueError: a game lacks a member, cannot be loaded, or has an id of another form or twice. Nothing is
            written then.
    """
    checked = [_checked(game) for game in games]
    ids = [game["id"] for game in checked]
    if len(set(ids)) < len(ids):
        raise ValueError(f"games: the id {next(i for i in ids if ids.count(i) > 1)!r} appears twice")
    written = []
    for game in checked:
        target = Path(folder, "json_2.1.1", *game["id"].split("/"))
        target.mkdir(parents=True, exist_ok=True)
        trajectory = {
            "task_id": game["id"].rsplit("/", 1)[-1],
            "task_type": game["task_type"],
            "pddl_params": game.get("pddl_params", {}),
        }
        write_text(target / TRAJECTORY_FILE, json.dumps(trajectory))
        members = {key: game[key] for key in ("pddl_domain", "grammar", "pddl_problem")}
        members |= {"solvable": True, "walkthrough": list(game.get("walkthrough", []))}
        write_text(target / GAME_FILE, json.dumps(members))
        written.append(target / GAME_FILE)
    return written


def _checked(game: Mapping[str, Any]) -> dict[str, Any]:
    name = game.get("id")
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) != 3 or parts[0] not in SPLITS or any(p in ("", ".", "..") or "\\" in p for p in parts):
        raise ValueError(f"games: expected an id 'split/task/trial' with a split of {SPLITS}, got {name!r}")
    loaded = AlfworldGame(game)
    return {**game, "task_type": loaded.task_type}
