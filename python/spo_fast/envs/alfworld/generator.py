"""Makes ALFWorld games: seeded rooms with plausible contents, and tasks that can be solved in them.

Random numbers come from ``random.Random.random`` alone, whose sequence Python keeps across versions and machines:
the same seed gives the same bytes everywhere.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from spo_fast.envs.alfworld.expert import expert_plan
from spo_fast.envs.alfworld.game import SPLITS, TASK_TYPES, AlfworldGame, game_mapping
from spo_fast.envs.alfworld.rooms import (
    CLEANABLE,
    COOLABLE,
    HEATABLE,
    HOMES,
    LAMPS,
    OPENABLE,
    RECEPTACLE_OBJECTS,
    ROOMS,
    SLICEABLE,
)

__all__ = ["generate_games"]

_T = TypeVar("_T")

# task type -> (objects it may ask for, rooms it may be set in, ways of saying it)
_TREATED = ("kitchen", "bathroom")
_TASKS: dict[str, tuple[frozenset[str] | None, tuple[str, ...], tuple[str, ...]]] = {
    "pick_and_place_simple": (None, tuple(ROOMS), ("put a {o} in {r}.", "put some {o} on {r}.")),
    "look_at_obj_in_light": (
        None,
        ("bedroom", "livingroom"),
        ("examine the {o} with the {l}.", "look at {o} under the {l}."),
    ),
    "pick_clean_then_place_in_recep": (
        CLEANABLE,
        _TREATED,
        ("put a clean {o} in {r}.", "clean some {o} and put it in {r}."),
    ),
    "pick_heat_then_place_in_recep": (
        HEATABLE,
        ("kitchen",),
        ("put a hot {o} in {r}.", "heat some {o} and put it in {r}."),
    ),
    "pick_cool_then_place_in_recep": (
        COOLABLE,
        ("kitchen",),
        ("put a cool {o} in {r}.", "cool some {o} and put it in {r}."),
    ),
    "pick_two_obj_and_place": (
        None,
        tuple(ROOMS),
        ("put two {o} in {r}.", "find two {o} and put them in {r}."),
    ),
}
# task type -> what the goal formula asks of the object
_CONDITIONS = {
    "pick_clean_then_place_in_recep": ("cleanable", "isClean"),
    "pick_heat_then_place_in_recep": ("heatable", "isHot"),
    "pick_cool_then_place_in_recep": ("coolable", "isCool"),
}
# the domain names these types, so every problem must declare them
_DOMAIN_RECEPTACLES = ("Fridge", "Microwave", "Sink", "SinkBasin")
_DOMAIN_OBJECTS = ("ButterKnife", "Knife")


class _Dice:
    """The draws that the generator needs, from uniform numbers alone."""

    def __init__(self, *name: object):
        digest = hashlib.blake2b("/".join(map(str, name)).encode(), digest_size=16).digest()
        self._random = Random(int.from_bytes(digest, "big"))

    def below(self, n: int) -> int:
        return int(self._random.random() * n)

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def pick(self, items: Sequence[_T], weights: Iterable[float] | None = None) -> _T:
        if weights is None:
            return items[self.below(len(items))]
        weights = list(weights)
        mark = self._random.random() * sum(weights)
        for item, weight in zip(items, weights, strict=True):
            mark -= weight
            if mark < 0:
                return item
        return items[-1]

    def shuffled(self, items: Iterable[_T]) -> list[_T]:
        out = list(items)
        for i in range(len(out) - 1, 0, -1):
            j = self.below(i + 1)
            out[i], out[j] = out[j], out[i]
        return out


@dataclass
class _Layout:
    """A room before it has ids: receptacle classes, and for each object its class and where it lies."""

    room: str
    receptacles: list[str]
    objects: list[tuple[str, int]] = field(default_factory=list)

    def split(self) -> str:
        """The split this layout belongs to: a hash of what it looks like decides, so splits share none."""
        places: list[list[str]] = [[] for _ in self.receptacles]
        for kind, place in self.objects:
            places[place].append(kind)
        looks = sorted(
            f"{r}:{','.join(sorted(things))}" for r, things in zip(self.receptacles, places, strict=True)
        )
        digest = hashlib.blake2b("|".join(looks).encode(), digest_size=8).digest()
        return ("train", "train", "valid_seen", "valid_unseen")[digest[0] % 4]

    def places_for(self, kind: str) -> list[int]:
        return [i for i, r in enumerate(self.receptacles) if r in HOMES[kind]]

    def put(self, kind: str, dice: _Dice, never: str = "") -> None:
        places = [i for i in self.places_for(kind) if self.receptacles[i] != never]
        self.objects.append((kind, dice.pick(places, (HOMES[kind][self.receptacles[i]] for i in places))))


@dataclass(frozen=True)
class _Task:
    task_type: str
    thing: str
    target: str  # "" for tasks without one
    lamp: str
    sentence: str


def generate_games(
    n: int,
    seed: int,
    task_types: Sequence[str] | None = None,
    split: str = "train",
    *,
    receptacles: tuple[int, int] = (8, 12),
    objects: tuple[int, int] = (12, 20),
    shared_locations: float = 0.0,
) -> list[dict[str, Any]]:
    """Games as mappings in the format of ``game.tw-pddl``; ``AlfworldGame`` and ``save_games`` take them.

    Task types take turns. Every game can be won: its ``walkthrough`` does, and the expert played it.

    Args:
        n: how many.
        seed: names the games; other seeds give other games.
        task_types: which of `TASK_TYPES`; None for all six.
        split: "train", "valid_seen" or "valid_unseen". No two splits share a layout (a room's receptacles and
            what lies in each), whatever the seeds.
        receptacles: least and most receptacles of a room.
        objects: least and most objects.
        shared_locations: probability that a receptacle stands where the previous one does, as in real games.

    Returns:
        mappings with pddl_domain, grammar, pddl_problem, solvable, walkthrough, task, and id
        ("split/task/trial"), task_type, pddl_params as ALFWorld's traj_data.json has them.

    Raises:
        ValueError: an argument out of range.
    """
    kinds = _checked(n, task_types, split, receptacles, objects, shared_locations)
    games = []
    for i in range(n):
        dice = _Dice("spo_fast games 1", seed, split, i)
        task_type = kinds[i % len(kinds)]
        while True:
            drawn = _draw(task_type, dice, receptacles, objects)
            if drawn is not None and drawn[0].split() == split:
                break
        games.append(_written(*drawn, dice, f"{seed}_{i:06d}", split, shared_locations))
    return games


def _checked(
    n: int,
    task_types: Sequence[str] | None,
    split: str,
    receptacles: tuple[int, int],
    objects: tuple[int, int],
    shared_locations: float,
) -> tuple[str, ...]:
    kinds = TASK_TYPES if task_types is None else tuple(task_types)
    faults = []
    if n < 0:
        faults.append(f"n: expected 0 or more, got {n}")
    unknown = [k for k in kinds if k not in TASK_TYPES]
    if unknown or not kinds:
        faults.append(f"task_types: expected some of {', '.join(TASK_TYPES)}, got {unknown or 'none'}")
    if split not in SPLITS:
        faults.append(f"split: expected one of {', '.join(SPLITS)}, got {split!r}")
    # fewer receptacles than 5 leave no room for a search; more than 15 are beyond the smallest room's classes
    if not 5 <= receptacles[0] <= receptacles[1] <= 15:
        faults.append(f"receptacles: expected 5 <= least <= most <= 15, got {receptacles}")
    if not 4 <= objects[0] <= objects[1] <= 60:
        faults.append(f"objects: expected 4 <= least <= most <= 60, got {objects}")
    if not 0 <= shared_locations < 1:
        faults.append(f"shared_locations: expected 0 <= p < 1, got {shared_locations}")
    if faults:
        raise ValueError("; ".join(faults))
    return kinds


def _draw(
    task_type: str, dice: _Dice, receptacles: tuple[int, int], objects: tuple[int, int]
) -> tuple[_Layout, _Task] | None:
    """A layout and a task in it; None where this draw's room has no place for such a task."""
    allowed, rooms, sentences = _TASKS[task_type]
    room = dice.pick(rooms)
    layout = _furnished(room, dice, dice.between(*receptacles))
    things = [
        o for o in ROOMS[room].objects if (allowed is None or o in allowed) and len(layout.places_for(o)) > 1
    ]
    if not things:
        return None
    thing, lamp, target = dice.pick(things), "", ""
    if task_type == "look_at_obj_in_light":
        lamp = "DeskLamp"
        if not layout.places_for(lamp):
            return None
        layout.put(lamp, dice)
        layout.put(thing, dice)
    else:
        places = sorted({layout.receptacles[i] for i in layout.places_for(thing)})
        target = dice.pick(places)
        if len(places) < 2:
            return None  # it could only lie where it is to go
        least = 2 if task_type == "pick_two_obj_and_place" else 1
        for _ in range(dice.between(least, least + 1)):
            layout.put(thing, dice, never=target)
    others = [o for o in ROOMS[room].objects if o != thing and layout.places_for(o)]
    count = dice.between(*objects)
    while len(layout.objects) < count:
        layout.put(dice.pick(others), dice)
    sentence = dice.pick(sentences).format(o=thing.lower(), r=target.lower(), l=lamp.lower())
    return layout, _Task(task_type, thing, target, lamp, sentence)


