"""State memory: worked values, a dict as oracle, deltas, files."""

from __future__ import annotations

import math
import os
import pickle
import random
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from spo_fast import StateTable, _core
from tests.shared import vectors
from tests.tolerances import FLOAT64


@pytest.mark.parametrize("case", vectors("state_table"))
def test_worked_values(case: Any) -> None:
    table = StateTable(**case["options"])
    for line in case["script"]:
        if line["op"] == "update":
            table.update([line["states"]], [line["success"]])
            continue
        state, expect = [line["state"]], line["expect"]
        assert table.scores(state)[0] == pytest.approx(expect["score"], rel=FLOAT64, abs=FLOAT64)
        assert table.rollout_counts(state)[0] == expect["rollouts"]
        assert table.novelty_weights(state)[0] == pytest.approx(expect["omega"], rel=FLOAT64)
        reward = table.step_rewards(state, [line["next_state"]], [line["success"]])[0]
        assert reward == pytest.approx(expect["reward"], rel=FLOAT64, abs=FLOAT64)


def test_by_hand() -> None:
    """Two trajectories: a succeeds in one of two, b in one of one; t is 3."""
    table = StateTable(alpha=1.0)
    table.update([["a", "b", "a"], ["a"]], [True, False])
    assert table.t == 3 and len(table) == table.unique_states == 2
    np.testing.assert_array_equal(table.counts(["a", "b", "c"]), [[2, 1], [1, 1], [0, 0]])
    a, b = math.exp(-math.log(3) * (1 / (2 + 1e-6))), math.exp(-math.log(3) * (1 / (1 + 1e-6)))
    np.testing.assert_array_equal(table.scores(["a", "b", "c"]), [a, b, 1.0])
    np.testing.assert_array_equal(table.rollout_counts(["a", "b", "c"]), [5, 3, 8])
    w = 0.5 * math.exp(-0.1 * 2)
    np.testing.assert_allclose(
        table.step_rewards(["a", "a", "a"], ["b", "a", "b"], [False, False, True]),
        [w + (0.5 - w) * (a - b), 0.0, w + (0.5 - w) * (a - b) + 0.5],
        rtol=1e-15,
    )


def test_a_state_is_given_up_after_xi_failures() -> None:
    table = StateTable(xi=3, zeta=0.1)
    table.update([["a"]] * 2, [False] * 2)
    assert table.scores(["a"])[0] == 1.0
    table.update([["a"]], [False])
    assert table.scores(["a"])[0] == 0.0 and table.rollout_counts(["a"])[0] == 0
    table.update([["a"]], [True])  # one of four is more than zeta
    assert table.rollout_counts(["a"])[0] == 1


def test_solved_state_at_large_t() -> None:
    """Row 17 of the inputs that break libraries of this kind."""
    table = StateTable()
    table.update([["a"]], [True])
    for _ in range(3):
        table.update([[]] * 1_000_000, np.zeros(1_000_000, dtype=bool))
    assert table.t == 3_000_002 and table.scores(["a"])[0] < 1e-300 and table.rollout_counts(["a"])[0] == 1


def random_table(trajectories: int = 10, length: int = 30, seed: int = 0, **options: Any) -> StateTable:
    rng = random.Random(seed)
    table = StateTable(**options)
    table.update(
        [[f"room {rng.randrange(60)}" for _ in range(length)] for _ in range(trajectories)],
        [rng.random() < 0.3 for _ in range(trajectories)],
    )
    table.mark_explored([f"room {i}" for i in range(20)], [f"go {i % 3}" for i in range(20)])
    return table


ROOMS = [f"room {i}" for i in range(70)]


def answers(table: StateTable) -> list[Any]:
    following = ROOMS[1:] + ROOMS[:1]
    return [
        table.t,
        len(table),
        table.coverage(3),
        *(
            getattr(table, name)(ROOMS).tobytes()
            for name in ("scores", "rollout_counts", "novelty_weights", "counts")
        ),
        table.step_rewards(ROOMS, following, [False] * len(ROOMS)).tobytes(),
        table.is_explored(ROOMS, ["go 1"] * len(ROOMS)).tobytes(),
        [column.tobytes() for column in table.visit_histogram()],
    ]


