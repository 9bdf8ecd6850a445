"""The rules of the games, sentence by sentence, in a kitchen small enough to check by eye."""

from __future__ import annotations

import pickle
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spo_fast.envs.alfworld import TASK_TYPES, AlfworldGame, GameState
from tests.envs.small_games import GOALS, kitchen

NOTHING = "Nothing happens."


def play(game: AlfworldGame, *commands: str) -> list[str]:
    return [game.step(command)[0] for command in commands]


@pytest.fixture
def game() -> AlfworldGame:
    return AlfworldGame(kitchen())


def test_intro_lists_all_receptacles_by_id_with_descending_numbers(game: AlfworldGame) -> None:
    observation, info = game.reset()
    assert observation == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you "
        "see a cabinet 2, a cabinet 1, a countertop 1, a fridge 1, a microwave 1, a sidetable 1, and a sinkbasin 1."
        "\n\nYour task is to: pick_and_place_simple AppleType SideTableType"
    )
    assert info == {
        "admissible_commands": [
            "go to cabinet 1", "go to cabinet 2", "go to countertop 1", "go to fridge 1", "go to microwave 1",
            "go to sidetable 1", "go to sinkbasin 1", "help", "inventory", "look",
        ],
        "won": False,
        "gamefile": "train/pick_and_place_simple/kitchen",
    }  # fmt: skip


def test_intro_at_a_receptacle_faces_it() -> None:
    mapping = kitchen()
    mapping["pddl_problem"] = mapping["pddl_problem"].replace(
        "(atLocation agent1 loc_bar_0)", "(atLocation agent1 loc_bar_1)"
    )
    observation, _ = AlfworldGame(mapping).reset()
    assert "\n\nYou are facing the cabinet 2, and cabinet 1. Next to it, you see nothing.\n\n" in observation


def test_all_receptacles_of_a_place_are_usable_and_going_there_again_is_not_possible(
    game: AlfworldGame,
) -> None:
    assert play(
        game, "go to cabinet 2", "go to cabinet 1", "go to cabinet 2", "open cabinet 2", "examine cabinet 1"
    ) == [
        "You arrive at cabinet 2. The cabinet 2 is closed.",
        NOTHING,
        NOTHING,
        "You open the cabinet 2. The cabinet 2 is open. In it, you see nothing.",
        "On the cabinet 1, you see a apple 2, and a mug 1.",
    ]


def test_an_object_in_two_receptacles_stays_in_the_other(game: AlfworldGame) -> None:
    assert play(game, "go to countertop 1", "take apple 2 from countertop 1", "go to cabinet 1", "look") == [
        "You arrive at countertop 1. On the countertop 1, you see a apple 2, a butterknife 1, and a pan 1.",
        "You pick up the apple 2 from the countertop 1.",
        "You arrive at cabinet 1. On the cabinet 1, you see a apple 2, and a mug 1.",
        "You are facing the cabinet 2, and cabinet 1. Next to it, you see nothing.",
    ]
    assert (
        play(game, "move apple 2 to cabinet 1", "take apple 2 from cabinet 1", "inventory")[-1]
        == "You are carrying: a apple 2."
    )


def test_look_lists_what_was_taken_from_a_receptacle_here_and_lies_here(game: AlfworldGame) -> None:
    # The plate's recorded location is the countertop's: it survives the take, and is listed nowhere else.
    play(game, "go to cabinet 1", "open cabinet 2", "take mug 1 from cabinet 1", "move mug 1 to cabinet 2")
    assert play(game, "look") == ["You are facing the cabinet 2, and cabinet 1. Next to it, you see a mug 1."]
    play(game, "take mug 1 from cabinet 2", "move mug 1 to cabinet 1")
    assert play(game, "look") == ["You are facing the cabinet 2, and cabinet 1. Next to it, you see a mug 1."]


def test_take_needs_empty_hands_and_move_a_fitting_place(game: AlfworldGame) -> None:
    play(game, "go to countertop 1", "take pan 1 from countertop 1")
    assert play(game, "take apple 2 from countertop 1", "examine apple 2", "examine pan 1") == [
        NOTHING,
        NOTHING,
        "This is a normal pan 1. In it, you see nothing.",
    ]
    assert play(game, "go to sidetable 1", "move pan 1 to sidetable 1")[-1] == NOTHING