def _furnished(room: str, dice: _Dice, count: int) -> _Layout:
    kind = ROOMS[room]
    choices = dice.shuffled(r for r, most in kind.sometimes.items() for _ in range(most))
    return _Layout(room, [*kind.always, *choices[: max(0, count - len(kind.always))]])


def _written(
    layout: _Layout, task: _Task, dice: _Dice, trial: str, split: str, shared_locations: float
) -> dict[str, Any]:
    """The game's mapping; ids carry random coordinates, which decide the numbers in the texts."""
    number = dice.between(1, 30)
    name = f"{task.task_type}-{task.thing}-None-{task.target or task.lamp}-{layout.room}{number}"
    game_id = f"{split}/{name}/trial_G{trial}"
    mapping = game_mapping(
        _problem(layout, task, dice, f"trial_G{trial}", shared_locations),
        task.sentence,
        id=game_id,
        task_type=task.task_type,
        split=split,
        solvable=True,
        pddl_params={
            "mrecep_target": "",
            "object_sliced": False,
            "object_target": task.thing,
            "parent_target": task.target,
            "toggle_target": task.lamp,
        },
    )
    mapping["walkthrough"] = expert_plan(AlfworldGame(mapping))
    return mapping


def _coordinates(dice: _Dice) -> str:
    def one() -> str:
        return f"_bar__{dice.pick(('plus', 'minus'))}_{dice.below(4):02d}_dot_{dice.below(100):02d}"

    return one() + one() + one()


