"""What both trackers share: ids, sampling, state and files."""

from __future__ import annotations

import os
import pickle
import stat
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from spo_fast import PromptTracker, ReceiptOrderTracker

Tracker: TypeAlias = PromptTracker | ReceiptOrderTracker
BOTH = pytest.mark.parametrize("kind", [PromptTracker, ReceiptOrderTracker])


def used(kind: type[Tracker]) -> Tracker:
    """A tracker with options of its own, some history and, where it has them, open tickets."""
    if kind is PromptTracker:
        tracker = PromptTracker(rho=0.7)
        tracker.register(["a", 1, "1", "käse\n", "\ud800"], [0, 1, 2, 3, 4], 8)
        tickets = tracker.dispatch(["a", 1, 1, "1"])
        tracker.publish(3)
        tracker.complete(tickets[:2], [1 / 3, 0.1])
        return tracker
    other = ReceiptOrderTracker(0.5, 0.9, 0.1)
    other.register(["a", 1, "1", "käse\n", "\ud800"], [0, 1, 2, 3, 4], 8)
    other.update(["a", 1, 1], [1 / 3, 0.1, 0.7], [0.01, 0.02, 0.03])
    return other


@BOTH
def test_ids_keep_their_type(kind: type[Tracker]) -> None:
    tracker = kind()
    tracker.register(["1", 1, np.int64(2), np.str_("b"), 2**80], successes=0, trials=[1, 2, 3, 4, 5])
    assert tracker.task_ids == ["1", 1, 2, "b", 2**80]
    assert [type(task) for task in tracker.task_ids] == [str, int, int, str, int]
    assert 1 in tracker and "1" in tracker and np.int32(2) in tracker and "2" not in tracker
    assert True not in tracker and 1.0 not in tracker and None not in tracker
    assert len(tracker) == 5
    assert tracker.values(["1"]) != tracker.values([1])
    assert sorted(map(str, tracker.sample(5, np.random.default_rng(0)))) == sorted(map(str, tracker.task_ids))


@BOTH
@pytest.mark.parametrize("task", [True, 1.0, None, b"a", ("a",)])
def test_other_ids_are_refused(kind: type[Tracker], task: Any) -> None:
    tracker = kind()
    tracker.register([1], 0, 0)
    for call in (
        tracker.values,
        tracker.evidence,
        tracker.sampling_weights,
        lambda ids: tracker.register(ids, 0, 0),
    ):
        with pytest.raises(TypeError, match="expected str or int"):
            call([task])
    assert len(tracker) == 1


@BOTH
def test_a_string_is_not_a_batch(kind: type[Tracker]) -> None:
    with pytest.raises(TypeError, match=r"give \['abc'\]"):
        kind().register("abc", 0, 0)


@BOTH
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["b", "a"], 0, 0), "'a' registered already"),
        ((["b", "b"], 0, 0), "'b' named twice"),
        ((["b", "c"], [0, 3], [1, 2]), r"successes\[1\]: expected 0 <= successes <= trials, got 3 of 2"),
        ((["b"], -1, 2), "successes"),
        ((["b"], float("nan"), 2), "successes"),
        ((["b"], 1, float("nan")), "trials"),
        ((["b"], 1, float("inf")), "trials"),
        ((["b"], 1, 2.5), "trials"),
        ((["b"], 1, 2, 0.0), "mass"),
        ((["b"], 1, 2, float("nan")), "mass"),
        ((["b"], 1, 2, float("inf")), "mass"),
        ((["b", "c"], [1], [2]), "successes: expected shape"),
    ],
)
def test_failing_registration_changes_nothing(kind: type[Tracker], arguments: Any, message: str) -> None:
    tracker = kind()
    tracker.register(["a"], 1, 2)
    before = tracker.state_dict()
    with pytest.raises(ValueError, match=message):
        tracker.register(*arguments)
    np.testing.assert_equal(tracker.state_dict(), before)


@BOTH
def test_sampling(kind: type[Tracker]) -> None:
    tracker = kind()
    tracker.register(["sure", "even"], [0, 50], [100, 100], mass=[8, 8])
    v = tracker.values(["sure", "even"])
    np.testing.assert_allclose(tracker.sampling_weights(), np.sqrt(v * (1 - v)) + 0.05, rtol=1e-15)
    np.testing.assert_array_equal(tracker.sampling_weights(["even"]), tracker.sampling_weights()[1:])
    assert tracker.sampling_weights(["even"])[0] == 0.55
    rng = np.random.default_rng(0)
    drawn = [tracker.sample(1, rng)[0] for _ in range(2000)]
    share = tracker.sampling_weights()[1] / tracker.sampling_weights().sum()
    assert abs(drawn.count("even") / 2000 - share) < 4 * np.sqrt(share * (1 - share) / 2000)
    assert tracker.sample(2, np.random.default_rng(1)) == tracker.sample(2, np.random.default_rng(1))
    assert tracker.sample(0, rng) == []
    for n in (3, -1):
        with pytest.raises(ValueError, match="registered tasks"):
            tracker.sample(n, rng)
    with pytest.raises(TypeError, match="numpy"):
        tracker.sample(1, np.random.RandomState(0))  # type: ignore[arg-type]


