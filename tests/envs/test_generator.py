"""Generated games: seeded, solvable, plausible, apart between splits."""

import hashlib
import json
from collections import Counter

import pytest

from spo_fast.envs.alfworld import (
    SPLITS,
    TASK_TYPES,
    AlfworldGame,
    generate_games,
    load_games,
    save_games,
    vocabulary,
)
from spo_fast.envs.alfworld.rooms import HOMES, ROOMS


@pytest.fixture(scope="module")
def games():
    return {split: generate_games(120, 3, split=split) for split in SPLITS}


def test_the_same_seed_gives_the_same_bytes():
    """A fixed digest: neither the machine, nor Python's, nor numpy's version may change a game."""
    text = json.dumps(generate_games(6, 0), sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest() == (
        "66da893d84dd705155f4121a0830b68ddcc2ea550549655e4c1de371868fc05e"
    )
    assert json.dumps(generate_games(6, 0), sort_keys=True) == text
    assert json.dumps(generate_games(6, 1), sort_keys=True) != text


def test_a_longer_list_begins_with_the_shorter(games):
    assert games["train"][:7] == generate_games(7, 3)


def test_every_walkthrough_wins(games):
    for game in (g for split in SPLITS for g in games[split]):
        played = AlfworldGame(game)
        assert played.task_type == game["task_type"]
        _, info = played.reset()
        assert not info["won"]
        for command in game["walkthrough"]:
            _, _, terminated, _, info = played.step(command)
        assert terminated and info["won"]
        assert len(game["walkthrough"]) <= 15


def test_types_take_turns(games):
    assert [g["task_type"] for g in games["train"][:6]] == list(TASK_TYPES)
    assert set(Counter(g["task_type"] for g in games["valid_seen"]).values()) == {20}
    only = generate_games(4, 0, task_types=["pick_heat_then_place_in_recep"])
    assert {g["task_type"] for g in only} == {"pick_heat_then_place_in_recep"}


def layout(game):
    """What a room looks like, whatever the numbers: the classes in each receptacle."""
    played = AlfworldGame(game)
    contents = {
        i: [] for i in played.entities if any(f == ("receptacletype", i, f[-1]) for f in played.facts())
    }
    for name, *arguments in played.facts():
        if name == "inreceptacle":
            contents[arguments[1]].append(arguments[0].split("_bar_")[0])
    return tuple(sorted((r.split("_bar_")[0], *sorted(things)) for r, things in contents.items()))


def test_splits_share_no_layout_and_no_id(games):
    layouts = {split: {layout(g) for g in games[split]} for split in SPLITS}
    ids = [g["id"] for split in SPLITS for g in games[split]]
    assert len(set(ids)) == len(ids)
    for a in SPLITS:
        for b in SPLITS:
            assert a == b or not layouts[a] & layouts[b]


def test_rooms_have_the_asked_size(games):
    for game in games["train"]:
        kinds = Counter(f[0] for f in AlfworldGame(game).facts())
        assert 8 <= kinds["receptacletype"] <= 12
        assert kinds["objecttype"] <= 20
    for game in generate_games(6, 0, receptacles=(14, 15), objects=(30, 40)):
        kinds = Counter(f[0] for f in AlfworldGame(game).facts())
        assert 30 <= kinds["objecttype"] <= 40 and kinds["receptacletype"] >= 13


def test_objects_lie_where_they_can(games):
    for game in games["train"]:
        facts = AlfworldGame(game).facts()
        kind = {f[1]: f[2][:-4] for f in facts if f[0] in ("objecttype", "receptacletype")}
        homes = {o.lower(): {r.lower() for r in places} for o, places in HOMES.items()}
        for name, *arguments in facts:
            if name == "inreceptacle":
                assert kind[arguments[1]] in homes[kind[arguments[0]]]


def test_shared_locations():
    games = generate_games(12, 0, shared_locations=0.5)
    shared = 0
    for game in games:
        spots = [f[2] for f in AlfworldGame(game).facts() if f[0] == "receptacleatlocation"]
        shared += len(spots) - len(set(spots))
    assert shared > 12


def test_games_survive_the_disk(games, tmp_path):
    save_games(games["valid_unseen"][:12], tmp_path)
    loaded = load_games(tmp_path, "valid_unseen")
    assert {g.id for g in loaded} == {g["id"] for g in games["valid_unseen"][:12]}
    by_id = {g["id"]: g for g in games["valid_unseen"]}
    for game in loaded:
        assert game.reset()[0] == AlfworldGame(by_id[game.id]).reset()[0]


def test_tables_are_consistent():
    for room in ROOMS.values():
        receptacles = {*room.always, *room.sometimes}
        for thing in room.objects:
            assert set(HOMES[thing]) & receptacles, f"{thing} has no place"


def test_the_vocabulary_covers_all_texts(games):
    words = set(vocabulary())
    for game in games["train"][:40]:
        played = AlfworldGame(game)
        texts = [played.reset()[0]]
        for command in ["help", "look", "inventory", "nonsense", *game["walkthrough"], "examine x"]:
            texts += [command if command not in ("nonsense", "examine x") else "", played.step(command)[0]]
        for text in texts:
            spoken = "".join(c if c.isalnum() else " " for c in text.lower()).split()
            assert set(spoken) <= words, set(spoken) - words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(n=-1), "n: expected 0 or more, got -1"),
        (dict(split="test"), "split: expected one of train, valid_seen, valid_unseen, got 'test'"),
        (dict(task_types=["pick"]), "task_types: expected some of"),
        (dict(task_types=[]), "task_types: expected some of"),
        (dict(receptacles=(3, 4)), "receptacles: expected 5 <= least"),
        (dict(receptacles=(9, 8)), "receptacles: expected 5 <= least"),
        (dict(objects=(1, 2)), "objects: expected 4 <= least"),
        (dict(shared_locations=1.0), "shared_locations: expected 0 <= p < 1"),
    ],
)
def test_arguments_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        generate_games(**{"n": 1, "seed": 0, **arguments})