def _problem(layout: _Layout, task: _Task, dice: _Dice, trial: str, shared_locations: float) -> str:
    used: set[str] = set()

    def fresh_id(kind: str) -> str:
        # the basin of a sink is named after the sink
        stem, tail = (kind[:-5], f"_bar_{kind}") if kind in ("SinkBasin", "BathtubBasin") else (kind, "")
        while (made := stem + _coordinates(dice) + tail) in used:
            pass
        used.add(made)
        return made

    places = [fresh_id(r) for r in layout.receptacles]
    things = [fresh_id(o) for o, _ in layout.objects]
    spots: list[str] = []
    for i in range(len(places)):
        shared = i > 0 and dice.below(1_000_000) < shared_locations * 1_000_000
        spots.append(spots[-1] if shared else f"loc_bar_{i}_bar_{dice.below(10)}_bar_{dice.below(4)}_bar_30")
    start = f"loc_bar_{len(places)}_bar_0_bar_0_bar_30"
    facts = [f"(atLocation agent1 {start})"]
    for place, kind, spot in zip(places, layout.receptacles, spots, strict=True):
        facts.append(f"(receptacleType {place} {kind}Type)")
        facts.append(f"(receptacleAtLocation {place} {spot})")
        if kind in OPENABLE:
            facts.append(f"(openable {place})")
    for thing, (kind, at) in zip(things, layout.objects, strict=True):
        facts.append(f"(objectType {thing} {kind}Type)")
        facts.append(f"(inReceptacle {thing} {places[at]})")
        facts.append(f"(objectAtLocation {thing} {spots[at]})")
        facts += [f"({mark} {thing})" for mark, kinds in _MARKS.items() if kind in kinds]
        if kind not in LAMPS:
            facts.append(f"(pickupable {thing})")
    kinds = Counter(kind for kind, _ in layout.objects)
    for place_kind in sorted(set(layout.receptacles)):
        for kind in sorted(kinds):
            if kind not in LAMPS and place_kind in HOMES[kind]:
                facts.append(f"(canContain {place_kind}Type {kind}Type)")
    objects = [
        f"{name} - {sort}"
        for sort, names in _declared(layout, places, things, spots, start)
        for name in names
    ]
    return (
        f"(define (problem plan_{trial})\n(:domain alfred)\n(:objects\n" + "\n".join(objects) + "\n)\n"
        "(:init\n" + "\n".join(facts) + f"\n)\n(:goal {_goal(task)})\n)\n"
    )


