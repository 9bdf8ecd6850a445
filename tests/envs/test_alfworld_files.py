"""Which games are accepted, what is said of the others, and games on disk."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from spo_fast.envs.alfworld import AlfworldGame, find_games, load_games, save_games
from tests.envs.small_games import GOALS, kitchen


def replaced(key: str, old: str, new: str, count: int = -1) -> dict[str, Any]:
    game = kitchen()
    assert old in game[key], old
    return {**game, key: game[key].replace(old, new, count)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(:action look", "; a comment (with a parenthesis\n(:action LOOK"),
        ("(and (openable ?r)\n                       (atLocation ?a ?l)", "(and (and (atLocation ?a ?l)) (and (openable ?r))"),
        (":precondition (atLocation ?a ?l)", ":precondition (and (atLocation ?a ?l))"),
        ("(receptacleType ?r MicrowaveType)", "(or (receptacleType ?r MicrowaveType))"),
        ("(:requirements :adl :action-costs :typing)", "(:requirements :adl)"),
        ("(:types agent location", "(:types location agent"),
        ("(full ?r - receptacle)", "(full ?r - receptacle) (unused ?r - receptacle)"),
        (":precondition ()", ":precondition (and)"),
    ],
)  # fmt: skip
def test_a_domain_that_means_the_same_is_accepted(old: str, new: str) -> None:
    AlfworldGame(replaced("pddl_domain", old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(domain alfred)", "(domain blocks)", "the domain is called 'blocks', expected 'alfred'"),
        ("?l - location, ?r", "?l - location ?r", "the action 'examineobject' has another precondition"),
        ("(:action look\n    :parameters (?a - agent", "(:action look\n    :parameters (?b - agent", "the action 'look' has another parameter list"),
        ("(not (isCool ?o))", "(isCool ?o)", "the action 'heatobject' has another effect"),
        ("(:action SliceObject", "(:action CutObject", "the action 'cutobject' is unknown"),
        ("(isSliced ?o - object)", "", "the predicate 'issliced' is missing"),
        ("(openable ?r - receptacle)", "(openable ?r - object)", "the predicate 'openable' has the argument types (object), expected (receptacle)"),
        ("rtype otype)", "rtype otype cat)", "the types differ"),
        ("(:functions", "(:constants", "the section ':constants' is not part"),
    ],
)  # fmt: skip
def test_another_domain_is_refused_with_what_differs(old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        AlfworldGame(replaced("pddl_domain", old, new))
    assert str(caught.value).startswith("domain of train/pick_and_place_simple/kitchen")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"move {o} to {r}"', '"put {o} in/on {r}"', "the action 'putobject' has the template 'put {o} in/on {r}', expected 'move {o} to {r}'"),
        ("You move the", "You put the", "the rule 'PutObject.feedback' gives other sentences"),
        ('"list_empty"', '"list_none"', "the rule 'list_empty' is missing"),
        ("action help", "action assist", "the action 'help' has no template"),
        ("Available commands", "Commands", "the action 'help' has the feedback"),
        ("Your task is to: ", "Please ", "the task reads 'Please pick"),
        ("AppleType SideTableType", "find #x#", "characters that the grammar would interpret"),
        ('"rhs": "You close', '"lhs": "You close', "needs a text 'rhs'"),
        ('action look {', 'action look', "expected '{'"),
        ('"intro": [', '"intro": ', "JSON"),
    ],
)  # fmt: skip
def test_another_grammar_is_refused_with_what_differs(old: str, new: str, message: str) -> None:
    with pytest.raises(
        ValueError, match=re.escape(message) if message != "JSON" else "rules from line 1, line"
    ) as caught:
        AlfworldGame(replaced("grammar", old, new, 1))
    assert str(caught.value).startswith("grammar of train/pick_and_place_simple/kitchen")


def test_a_grammar_may_say_more_and_be_laid_out_otherwise() -> None:
    game = kitchen()
    extra = '\n# a comment\naction Jump { template :: "jump"; feedback :: "#x#"; grammar :: """{"x": [{"rhs": "y"}]}"""; }\n'
    grammar = (
        game["grammar"].replace("holdsany(a:agent)", " holdsany( a:agent ) ").replace(";\n", " ;\n\n") + extra
    )
    AlfworldGame({**game, "grammar": grammar})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(pickupable mug_bar_1)", "(edible mug_bar_1)", "unknown predicate 'edible'"),
        ("(pickupable mug_bar_1)", "(pickupable mug_bar_1 pan_bar_1)", "'pickupable' takes 1 arguments, got 2"),
        ("(pickupable mug_bar_1)", "(pickupable mug_bar_7)", "'mug_bar_7' is not declared among the objects"),
        ("(pickupable mug_bar_1)", "(pickupable fridge_bar_1)", "'fridge_bar_1' as argument 1 of 'pickupable' is not of the type object"),
        ("(pickupable mug_bar_1)", "(atLocation agent1 loc_bar_3)", "the agent must be at exactly one location, not 2"),
        ("(pickupable mug_bar_1)", "(holds agent1 mug_bar_1)", "the agent must hold nothing, or one object and 'holdsAny'"),
        ("(pickupable mug_bar_1)", "(receptacleAtLocation fridge_bar_1 loc_bar_1)", "'fridge_bar_1' is at two locations"),
        ("(pickupable mug_bar_1)", "(pickupable (mug_bar_1))", "'' is not declared"),
        ("mug_bar_1", "mug1", "'mug1' is not an ALFWorld id"),
        ("mug_bar_1", "mug_minus_2_bar_1", "more than letters and digits"),
        ("- rtype", "- ctype", "has the unknown type 'ctype'"),
        (" - location)", ")", "has no type"),
        ("(:domain alfred)", "(:domain other)", "must be of the domain 'alfred'"),
        ("(:goal", "(:aim", "the section ':goal' is missing"),
        ("(objectType ?o AppleType)", "(objectType ?o PearType)", "'peartype' is not declared among the objects"),
        ("(objectType ?o AppleType)", "(objectType ?o SideTableType)", "'sidetabletype' is not a type of that kind"),
        ("(objectType ?o AppleType)", "(objectType ?x AppleType)", "'?x' is not a variable of the goal"),
        ("(objectType ?o AppleType)", "(not (isHot ?o))", "the goal uses 'not'"),
        ("(objectType ?o AppleType)", "(isClean ?o) (isHot ?o) (objectType ?o AppleType)", "more than one of clean, hot and cool"),
        ("(objectType ?o AppleType)", "(full ?r) (objectType ?o AppleType)", "asks something of the receptacle"),
        ("(inReceptacle ?o ?r)", "(objectAtLocation ?o ?r)", "'?r' has the wrong type"),
        ("(inReceptacle ?o ?r)", "(wasInReceptacle ?o ?r)", "neither for an object in a receptacle nor for one in hand"),
        ("(:init", "(:init " + "(" * 100, "nested deeper than 64 levels"),
        ("(:init", ")(:init", "text after the closing parenthesis"),
        ("(:init", "(:init \u00e9", "not printable ASCII"),
    ],
)  # fmt: skip
def test_a_malformed_problem_is_refused_with_its_place(old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        AlfworldGame(replaced("pddl_problem", old, new))
    assert str(caught.value).startswith("problem of train/pick_and_place_simple/kitchen")


def test_messages_name_the_line() -> None:
    with pytest.raises(ValueError, match=r"kitchen, line 61: unknown predicate 'edible'"):
        lines = kitchen()["pddl_problem"].split("\n")
        lines[60] = "(edible mug_bar_1)"
        AlfworldGame({**kitchen(), "pddl_problem": "\n".join(lines)})


def test_other_goals_of_the_planner_are_refused() -> None:
    plain = GOALS["pick_and_place_simple"].format(object="AppleType", place="SideTableType")
    movable = "(exists (?r - receptacle ?o - object ?p - object) (and (objectType ?o AppleType) (receptacleType ?r SideTableType) (inReceptacle ?o ?r) (inReceptacleObject ?o ?p)))"
    three = plain.replace(
        "(inReceptacle ?o ?r)", "(inReceptacle ?o ?r) (exists (?p - object) (inReceptacle ?p ?r))"
    )
    for goal, message in (
        (movable, "relates things by 'inreceptacleobject'"),
        (three, "not for two distinct ones"),
        ("(and)", "neither"),
    ):
        with pytest.raises(ValueError, match=message):
            AlfworldGame(replaced("pddl_problem", plain, goal))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: the JSON ends too early"),
        (b'{"pddl_domain": "x",\n "grammar": "y', "line 2: a string has no end"),
        (b'{"pddl_domain": "\xff"}', "invalid UTF-8"),
        (b'{"pddl_domain": "\xed\xa0\x80"}', "invalid UTF-8"),
        (b'{"pddl_domain": "\\ud800"}', "half of a surrogate pair"),
        (b'{"a": 1, "a": 2}', "the name 'a' appears twice"),
        (b"[" * 100_000, "nested deeper than 64 levels"),
        (b"{}", "the member 'pddl_domain' is missing"),
        (b'{"pddl_domain": 3}', "the member 'pddl_domain' is missing or not a text"),
        (b"[1, 01]", "a number starts with 0"),
        (b"{} x", "text after the end"),
        (b" " * (17 << 20), "bytes are no game"),
    ],
)
def test_a_malformed_file_is_refused_with_its_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "game.tw-pddl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        AlfworldGame(path)
    assert str(path) in str(caught.value)


def test_every_truncation_of_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "game.tw-pddl"
    content = json.dumps(kitchen()).encode()
    for size in range(0, len(content) - 1, 97):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError):
            AlfworldGame(path)


def test_a_mapping_needs_its_members() -> None:
    with pytest.raises(ValueError, match="expected a str under 'grammar', got NoneType"):
        AlfworldGame({**kitchen(), "grammar": None})
    with pytest.raises(ValueError, match="not valid Unicode"):
        AlfworldGame({**kitchen(), "grammar": "\ud800"})
    with pytest.raises(ValueError, match="the task_type says 'cook'"):
        AlfworldGame({**kitchen(), "task_type": "cook"})


def test_saved_games_load_and_play_alike(tmp_path: Path) -> None:
    games = [
        {**kitchen(task, extra=extra), "id": f"{split}/{task}-x/trial_{number}", "walkthrough": ["look"], "pddl_params": {"object_target": "Apple"}}
        for number, (split, task, extra) in enumerate([("train", "pick_and_place_simple", ""), ("valid_seen", "pick_two_obj_and_place", "(isHot mug_bar_1)")])
    ]  # fmt: skip
    paths = save_games(games, tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == [
        f"json_2.1.1/{game['id']}/game.tw-pddl" for game in games
    ]
    assert json.loads(paths[1].with_name("traj_data.json").read_text()) == {"task_id": "trial_1", "task_type": "pick_two_obj_and_place", "pddl_params": {"object_target": "Apple"}}  # fmt: skip
    assert json.loads(paths[0].read_text())["walkthrough"] == ["look"]
    assert sorted(p.name for p in paths[0].parent.iterdir()) == ["game.tw-pddl", "traj_data.json"]
    loaded = load_games(tmp_path)
    assert [game.id for game in loaded] == [game["id"] for game in games]
    assert loaded[0].reset()[0] == AlfworldGame(games[0]).reset()[0] and loaded[0].gamefile == str(paths[0])
    assert [game.state_key for game in loaded] == [AlfworldGame(game).state_key for game in games]
    assert find_games(tmp_path, "train") == [paths[0]] and find_games(
        tmp_path / "json_2.1.1" / "train", "train"
    ) == [paths[0]]


def test_games_that_alfworld_does_not_offer_are_left_out(tmp_path: Path) -> None:
    names = (
        "train/pick-Mug/t0",
        "train/pick-Mug/t1",
        "train/pick_movable-Mug/t2",
        "train/pick-AppleSliced/t3",
    )
    kept, unsolvable, *_ = save_games([{**kitchen(), "id": name} for name in names], tmp_path)
    unsolvable.write_text(json.dumps({**json.loads(unsolvable.read_text()), "solvable": False}))
    assert find_games(tmp_path) == [kept]
    unmarked = {"pddl_problem": 'not "solvable": false in itself'}
    kept.write_text(json.dumps({**json.loads(kept.read_text()), **unmarked}))
    assert find_games(tmp_path) == [kept]


def test_folders_without_games_say_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        load_games(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"no game\.tw-pddl under"):
        load_games(tmp_path)
    with pytest.raises(ValueError, match="split: expected one of train, valid_seen, valid_unseen"):
        load_games(tmp_path, "test")
    save_games([kitchen()], tmp_path)
    with pytest.raises(FileNotFoundError, match="of the split 'valid_seen'"):
        load_games(tmp_path, "valid_seen")


@pytest.mark.parametrize("name", ["../../x", "train/../x", "train/x", "test/x/y", "train//y", None])
def test_games_are_saved_only_under_an_id_of_the_layout(tmp_path: Path, name: str | None) -> None:
    with pytest.raises(ValueError, match="expected an id 'split/task/trial'"):
        save_games([kitchen(), {**kitchen(), "id": name}], tmp_path)
    with pytest.raises(ValueError, match="appears twice"):
        save_games([kitchen(), kitchen()], tmp_path)
    assert not list(tmp_path.iterdir())
