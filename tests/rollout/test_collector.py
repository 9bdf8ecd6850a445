import pytest

from spo_fast.rollout.chat import ChatFormat
from spo_fast.rollout.collector import Collector, Request, outcome_of
from tests.rollout.scripted import RoundTasks, ScriptedEngine, tokenizer


def make(say, delay=lambda r, t: 1, slots=2, limit=5, **options):
    tok = tokenizer()
    engine = ScriptedEngine(tok, slots, say, delay)
    options = {"max_tokens": 200, "max_action_tokens": 4, **options}
    return tok, engine, Collector(engine, RoundTasks("abcdef", limit), ChatFormat(tok), **options)


def test_an_episode_as_tokens():
    tok, _engine, collector = make(lambda r, t: ["wait", "win"][t])
    (t,) = collector.play([Request(0, "a")])
    assert tok.decode(t.token_ids) == (
        "<|user|> you see round 0 <|assistant|> wait <|end|> <|user|> you see round 1 <|assistant|> win <|end|>"
    )
    says = [tok.decode(i) for i, m in zip(t.token_ids, t.action_mask, strict=True) if m]
    assert says == ["wait", "<|end|>", "win", "<|end|>"]
    assert t.logprobs == [-0.5 * m for m in t.action_mask]
    assert (t.outcome, t.reward, t.truncated, t.action_tokens) == (1.0, 1.0, False, 4)
    assert t.commands == ["wait", "win"]
    assert t.observations == ["you see round 0", "you see round 1", "you see round 2"]


def test_the_engine_is_fed_new_tokens_alone():
    tok, engine, collector = make(lambda r, t: ["wait", "win"][t])
    list(collector.play([Request(0, "a")]))
    first, second = engine.contexts[0]
    assert tok.decode(first) == "<|user|> you see round 0 <|assistant|>"
    assert tok.decode(second) == "<|user|> you see round 1 <|assistant|>"


def test_first_finished_first_and_nothing_waits_for_the_slowest():
    _, engine, collector = make(lambda r, t: "win", lambda r, t: 10 if r == 0 else 1)
    order = [t.request.number for t in collector.play(Request(i, "a") for i in range(5))]
    assert order == [1, 2, 3, 4, 0]
    assert engine.decode_steps == 10


def test_ties_go_by_request_number():
    _, _, collector = make(lambda r, t: "win", slots=4)
    assert [t.request.number for t in collector.play(Request(i, "a") for i in (3, 1, 2, 0))] == [0, 1, 2, 3]


def test_limits_truncate():
    _, _, collector = make(lambda r, t: "wait", limit=3)
    (t,) = collector.play([Request(0, "a")])
    assert t.truncated and t.outcome == 0 and len(t.commands) == 3
    _, _, collector = make(lambda r, t: "wait", max_tokens=18)
    (t,) = collector.play([Request(0, "a")])
    assert t.truncated and len(t.token_ids) <= 18


def test_an_opening_that_does_not_fit_is_refused():
    _, _, collector = make(lambda r, t: "wait", max_tokens=8)
    with pytest.raises(ValueError, match="max_tokens: task 'a' opens with 6 tokens"):
        collector.start(Request(0, "a"))
    assert collector.in_flight == [] and collector.free_slots == 2


def test_cancel_frees_the_slot():
    _, _, collector = make(lambda r, t: "wait")
    collector.start(Request(0, "a"))
    collector.start(Request(1, "b"))
    collector.cancel(0)
    assert [r.number for r in collector.in_flight] == [1]
    assert collector.free_slots == 1


@pytest.mark.parametrize(
    ("reward", "info", "outcome"),
    [(5.0, {"won": False}, 0), (0.0, {"won": True}, 1), (0.4, {}, 0.4), (7, {}, 1), (-1, {}, 0)],
)
def test_outcome(reward, info, outcome):
    assert outcome_of(reward, info) == outcome
