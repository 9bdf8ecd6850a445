"""The stream's promises: order, one request a task, what publication waits for."""

import numpy as np
import pytest

from spo_fast.rollout.chat import ChatFormat
from spo_fast.rollout.collector import Collector
from spo_fast.train.stream import RolloutStream
from tests.rollout.scripted import RoundTasks, ScriptedEngine, tokenizer


class Spy:
    """A baseline that writes down what it is asked."""

    def __init__(self):
        self.tracker = self
        self.tickets = 0
        self.events = []

    def sampling_weights(self, tasks):
        return np.ones(len(tasks))

    def dispatch(self, tasks):
        self.events.append(("dispatch", tuple(tasks)))
        self.tickets += len(tasks)
        return list(range(self.tickets - len(tasks), self.tickets))

    def cancel(self, tickets):
        self.events.append(("cancel", tuple(tickets)))

    def publish(self):
        self.events.append(("publish",))


def make(slots=3, tasks="abcdefgh", delay=lambda r, t: 1 + r % 4):
    tok = tokenizer()
    engine = ScriptedEngine(tok, slots, lambda r, t: "win", delay)
    collector = Collector(engine, RoundTasks(tasks), ChatFormat(tok), max_tokens=100, max_action_tokens=4)
    spy = Spy()
    return spy, engine, collector, RolloutStream(collector, spy, list(tasks), np.random.default_rng(0))


def test_batches_are_the_first_finished_and_never_repeat():
    _, _, collector, stream = make()
    batch = stream.batch(6) + stream.batch(6)
    keys = [(t.finished_at, t.request.number) for t in batch]
    assert keys == sorted(keys)
    assert len({t.request.number for t in batch}) == 12
    assert len(collector.in_flight) <= 3


def test_one_request_a_task_in_flight():
    _, _, collector, stream = make(slots=3, tasks="ab")
    for _ in range(4):
        stream.batch(2)
        tasks = [r.task_id for r in collector.in_flight]
        assert len(tasks) == len(set(tasks))


def test_settle_lets_requests_finish_under_their_policy_and_joins_them():
    spy, _, collector, stream = make()
    stream.batch(4)
    flying = {r.number for r in collector.in_flight}
    assert flying
    dispatched = spy.tickets
    stream.settle("join")
    assert collector.in_flight == [] and spy.tickets == dispatched, "nothing new may start"
    stream.publish()
    batch = stream.batch(4)
    joined = {t.request.number: t.request.version for t in batch}
    assert flying <= set(joined)
    assert all(joined[n] == 0 for n in flying)
    assert {v for n, v in joined.items() if n not in flying} <= {1}


def test_settle_discard_cancels_tickets():
    spy, _, collector, stream = make()
    stream.batch(4)
    flying = collector.in_flight
    stream.settle("discard")
    assert spy.events[-1] == ("cancel", tuple(r.ticket for r in flying))
    stream.publish()
    assert not {t.request.number for t in stream.batch(4)} & {r.number for r in flying}


def test_the_sampler_prefers_heavy_tasks():
    spy, _, _, stream = make(slots=1, tasks="abcd", delay=lambda r, t: 1)
    spy.sampling_weights = lambda tasks: np.array([10.0 if t == "c" else 0.1 for t in tasks])
    picks = [t.request.task_id for t in stream.batch(40)]
    assert picks.count("c") > 30


@pytest.mark.parametrize("slots", [1, 3])
def test_the_same_seed_gives_the_same_stream(slots):
    runs = []
    for _ in range(2):
        _, _, _, stream = make(slots=slots)
        runs.append([(t.request.number, t.request.task_id) for t in stream.batch(20)])
    assert runs[0] == runs[1]