@BOTH
def test_state_round_trip(kind: type[Tracker], tmp_path: Path) -> None:
    tracker = used(kind)
    state = tracker.state_dict()
    other = kind()
    other.load_state_dict(pickle.loads(pickle.dumps(state)))
    np.testing.assert_equal(other.state_dict(), state)
    path = tmp_path / "tracker"
    tracker.save(path)
    loaded = kind.load(path)
    np.testing.assert_equal(loaded.state_dict(), state)
    assert repr(loaded) == repr(tracker)
    assert list(tmp_path.iterdir()) == [path]  # no temporary file is left


def test_tickets_are_completable_after_load(tmp_path: Path) -> None:
    tracker = used(PromptTracker)
    tracker.save(str(tmp_path / "t"))
    loaded = PromptTracker.load(str(tmp_path / "t"))
    assert loaded.in_flight == tracker.in_flight == {2: 1, 3: "1"}
    np.testing.assert_array_equal(loaded.complete([2, 3], [1, 0]), tracker.complete([2, 3], [1, 0]))
    np.testing.assert_array_equal(loaded.evidence([1, "1"]), tracker.evidence([1, "1"]))


@BOTH
def test_state_shares_nothing(kind: type[Tracker]) -> None:
    tracker = used(kind)
    before = tracker.values(["a"])
    state = tracker.state_dict()
    state["evidence"][:] = 0
    state["task_ids"].clear()
    np.testing.assert_array_equal(tracker.values(["a"]), before)


def spoiled_states(kind: type[Tracker]) -> list[tuple[str, Any]]:
    shared: list[tuple[str, Any]] = [
        ("kind", "StateTable"),
        ("schema", 99),
        ("task_ids", ["a", "a", "b", "c", "d"]),
        ("task_ids", ["a"]),
        ("task_ids", [True, 1.5, "a", "b", "c"]),
        ("task_ids", "abcde"),
        ("evidence", np.full((5, 3), 1.0)),
        ("evidence", [[1.0, 1.0]] * 5),
    ]
    if kind is ReceiptOrderTracker:
        return [
            *shared,
            ("rho_min", 2.0),
            ("d_half", "x"),
            ("evidence", np.full((5, 2), np.nan)),
            ("evidence", np.zeros((5, 2))),
        ]
    return [
        *shared,
        ("rho", 0.0),
        ("rho", None),
        ("publishes", -1),
        ("publishes", 2**70),
        ("next_ticket", 3),
        ("evidence", np.full((5, 4), np.nan)),
        ("evidence", np.full((5, 4), -1.0)),
        ("evidence", np.zeros((5, 4))),
        ("reference", np.full(5, 4, np.int64)),
        ("reference", np.zeros(5)),
        ("tickets", np.array([2, 2], np.int64)),
        ("tickets", np.array([2], np.int64)),
        ("ticket_task", np.array([0, 5], np.int64)),
        ("ticket_dispatched", np.array([0, -1], np.int64)),
        ("ticket_value", np.array([0.5, np.nan])),
    ]


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (kind, key, value)
        for kind in (PromptTracker, ReceiptOrderTracker)
        for key, value in spoiled_states(kind)
    ],
)
def test_malformed_state_is_refused(kind: type[Tracker], key: str, value: Any) -> None:
    state = used(kind).state_dict()
    tracker = kind()
    tracker.register(["z"], 1, 2)
    before = tracker.state_dict()
    with pytest.raises(ValueError, match="state"):
        tracker.load_state_dict({**state, key: value})
    with pytest.raises(ValueError, match=f"'{key}' is missing"):
        tracker.load_state_dict({k: v for k, v in state.items() if k != key})
    np.testing.assert_equal(tracker.state_dict(), before)


@BOTH
def test_every_truncation_and_every_flipped_bit_is_refused(kind: type[Tracker], tmp_path: Path) -> None:
    path = tmp_path / "tracker"
    used(kind).save(path)
    whole = path.read_bytes()
    damaged = [whole[:n] for n in range(len(whole))] + [whole + b"\0"]
    for i in range(len(whole)):
        flipped = bytearray(whole)
        flipped[i] ^= 1 << (i % 8)
        damaged.append(bytes(flipped))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="tracker: "):
            kind.load(path)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tracker"
    used(PromptTracker).save(path)
    with pytest.raises(
        ValueError, match="expected ReceiptOrderTracker of schema 1, got PromptTracker of schema 1"
    ):
        ReceiptOrderTracker.load(path)
    path.write_bytes(pickle.dumps({"kind": "PromptTracker"}))
    with pytest.raises(ValueError, match="does not begin like one"):
        PromptTracker.load(path)
    with pytest.raises(FileNotFoundError):
        PromptTracker.load(tmp_path / "none")


@BOTH
def test_failed_save_leaves_the_old_file(
    kind: type[Tracker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tracker"
    used(kind).save(path)
    old = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        kind().save(path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_bytes_reach_the_disk_before_the_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    sync, replace = os.fsync, os.replace

    def noted_sync(descriptor: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def noted_replace(source: Any, target: Any) -> None:
        events.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    used(PromptTracker).save(tmp_path / "tracker")
    assert events == ["file", "rename", "folder"]
