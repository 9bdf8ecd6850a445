"""Who kernels/ may import. import-linter cannot see a folder without __init__.py, so this reads the sources."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "kernels").rglob("*.py"))


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide what a file depends on"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_kernels_know_no_trainer(path: Path) -> None:
    inside = {name for name in imported(path) if name.split(".")[0] == "spo_fast"}
    assert all(
        name.startswith(("spo_fast.kernels", "spo_fast.losses", "spo_fast._core")) for name in inside
    ), inside


@pytest.mark.parametrize("folder", ["losses", "advantages", "memory"])
def test_what_lies_below_does_not_import_kernels(folder: str) -> None:
    for path in (ROOT / "python" / "spo_fast" / folder).rglob("*.py"):
        assert not any(name.startswith("spo_fast.kernels") for name in imported(path)), path