def test_loaded_table_answers_the_same(tmp_path: Path) -> None:
    """Row 14: to the bit."""
    table = random_table(alpha=0.7, xi=3, zeta=0.2, omega_k=0.3, g_max=5, seed=3)
    table.save(tmp_path / "table")
    loaded = StateTable.load(tmp_path / "table")
    assert answers(loaded) == answers(table) and repr(loaded) == repr(table)
    assert loaded.t == 11
    assert list(tmp_path.iterdir()) == [tmp_path / "table"]
    for other in (table, loaded):
        other.update([["room 1", "new"]], [True])
    assert answers(loaded) == answers(table)


def test_reads_never_insert() -> None:
    """Row 15."""
    table = random_table()
    before, size = len(table), table.nbytes
    unseen = [f"unseen {i}" for i in range(1000)]
    assert (table.scores(unseen) == 1.0).all() and (table.rollout_counts(unseen) == 8).all()
    table.counts(unseen), table.novelty_weights(unseen), table.is_explored(unseen, unseen)
    table.step_rewards(unseen, unseen, [True] * 1000), table.group_ids(unseen, [0] * 1000)
    assert len(table) == before and table.nbytes == size and len(StateTable()) == 0


def test_texts() -> None:
    table = StateTable()
    table.update([["käse", "", b"\x00\xff", "a\0b", "𝄞" * 100]], [True])
    assert len(table) == 5
    np.testing.assert_array_equal(table.counts(["käse".encode(), b"", "a", "a\0b"])[:, 0], [1, 1, 0, 1])
    for call in (table.scores, table.counts):
        with pytest.raises(TypeError, match=r"states\[1\]: expected str or bytes, got int"):
            call(["a", 1])
        with pytest.raises(TypeError, match="expected a list of str or bytes, got str"):
            call("a")
        with pytest.raises(ValueError, match=r"states\[0\]: expected a str that UTF-8 can encode"):
            call(["\ud800"])


def test_explored_pairs() -> None:
    table = StateTable()
    table.mark_explored(["ab", "käse"], ["c", b"\xff"])
    assert table.is_explored(["ab", "a", "", "käse", "ab"], ["c", "bc", "abc", b"\xff", ""]).tolist() == [
        True, False, False, True, False,
    ]  # fmt: skip
    assert len(table) == 0 and table.t == 1 and table.counts(["ab"]).sum() == 0
    pair = (2).to_bytes(8, "little") + b"ab" + (1).to_bytes(8, "little") + b"c"
    assert table.counts([pair]).sum() == 0  # the text of a pair is not its key


