"""Worker processes: answers in order, faults told with what happened, no process left behind."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from spo_fast.envs.worker import WorkerError, WorkerProcess


class Echo:
    """What the workers of these tests serve."""

    def say(self, word):
        return word

    def pid(self):
        return os.getpid()

    def sleep(self, seconds):
        time.sleep(seconds)
        return "slept"

    def fail(self):
        raise KeyError("nothing there")

    def die(self, status):
        print("last words", flush=True)
        os._exit(status)

    def change_arguments(self):
        sys.argv = ["changed"]


def broken():
    raise ImportError("no such engine")


ECHO = f"{__name__}:Echo"


@pytest.fixture
def worker():
    made = WorkerProcess(ECHO)
    yield made
    made.close()


def gone(pid):
    """Whether the process has ended, within a few seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def test_answers_come_from_another_process(worker):
    assert worker.call("say", {"a": [1, None]}, timeout=30) == {"a": [1, None]}
    assert worker.call("pid", timeout=30) != os.getpid()


def test_answers_nobody_waited_for_are_dropped(worker):
    for word in "abc":
        worker.send("say", word)
    assert worker.receive(timeout=30) == "c"


def test_workers_are_busy_at_the_same_time():
    workers = [WorkerProcess(ECHO) for _ in range(3)]
    for worker in workers:
        worker.call("say", "ready", timeout=30)
    start = time.monotonic()
    for worker in workers:
        worker.send("sleep", 1.0)
    assert [worker.receive(timeout=30) for worker in workers] == ["slept"] * 3
    assert time.monotonic() - start < 2.5
    for worker in workers:
        worker.close()


def test_an_exception_is_told_and_survived(worker):
    with pytest.raises(WorkerError, match="KeyError: 'nothing there'"):
        worker.call("fail", timeout=30)
    assert worker.call("say", "on", timeout=30) == "on"


def test_a_worker_that_dies_says_how(worker):
    with pytest.raises(WorkerError, match=r"ended with exit status 3; it last said:\nlast words"):
        worker.call("die", 3, timeout=30)
    assert not worker.alive
    with pytest.raises(WorkerError, match="has been closed"):
        worker.call("say", "again", timeout=30)


def test_a_worker_that_hangs_is_killed(worker):
    pid = worker.call("pid", timeout=30)
    with pytest.raises(WorkerError, match=r"no answer within 0\.2 s"):
        worker.call("sleep", 60, timeout=0.2)
    assert gone(pid)


def test_what_cannot_be_made_is_told():
    worker = WorkerProcess(f"{__name__}:broken")
    with pytest.raises(WorkerError, match=r"exit status 1; it last said:(?s:.*)ImportError: no such engine"):
        worker.call("say", "a", timeout=30)


def test_closing_ends_the_process(worker):
    pid = worker.call("pid", timeout=30)
    worker.close()
    worker.close()
    assert gone(pid) and not worker.alive


def test_a_forgotten_worker_ends():
    worker = WorkerProcess(ECHO)
    pid = worker.call("pid", timeout=30)
    del worker
    assert gone(pid)


@pytest.mark.filterwarnings(
    "ignore:.*fork:DeprecationWarning"
)  # of a process with threads, as pytest's may be
def test_a_worker_survives_a_fork_of_its_owner(worker):
    pid = worker.call("pid", timeout=30)
    child = os.fork()
    if child == 0:
        worker.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert worker.call("pid", timeout=30) == pid


def test_a_worker_ends_when_its_owner_is_killed():
    code = (
        "import sys; sys.path = eval(sys.argv[1])\n"
        "from spo_fast.envs.worker import WorkerProcess\n"
        f"worker = WorkerProcess({ECHO!r})\n"
        "print(worker.call('pid', timeout=30), flush=True)\n"
        "input()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code, repr(sys.path)], stdin=pipe, stdout=pipe) as owner:
        pid = int(owner.stdout.readline())
        owner.send_signal(signal.SIGKILL)
    assert gone(pid)


def test_ctrl_c_does_not_end_a_worker(worker):
    pid = worker.call("pid", timeout=30)
    os.kill(pid, signal.SIGINT)
    assert worker.call("pid", timeout=30) == pid


def test_a_worker_may_be_made_and_used_in_a_thread():
    answers = []

    def use():
        worker = WorkerProcess(ECHO)
        worker.call("change_arguments", timeout=30)
        answers.append(worker.call("say", "here", timeout=30))
        worker.close()

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["here"] * 3
    assert sys.argv != ["changed"]
