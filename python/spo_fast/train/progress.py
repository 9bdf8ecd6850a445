"""Live progress: one bar a phase."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm


class Progress:
    """Bars on standard error; in a file or a pipe a line every ten seconds instead.

    Remembers how long each phase took (``seconds``).
    """

    def __init__(self, quiet: bool = False):
        self._quiet = quiet
        self.seconds: dict[str, float] = {}
        self._began: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str, total: int, unit: str) -> Iterator[Any]:
        self._began[name] = time.perf_counter()
        live = sys.stderr.isatty()
        with tqdm(
            total=total,
            desc=f"{name:<22}",
            unit=unit,
            disable=self._quiet,
            dynamic_ncols=live,
            ncols=None if live else 120,
            mininterval=0.2 if live else 10,
            smoothing=0.1,
        ) as bar:
            yield bar
        self.seconds = self.seconds_so_far()
        del self._began[name]

    def seconds_so_far(self) -> dict[str, float]:
        """``seconds`` with what the phases under way have taken until now."""
        now, seconds = time.perf_counter(), dict(self.seconds)
        for name, began in self._began.items():
            seconds[name] = seconds.get(name, 0.0) + now - began
        return seconds
