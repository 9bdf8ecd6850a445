"""Files and folders that are whole at every moment: written beside their place, synced, then renamed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[int]:
    """A descriptor of a temporary file that takes the place of ``path`` at the end, once its bytes are on the disk."""
    target = Path(path)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        try:
            yield descriptor
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.chmod(temporary, _file_mode(target))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_folder(target.parent)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes ``text`` as UTF-8: ``path`` holds either what it held or all of it."""
    with replaced(path) as descriptor, open(descriptor, "w", encoding="utf-8", closefd=False) as file:
        file.write(text)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that becomes ``path`` at the end, once its files are on the disk.

    ``path`` must not exist. What a killed writer left of it is removed first.
    """
    temporary = path.with_name(f".{path.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.iterdir():
            _sync(file)
        sync_folder(temporary)
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Removes a folder; whoever looks for it meanwhile finds all of it or nothing."""
    temporary = path.with_name(f".{path.name}.part")
    path.rename(temporary)
    shutil.rmtree(temporary)


def sync_folder(folder: Path) -> None:
    """Makes renames in a folder durable; Windows cannot open folders and needs no such call."""
    if os.name == "posix":
        _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _file_mode(target: Path) -> int:
    """The mode of the file being replaced, else what ``open`` would give; mkstemp's 0600 is for secrets."""
    with contextlib.suppress(FileNotFoundError):
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
