"""Ctrl-C that waits for a good moment."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any


class StopSignal:
    """Within it, SIGINT and SIGTERM raise KeyboardInterrupt; within ``waiting`` the first only sets ``requested``.

    In a thread other than the main one, where Python takes no signals, it does nothing.
    """

    _SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.requested = False
        self._waits = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._handle) for number in self._SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Where whoever asks looks at ``requested`` every now and then."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested or not self._waits:
            raise KeyboardInterrupt
        self.requested = True
        print("\nstopping after this update; once more to stop at once", file=sys.stderr, flush=True)
