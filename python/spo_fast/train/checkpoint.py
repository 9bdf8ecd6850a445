"""Checkpoints: sealed folders RUN/checkpoints/000012, each whole or absent, read whole or not at all.

A seal is the file manifest.json: the schema, and the length and SHA-256 of every other file of its folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spo_fast._files import new_folder, remove_folder

SCHEMA = 1
MANIFEST = "manifest.json"


def save_checkpoint(
    checkpoints: Path, step: int, parts: Mapping[str, Callable[[Path], None]], keep: int
) -> None:
    """Writes a checkpoint and removes those that are too old; one of the same step is left as it is.

    Args:
        checkpoints: the folder of all checkpoints of a run.
        step: how many updates it has seen.
        parts: file name -> what writes that file.
        keep: how many checkpoints stay.

    Raises:
        OSError: it could not be written, for instance because the disk is full; the earlier ones are as they were.
    """
    path = checkpoints / f"{step:06d}"
    if not path.exists():
        with new_folder(path) as folder:
            for name, write in parts.items():
                write(folder / name)
            seal(folder)
    for old in sorted_checkpoints(checkpoints)[:-keep]:
        remove_folder(old)


def sorted_checkpoints(checkpoints: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first; what a killed writer left unfinished is not among them."""
    if not checkpoints.is_dir():
        return []
    return sorted(path for path in checkpoints.iterdir() if path.is_dir() and path.name.isdecimal())


def seal(folder: Path) -> None:
    """Writes the folder's manifest, last of all its files."""
    (folder / MANIFEST).write_text(
        _manifest({path.name: fingerprint(path) for path in sorted(folder.iterdir())}), encoding="utf-8"
    )


def verify(folder: Path) -> None:
    """Reads every byte of a sealed folder.

    Raises:
        ValueError: naming the part that is missing, truncated, altered or of an unknown schema.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    text = path.read_bytes().decode("utf-8", errors="replace")
    try:
        manifest = json.loads(text)
        schema, parts = manifest["schema"], dict(manifest["parts"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is truncated or damaged: it is no manifest") from error
    if schema != SCHEMA:
        raise ValueError(
            f"{path}: expected schema {SCHEMA}, got {schema!r}; another version of spo_fast wrote it"
        )
    if text != _manifest(parts):
        raise ValueError(f"{path} is damaged: its checksum does not match")
    verify_parts(folder, parts)


def verify_parts(folder: Path, parts: Mapping[str, Any]) -> None:
    """Raises ValueError that names the first of these files that is missing or has another fingerprint."""
    for name, expected in parts.items():
        part = folder / name
        if not part.is_file():
            raise ValueError(f"{part} is missing")
        size = part.stat().st_size
        if size != expected["bytes"]:
            raise ValueError(f"{part} is damaged: expected {expected['bytes']} bytes, got {size}")
        if fingerprint(part) != expected:
            raise ValueError(f"{part} is damaged: its checksum does not match")


def write_json(value: Any) -> Callable[[Path], None]:
    """A part of a checkpoint that holds ``value`` as JSON."""

    def write(path: Path) -> None:
        path.write_text(json.dumps(value), encoding="utf-8")

    return write


def read_tensors(path: Path) -> dict[str, Any]:
    """What ``write_tensors`` wrote, in memory of PyTorch's own: alignment decides the last bits of sums."""
    from safetensors.torch import load_file

    return {name: tensor.clone() for name, tensor in load_file(path).items()}


def write_tensors(tensors: Mapping[str, Any]) -> Callable[[Path], None]:
    """A part of a checkpoint that holds ``tensors`` in the safetensors format."""

    def write(path: Path) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        try:
            save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)
        except SafetensorError as error:  # how it reports a full disk
            raise OSError(f"{path}: {error}") from error

    return write


def _manifest(parts: Mapping[str, Any]) -> str:
    body = json.dumps({"schema": SCHEMA, "parts": parts}, indent=1)
    digest = hashlib.sha256(body.encode()).hexdigest()
    return json.dumps({"schema": SCHEMA, "parts": parts, "sha256": digest}, indent=1) + "\n"


def fingerprint(path: Path) -> dict[str, Any]:
    """A file's length and SHA-256."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return {"bytes": os.path.getsize(path), "sha256": digest.hexdigest()}
