"""A child process that answers requests in order: for engines that crash in threads or change their process.

The child is a fresh interpreter, not a fork and not `multiprocessing`'s spawn: the caller's script is not run again in
it, so that script needs no ``if __name__ == "__main__"``.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import weakref
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["WorkerError", "WorkerProcess"]

_GRACE = 2.0  # seconds that a process has to end by itself
_DYING = (
    30.0  # seconds that one which dropped its connection has to say its exit status; long on a busy machine
)
_LOG_TAIL = 2000  # bytes of what it said that are shown when it dies

# The child finds modules where its parent does, however the parent came by its path.
_BOOT = """\
import json, sys
target, descriptor, sys.path = json.loads(sys.argv[1])
from spo_fast.envs.worker import serve
serve(target, descriptor)
"""


class WorkerError(RuntimeError):
    """A request failed in the worker, or the worker died or did not answer in time."""


class WorkerProcess:
    """An object living in a process of its own, whose methods are requests. Not for use by several threads at once.

    `send` and `receive` are apart so that several workers can be busy at once; one answer is received for the last
    request sent, and answers nobody waited for are dropped. The process ends with `close`, with this object, with
    the interpreter, and also if the parent is killed.

    Args:
        target: "module:name" of a callable without arguments that makes the object, in the child.
    """

    def __init__(self, target: str) -> None:
        self._serial = 0
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the worker
        self._connection, theirs = Pipe()
        with theirs:
            start = json.dumps([target, theirs.fileno(), [os.fspath(p) for p in sys.path]])
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, start],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
            )
        self._stop = weakref.finalize(self, _stop, self._process, self._connection, os.getpid())

    @property
    def alive(self) -> bool:
        return self._stop.alive and self._process.poll() is None

    def send(self, method: str, *arguments: Any) -> None:
        """Asks for a method's result without waiting for it."""
        self._serial += 1
        try:
            self._connection.send((self._serial, method, arguments))
        except OSError:
            raise self._death() from None

    def receive(self, timeout: float) -> Any:
        """The result of the last request.

        Args:
            timeout: seconds; a worker that takes longer is killed.

        Raises:
            WorkerError: the method raised, or the process ended, or the time is up.
        """
        serial = 0
        while serial != self._serial:
            try:
                if not self._connection.poll(timeout):
                    self.close(grace=0)
                    raise WorkerError(f"no answer within {timeout:g} s; the worker process was killed")
                serial, succeeded, result = self._connection.recv()
            except (EOFError, OSError):
                raise self._death() from None
        if not succeeded:
            raise WorkerError(result)
        return result

    def call(self, method: str, *arguments: Any, timeout: float) -> Any:
        """`send` and `receive`."""
        self.send(method, *arguments)
        return self.receive(timeout)

    def close(self, grace: float = _GRACE) -> None:
        """Ends the process, at the latest after `grace` seconds. May be called again."""
        if self._stop.detach():
            _stop(self._process, self._connection, os.getpid(), grace)

    def _death(self) -> WorkerError:
        if not self._stop.alive:
            return WorkerError("the worker process has been closed")
        try:
            status = self._process.wait(_DYING)
        except subprocess.TimeoutExpired:
            status = None
        self.close(grace=0)
        self._log.seek(max(0, os.fstat(self._log.fileno()).st_size - _LOG_TAIL))
        said = self._log.read().decode(errors="replace").strip()
        return WorkerError(
            f"the worker process ended with exit status {status}"
            + (f"; it last said:\n{said}" if said else "")
        )


def _stop(
    process: subprocess.Popen[bytes], connection: Connection, owner: int, grace: float = _GRACE
) -> None:
    connection.close()
    if os.getpid() != owner:  # in a fork of the owner: not ours to end
        return
    try:
        process.wait(grace)  # it ends by itself when the connection closes
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def serve(target: str, descriptor: int) -> None:
    """The child's side: answers requests until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes us
    connection = Connection(descriptor)
    module, _, name = target.partition(":")
    served = getattr(importlib.import_module(module), name)()
    while True:
        try:
            serial, method, arguments = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (serial, True, getattr(served, method)(*arguments))
        except Exception as error:
            traceback.print_exc()
            answer = (serial, False, f"{type(error).__name__}: {error}")
        try:
            connection.send(answer)
        except OSError:
            return