def test_heat_cool_clean_and_slice_describe_the_object(game: AlfworldGame) -> None:
    play(game, "go to countertop 1", "take butterknife 1 from countertop 1")
    assert play(game, "slice apple 2 with butterknife 1", "slice apple 1 with butterknife 1") == [
        "You sliced the apple 2 with the butterknife 1.",
        NOTHING,
    ]
    play(game, "move butterknife 1 to countertop 1", "take apple 2 from countertop 1")
    assert play(
        game, "examine apple 2", "go to fridge 1", "cool apple 2 with fridge 1", "examine apple 2",
        "go to microwave 1", "heat apple 2 with microwave 1", "examine apple 2", "cool apple 2 with fridge 1",
        "go to sinkbasin 1", "clean apple 2 with sinkbasin 1", "examine apple 2",
    ) == [
        "This is a sliced apple 2.", "You arrive at fridge 1. The fridge 1 is closed.",
        "You cool the apple 2 using the fridge 1.", "This is a cool sliced apple 2.",
        "You arrive at microwave 1. The microwave 1 is closed.", "You heat the apple 2 using the microwave 1.",
        "This is a hot sliced apple 2.", NOTHING, "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing.",
        "You clean the apple 2 using the sinkbasin 1.", "This is a hot and clean sliced apple 2.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ("", "There's nothing special about apple 2."),
        ("(isCool apple_bar_1)", "This is a cold apple 2."),
        ("(isCool apple_bar_1) (isClean apple_bar_1)", "This is a cool and clean apple 2."),
        ("(isHot apple_bar_1)", "This is a hot apple 2."),
        ("(isHot apple_bar_1) (isClean apple_bar_1)", "This is a hot and clean apple 2."),
        ("(isClean apple_bar_1)", "This is a clean apple 2."),
        ("(isClean apple_bar_1) (isSliced apple_bar_1)", "This is a clean sliced apple 2."),
        ("(isCool apple_bar_1) (isClean apple_bar_1) (isSliced apple_bar_1)", "This is a cool and clean sliced apple 2."),
        ("(isReceptacleObject apple_bar_1) (inReceptacleObject mug_bar_1 apple_bar_1)", "This is a normal apple 2. In it, you see a mug 1."),
    ],
)  # fmt: skip
def test_examine_object(facts: str, sentence: str) -> None:
    game = AlfworldGame(kitchen(extra=facts))
    assert (
        play(game, "go to countertop 1", "take apple 2 from countertop 1", "examine apple 2")[-1] == sentence
    )


def test_commands_are_stripped_but_otherwise_exact(game: AlfworldGame) -> None:
    assert (
        play(game, " \t\u00a0\u3000look\u2028\n", "Look", "go  to fridge 1", "", "\ud800", "help")[1:5]
        == [NOTHING] * 4
    )
    assert play(game, "\x1chelp")[0].startswith("Available commands:\n  look:  ")
    assert play(game, "help")[0].endswith("using a sharp object\n")
    assert game.steps == 8


WINS = {
    "pick_and_place_simple": ("go to countertop 1", "take apple 2 from countertop 1", "go to sidetable 1", "move apple 2 to sidetable 1"),
    "pick_clean_then_place_in_recep": ("go to countertop 1", "take apple 2 from countertop 1", "go to sinkbasin 1", "clean apple 2 with sinkbasin 1", "go to sidetable 1", "move apple 2 to sidetable 1"),
    "pick_heat_then_place_in_recep": ("go to countertop 1", "take apple 2 from countertop 1", "go to microwave 1", "heat apple 2 with microwave 1", "go to sidetable 1", "move apple 2 to sidetable 1"),
    "pick_cool_then_place_in_recep": ("go to countertop 1", "take apple 2 from countertop 1", "go to fridge 1", "cool apple 2 with fridge 1", "go to sidetable 1", "move apple 2 to sidetable 1"),
    "pick_two_obj_and_place": ("go to countertop 1", "take apple 2 from countertop 1", "go to sidetable 1", "move apple 2 to sidetable 1", "go to fridge 1", "open fridge 1", "take apple 1 from fridge 1", "go to sidetable 1", "move apple 1 to sidetable 1"),
    "look_at_obj_in_light": ("go to countertop 1", "take apple 2 from countertop 1", "go to sidetable 1", "use desklamp 1"),
}  # fmt: skip


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_the_goal_holds_exactly_at_the_end_of_its_plan(task_type: str) -> None:
    game = AlfworldGame(kitchen(task_type))
    assert game.task_type == game.goal.task_type == task_type
    *before, last = (game.step(command) for command in WINS[task_type])
    assert NOTHING not in [step[0] for step in (*before, last)]
    assert [step[1:3] for step in before] == [(0.0, False)] * len(before)
    assert last[1:4] == (1.0, True, False) and last[4]["won"]


def test_a_goal_can_be_undone_and_reached_again() -> None:
    game = AlfworldGame(kitchen(), max_steps=4)
    play(game, *WINS["pick_and_place_simple"][:3])
    assert game.step("move apple 2 to sidetable 1")[1:4] == (1.0, True, False)
    assert game.step("take apple 2 from sidetable 1")[1:4] == (0.0, False, True)
    assert game.step("move apple 2 to sidetable 1")[1:4] == (1.0, True, False)


def test_the_lamp_may_be_switched_on_before_the_object_is_taken() -> None:
    game = AlfworldGame(kitchen("look_at_obj_in_light", "PlateType"))
    assert (
        play(game, "go to sidetable 1", "use desklamp 1", "use desklamp 1")[1:]
        == ["You turn on the desklamp 1."] * 2
    )
    assert game.step("take plate 1 from sidetable 1")[1:3] == (1.0, True)
    assert game.step("go to fridge 1")[1:3] == (0.0, False)