def test_failing_batch_changes_nothing() -> None:
    table = random_table()
    before = answers(table)
    for arguments, error in (
        (([["x"], ["y", 1]], [True, False]), TypeError),
        (([["x"], "yz"], [True, False]), TypeError),
        (([["x"], ["y"]], [True]), ValueError),
        (([["x"]], [2]), ValueError),
        (([["x"]], [float("nan")]), ValueError),
        (([["x"], ["\ud800"]], [True, False]), ValueError),
    ):
        with pytest.raises(error):
            table.update(*arguments)
    with pytest.raises(ValueError, match="actions: expected 2, one a state, got 1"):
        table.mark_explored(["x", "y"], ["a"])
    with pytest.raises(ValueError, match="next_states"):
        table.step_rewards(["x"], [], [True])
    assert answers(table) == before and table.counts(["x", "y"]).sum() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1.0}, "alpha: expected a finite number >= 0, got -1"),
        ({"zeta": float("nan")}, "zeta"),
        ({"omega_k": float("inf")}, "omega_k"),
        ({"xi": -1}, "xi: expected a whole number >= 0, got -1"),
        ({"g_max": 0}, "g_max"),
        ({"seed": 2**128}, "seed"),
        ({"capacity": -1}, "capacity"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StateTable(**options)
    with pytest.raises(TypeError, match="xi: expected an int"):
        StateTable(xi=1.5)  # type: ignore[arg-type]


GOLDEN = {
    b"": "ffe8f45497eeca94d13d5d1aaeffb48b",
    b"a": "c1b41bf9e149e634b1983c1e741f36d3",
    b"You are in room 1. You see a mug 1.": "ecbfa56e3527c640e5f7cf2d695e1772",
    bytes(range(256)): "271d1a28d4246d656826c7b8f480db87",
}


@pytest.mark.parametrize("text", GOLDEN)
def test_hash_is_stable(text: bytes) -> None:
    assert _core.hash128(text).hex() == GOLDEN[text]


def test_seeded_hash_is_siphash() -> None:
    """SipHash-2-4 with 128 bits: key 00 01 .. 0f, texts of 0, 1 and 2 bytes, from its authors' vectors."""
    first, second = (int.from_bytes(bytes(range(i, i + 8)), "little") for i in (0, 8))
    digests = [_core.hash128(bytes(range(n)), first, second).hex() for n in range(3)]
    assert digests == [
        "a3817f04ba25a8e66df67214c7550293",
        "da87c1d86b99af44347659119b22fc45",
        "8177228da4a45dc7fca38bdef60affe4",
    ]


def test_hash_has_no_short_collisions() -> None:
    texts = (
        {b"x" * n for n in range(300)}
        | {b"\0" * n for n in range(300)}
        | {bytes([i, j]) for i in range(256) for j in range(256)}
    )
    digests = [_core.hash128(text) for text in texts]
    for part in (slice(0, 8), slice(8, 16)):
        assert len({digest[part] for digest in digests}) == len(texts)


def test_seeded_tables(tmp_path: Path) -> None:
    table = random_table(seed=5)
    other = StateTable(seed=2**100 + 5)
    other.update([ROOMS], [True])
    other.save(tmp_path / "table")
    loaded = StateTable.load(tmp_path / "table")
    assert answers(loaded) == answers(other)
    with pytest.raises(ValueError, match="seed"):
        table.merge(other)


def test_group_ids() -> None:
    table = StateTable()
    states, groups = ["a", "b", "a", "a", "b"], [7, 7, 8, 7, 7]
    np.testing.assert_array_equal(table.group_ids(states, groups), [0, 1, 2, 0, 1])
    np.testing.assert_array_equal(table.group_ids(states, ["x", "x", None, "x", "x"]), [0, 1, 2, 0, 1])
    np.testing.assert_array_equal(table.group_ids(states, np.array(groups, np.int32)), [0, 1, 2, 0, 1])
    assert table.group_ids([], []).shape == (0,) and len(table) == 0
    with pytest.raises(ValueError, match="groups: expected 5"):
        table.group_ids(states, [1])


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-3, 3)), max_size=60))
def test_group_ids_against_a_dict(pairs: list[tuple[str, int]]) -> None:
    seen: dict[tuple[str, int], int] = {}
    expected = [seen.setdefault(pair, len(seen)) for pair in pairs]
    states, groups = [p[0] for p in pairs], [p[1] for p in pairs]
    assert StateTable().group_ids(states, groups).tolist() == expected


def test_coverage() -> None:
    table, reference = StateTable(), StateTable()
    assert table.coverage() == 0.0
    table.update([["a", "b"], ["a", "c"], ["a"]], [True, False, False])  # p = 3/5, 1/5, 1/5
    assert (
        table.coverage(1) == 1.0
        and table.coverage() == table.coverage(3) == 1 / 3
        and table.coverage(4) == 0.0
    )
    visits, states = table.visit_histogram()
    assert visits.tolist() == [1, 3] and states.tolist() == [2, 1]
    with pytest.raises(ValueError, match="expected a table with visits"):
        table.coverage(reference=reference)
    reference.update([["a", "d"]], [True])  # q = 1/2, 1/2
    expected = 0.25 / (0.6 + 0.005) + 0.25 / 0.005
    assert table.coverage(reference=reference) == pytest.approx(expected, rel=FLOAT64)
    assert table.coverage(reference=table, epsilon=0.5) == pytest.approx(1 / 1.5, rel=FLOAT64)
    assert StateTable().coverage(reference=table, epsilon=0.1) == pytest.approx(10, rel=FLOAT64)


def counts_of(table: StateTable, states: list[str]) -> list[list[int]]:
    return table.counts(states).tolist()