_MARKS = {
    "isReceptacleObject": RECEPTACLE_OBJECTS,
    "cleanable": CLEANABLE,
    "heatable": HEATABLE,
    "coolable": COOLABLE,
    "sliceable": SLICEABLE,
    "toggleable": LAMPS,
}


def _declared(
    layout: _Layout, places: list[str], things: list[str], spots: list[str], start: str
) -> list[tuple[str, list[str]]]:
    object_kinds = {kind for kind, _ in layout.objects} | set(_DOMAIN_OBJECTS)
    return [
        ("agent", ["agent1"]),
        ("otype", [f"{kind}Type" for kind in sorted(object_kinds)]),
        ("rtype", [f"{kind}Type" for kind in sorted({*layout.receptacles, *_DOMAIN_RECEPTACLES})]),
        ("object", things),
        ("receptacle", places),
        ("location", [*dict.fromkeys(spots), start]),
    ]


def _goal(task: _Task) -> str:
    thing, target = f"{task.thing}Type", f"{task.target}Type"
    if task.task_type == "look_at_obj_in_light":
        return (
            "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location)"
            f" (and (objectType ?ot {task.lamp}Type) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l)"
            " (atLocation ?a ?l) (inReceptacle ?ot ?r)))"
            f" (exists (?o - object ?a - agent) (and (objectType ?o {thing}) (holds ?a ?o))))"
        )
    if task.task_type == "pick_two_obj_and_place":
        first, second = (
            f"(objectType ?o{i} {thing}) (receptacleType ?r {target}) (inReceptacle ?o{i} ?r)" for i in (1, 2)
        )
        return (
            f"(and (exists (?r - receptacle) (exists (?o1 - object) (and {first}"
            f" (exists (?o2 - object) (and (not (= ?o1 ?o2)) {second}))))))"
        )
    able, done = _CONDITIONS.get(task.task_type, ("", ""))
    conditions = f" ({able} ?o) ({done} ?o)" if able else ""
    return (
        f"(and (exists (?r - receptacle) (exists (?o - object) (and (inReceptacle ?o ?r) (objectType ?o {thing})"
        f" (receptacleType ?r {target}){conditions}))))"
    )