def test_a_sliced_object_can_be_asked_for() -> None:
    goal = GOALS["pick_and_place_simple"].replace("(and ", "(and (sliceable ?o) (isSliced ?o) ")
    mapping = kitchen()
    plain = (
        GOALS["pick_and_place_simple"].replace("{object}", "AppleType").replace("{place}", "SideTableType")
    )
    sliced = goal.replace("{object}", "AppleType").replace("{place}", "SideTableType")
    mapping["pddl_problem"] = mapping["pddl_problem"].replace(plain, sliced)
    game = AlfworldGame(mapping)
    assert game.goal.conditions == ("sliceable", "issliced")
    assert not any(game.step(command)[2] for command in WINS["pick_and_place_simple"])


def test_truncation_counts_every_command() -> None:
    game = AlfworldGame(kitchen(), max_steps=2)
    assert [game.step("nonsense")[3] for _ in range(3)] == [False, True, True]
    game.reset()
    assert game.steps == 0 and not game.step("look")[3]
    assert not any(AlfworldGame(kitchen(), max_steps=None).step("look")[3] for _ in range(99))
    with pytest.raises(ValueError, match="max_steps must be at least 1"):
        AlfworldGame(kitchen(), max_steps=0)


def test_facts_and_entities_describe_the_state(game: AlfworldGame) -> None:
    play(game, "go to fridge 1", "open fridge 1", "take apple 1 from fridge 1")
    facts = set(game.facts())
    assert {
        ("holds", "agent1", "apple_bar_2"),
        ("holdsany", "agent1"),
        ("opened", "fridge_bar_1"),
        ("atlocation", "agent1", "loc_bar_3"),
    } <= facts
    assert ("inreceptacle", "apple_bar_2", "fridge_bar_1") not in facts
    assert ("objecttype", "apple_bar_2", "appletype") in facts and len(facts) == len(game.facts())
    assert (
        game.entities["apple_bar_2"] == "apple 1"
        and game.entities["sink_bar_1_bar_sinkbasin"] == "sinkbasin 1"
    )


def walk(game: AlfworldGame, rng: random.Random, steps: int) -> list[object]:
    info = {"admissible_commands": ["look"]}
    seen: list[object] = []
    for _ in range(steps):
        command = rng.choice([*info["admissible_commands"], "take mug 1 from cabinet 1"])
        step = game.step(command)
        info = step[4]
        seen.append((command, step, game.state_key))
    return seen


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), task_type=st.sampled_from(TASK_TYPES), before=st.integers(0, 40))
def test_restored_copied_and_pickled_games_go_the_same_way(seed: int, task_type: str, before: int) -> None:
    game = AlfworldGame(kitchen(task_type), max_steps=45)
    walk(game, random.Random(seed), before)
    state = game.snapshot()
    twin = game.copy()
    assert isinstance(twin, AlfworldGame) and twin.id == game.id and twin.snapshot() == state
    future = walk(game, random.Random(seed + 1), 20)
    assert walk(twin, random.Random(seed + 1), 20) == future
    saved: GameState = pickle.loads(pickle.dumps(state))
    assert saved == state and hash(saved) == hash(state)
    game.restore(saved)
    assert game.snapshot() == state and walk(game, random.Random(seed + 1), 20) == future


def test_state_and_key_differ_in_what_they_cover(game: AlfworldGame) -> None:
    start, key = game.snapshot(), game.state_key
    assert len(key) == 16
    game.step("nonsense")
    assert game.snapshot() != start and game.state_key == key  # the step count
    play(game, "go to cabinet 1")
    here, there = game.snapshot(), game.state_key
    play(game, "take mug 1 from cabinet 1", "open cabinet 2", "move mug 1 to cabinet 2", "take mug 1 from cabinet 2", "close cabinet 2", "move mug 1 to cabinet 1")  # fmt: skip
    assert game.state_key == there and game.snapshot() != here  # the take-history
    other = AlfworldGame(kitchen(extra="(isClean mug_bar_1)"))
    assert other.state_key != key
    with pytest.raises(ValueError, match="another game"):
        other.restore(start)
    assert AlfworldGame(kitchen()).state_key == key


def test_the_key_is_the_same_on_every_machine(game: AlfworldGame) -> None:
    assert game.state_key.hex() == "e28048e48bb11cd48960d607a65bed6e"


def test_damaged_states_are_refused(game: AlfworldGame) -> None:
    state = game.snapshot()
    saved = state.__getstate__()
    for damaged in (b"", saved[:-1], saved[:-8], b"x" + saved[1:], saved + bytes(8), saved[:-1] + b"\xff"):
        with pytest.raises(ValueError):
            broken = GameState.__new__(GameState)
            broken.__setstate__(damaged)
            game.restore(broken)
    assert game.snapshot() == state