def test_deltas() -> None:
    a, b = StateTable(), StateTable()
    a.update([["x", "y"]], [True])
    a.mark_explored(["x"], ["go"])
    first = a.delta_since(0)
    a.update([["x", "z"]], [False])
    second = pickle.loads(pickle.dumps(a.delta_since(first.to)))
    assert (first.from_mark, second.from_mark) == (0, first.to) and first.origin == second.origin
    with pytest.raises(ValueError, match="deltas between them are missing"):
        b.merge(second)
    assert len(b) == 0 and b.t == 1
    assert b.merge(first) is True and b.merge(first) is False
    assert b.merge(second) is True and b.merge(second) is False and b.merge(first) is False
    assert counts_of(b, ["x", "y", "z"]) == counts_of(a, ["x", "y", "z"]) == [[2, 1], [1, 1], [1, 0]]
    assert b.t == a.t == 3 and b.is_explored(["x"], ["go"]).all() and len(b) == 3
    assert len(b.delta_since(0)) == 0  # what came from others is theirs to tell
    assert a.merge(first) is False  # its own
    assert len(a.delta_since(second.to)) == 0 and a.delta_since(second.to).to == second.to
    whole = a.delta_since(0)
    with pytest.raises(ValueError, match="part of it was merged already") as error:
        a.update([["w"]], [True])
        b.merge(a.delta_since(0))
    assert str(second.to) in str(error.value)
    fresh = StateTable()
    fresh.merge(whole)
    assert counts_of(fresh, ["x", "y", "z"]) == counts_of(b, ["x", "y", "z"]) and fresh.t == 3


def test_a_lost_delta_can_be_asked_for_again() -> None:
    a, b = StateTable(), StateTable()
    a.update([["x"]], [True])
    b.merge(a.delta_since(0))
    mark = a.delta_since(0).to
    a.update([["x", "y"]], [True])
    lost = a.delta_since(mark)
    a.update([["x", "z"]], [False])
    again = a.delta_since(lost.from_mark)
    assert again.from_mark == mark and again.to > lost.to and again.trajectories == 2
    b.merge(again)
    assert counts_of(b, ["x", "y", "z"]) == counts_of(a, ["x", "y", "z"]) and b.t == a.t
    with pytest.raises(ValueError, match="mark: expected 0, "):
        a.delta_since(99)
    assert len(a.delta_since(again.to)) == 0


@given(st.permutations(range(6)), st.integers(0, 2**20))
@settings(max_examples=40, deadline=None)
def test_merging_is_commutative_and_associative(order: list[int], seed: int) -> None:
    rng = random.Random(seed)
    tables = [StateTable() for _ in range(3)]
    deltas = []
    for table in tables:
        mark = 0
        for _ in range(2):
            table.update(
                [[f"room {rng.randrange(8)}" for _ in range(4)] for _ in range(3)], [rng.random() < 0.5] * 3
            )
            table.mark_explored([f"room {rng.randrange(8)}"], ["go 1"])
            deltas.append(table.delta_since(mark))
            mark = deltas[-1].to
    by_delta = StateTable()
    waiting = [deltas[i] for i in order]
    while waiting:  # a gap is refused, and closed later
        try:
            by_delta.merge(waiting[0])
            waiting.pop(0)
        except ValueError:
            waiting.append(waiting.pop(0))
    left, right = StateTable(), StateTable()
    for table in tables:
        left.merge(table)
    inner = StateTable()
    inner.merge(tables[2])
    inner.merge(tables[1])
    right.merge(inner)
    right.merge(tables[0])
    assert answers(by_delta) == answers(left) == answers(right)
    assert left.t == sum(table.t for table in tables) - 2
    left.merge(left)
    np.testing.assert_array_equal(left.counts(ROOMS), 2 * right.counts(ROOMS))


def test_merging_needs_equal_options() -> None:
    with pytest.raises(ValueError, match="xi: expected this table's 10, got 11; g_max"):
        StateTable().merge(StateTable(xi=11, g_max=4))
    with pytest.raises(ValueError, match="alpha"):
        StateTable().merge(StateTable(alpha=1.0).delta_since(0))
    with pytest.raises(TypeError, match="expected a StateTable or a StateDelta, got dict"):
        StateTable().merge({})  # type: ignore[arg-type]


def test_a_loaded_table_has_deltas_of_its_own(tmp_path: Path) -> None:
    a, hub = StateTable(), StateTable()
    a.update([["x"]], [True])
    hub.merge(a.delta_since(0))
    a.save(tmp_path / "a")
    loaded = StateTable.load(tmp_path / "a")
    assert loaded.merge(a.delta_since(0)) is False  # it has that already
    loaded.update([["y"]], [True])
    delta = loaded.delta_since(0)
    assert delta.trajectories == 1 and len(delta) == 1
    hub.merge(delta)
    assert counts_of(hub, ["x", "y"]) == [[1, 1], [1, 1]]


class AgainstDict(RuleBasedStateMachine):
    """Every operation mirrored into dicts, in memory, in a shared file, and through saving, loading and merging."""

    states = st.lists(st.integers(0, 400).map(lambda i: f"state {i}"), max_size=60)

    @initialize(shared=st.booleans())
    def start(self, shared: bool) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "shared") if shared else None
        self.table = StateTable(path=self.path)
        self.counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.pairs: set[tuple[str, str]] = set()
        self.t = 1

    def teardown(self) -> None:
        del self.table
        self.folder.cleanup()

    def count(self, states: list[str], success: bool, times: int = 1) -> None:
        self.t += times
        for state in set(states):
            self.counts[state][0] += times
            self.counts[state][1] += times * success

    @rule(trajectories=st.lists(st.tuples(states, st.booleans()), max_size=4))
    def update(self, trajectories: list[tuple[list[str], bool]]) -> None:
        self.table.update([states for states, _ in trajectories], [success for _, success in trajectories])
        for states, success in trajectories:
            self.count(states, success)

    @rule(first=st.integers(0, 50_000), success=st.booleans())
    def update_many(self, first: int, success: bool) -> None:
        states = [f"state {i}" for i in range(first, first + 3000)]
        self.table.update([states], [success])
        self.count(states, success)

    @rule(states=states, action=st.sampled_from(["go", "look"]))
    def explore(self, states: list[str], action: str) -> None:
        self.table.mark_explored(states, [action] * len(states))
        self.pairs |= {(state, action) for state in states}

    @rule(states=states, success=st.booleans())
    def merge(self, states: list[str], success: bool) -> None:
        other = StateTable()
        other.update([states], [success])
        self.table.merge(other)
        self.count(states, success)

    @rule(states=states, success=st.booleans())
    def merge_delta(self, states: list[str], success: bool) -> None:
        other = StateTable()
        other.update([states] * 2, [success] * 2)
        self.table.merge(other.delta_since(0))
        self.count(states, success, 2)

    @rule()
    def reopen(self) -> None:
        if self.path is None:
            path = os.path.join(self.folder.name, "saved")
            self.table.save(path)
            self.table = StateTable.load(path)
        else:
            del self.table
            self.table = StateTable(path=self.path)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "table"):
            return
        known = list(self.counts)
        assert len(self.table) == len(known) and self.table.t == self.t
        asked = [*known, "unseen"]
        assert counts_of(self.table, asked) == [self.counts[state] for state in known] + [[0, 0]]
        pairs = [*self.pairs, ("unseen", "go")]
        explored = self.table.is_explored([p[0] for p in pairs], [p[1] for p in pairs])
        assert explored[:-1].all() and not explored[-1]


TestAgainstDict = AgainstDict.TestCase
TestAgainstDict.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)


def test_memory_a_state() -> None:
    """At most 100 bytes a state at any moment, growth included (from where the empty table no longer dominates)."""
    table, worst, n = StateTable(), 0.0, 0
    while n < 400_000:
        step = max(n // 50, 500)
        table.update([[str(i) for i in range(n, n + step)]], [True])
        n += step
        if n > 5_000:
            worst = max(worst, table.nbytes / n)
    assert worst < 100, worst


def test_capacity_only_reserves() -> None:
    table, reserved = random_table(), random_table(capacity=1_000_000)
    assert answers(table) == answers(reserved)


def test_threads_lose_nothing() -> None:
    table = StateTable()
    rounds, workers = 60, 4

    def work(worker: int) -> None:
        for i in range(rounds):
            table.update(
                [[f"{i} {j}" for j in range(500)] + [f"own {worker} {i} {j}" for j in range(100)]],
                [i % 2 == 0],
            )

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared = table.counts([f"{i} {j}" for i in range(rounds) for j in range(500)])
    assert (shared[:, 0] == workers).all() and table.t == 1 + rounds * workers
    assert len(table) == rounds * 500 + workers * rounds * 100
