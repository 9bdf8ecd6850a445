"""An expert for all six task types: plans that know the room, and demonstrations that must search it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spo_fast.envs.alfworld.game import AlfworldGame
from spo_fast.envs.alfworld.rooms import HOMES, ROOMS

__all__ = ["Demonstration", "demonstration", "expert_plan"]

# condition of the goal -> (verb, type of the receptacle that does it)
_TREATMENTS = {
    "isclean": ("clean", "sinkbasintype"),
    "ishot": ("heat", "microwavetype"),
    "iscool": ("cool", "fridgetype"),
}
_PLACES = sorted({r.lower() for room in ROOMS.values() for r in (*room.always, *room.sometimes)})
_PRIOR = {
    f"{thing.lower()}type": {f"{place.lower()}type": weight for place, weight in homes.items()}
    for thing, homes in HOMES.items()
}


@dataclass
class _Room:
    """A game's facts, by id."""

    names: dict[str, str]
    kind: dict[str, str] = field(default_factory=dict)
    location: dict[str, str] = field(default_factory=dict)
    contents: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    openable: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    holds: set[tuple[str, str]] = field(default_factory=set)
    marks: set[tuple[str, str]] = field(default_factory=set)
    agent: str = ""

    @classmethod
    def of(cls, game: AlfworldGame) -> _Room:
        room = cls(game.entities)
        for name, *arguments in game.facts():
            first, last = arguments[0], arguments[-1]
            if name in ("receptacletype", "objecttype"):
                room.kind[first] = last
            elif name == "receptacleatlocation":
                room.location[first] = last
            elif name == "inreceptacle":
                room.contents[last].add(first)
            elif name == "openable":
                room.openable.add(first)
            elif name == "opened":
                room.opened.add(first)
            elif name == "cancontain":
                room.holds.add((first, last))
            elif name == "atlocation":
                room.agent = last
            elif len(arguments) == 1:
                room.marks.add((name, first))
        return room

    @property
    def receptacles(self) -> list[str]:
        return sorted(self.location)

    def of_kind(self, kind: str) -> list[str]:
        return [r for r in self.receptacles if self.kind.get(r) == kind]


class _Hand:
    """Says commands to a game and keeps what was said."""

    def __init__(self, game: AlfworldGame, room: _Room):
        self.game, self.room = game, room
        self.commands: list[str] = []
        self.won = False

    def say(self, command: str) -> str:
        observation, _, self.won, _, _ = self.game.step(command)
        self.commands.append(command)
        return observation

    def go(self, receptacle: str) -> None:
        room = self.room
        if room.agent != room.location[receptacle]:
            self.say(f"go to {room.names[receptacle]}")
            room.agent = room.location[receptacle]

    def open(self, receptacle: str) -> None:
        room = self.room
        if receptacle in room.openable and receptacle not in room.opened:
            self.say(f"open {room.names[receptacle]}")
            room.opened.add(receptacle)

    def reach(self, receptacle: str) -> bool:
        """Goes there and opens it; whether that took a command, whose answer then showed what is in it."""
        said = len(self.commands)
        self.go(receptacle)
        self.open(receptacle)
        return len(self.commands) > said

    def take(self, thing: str, receptacle: str) -> None:
        names = self.room.names
        self.say(f"take {names[thing]} from {names[receptacle]}")
        self.room.contents[receptacle].discard(thing)

    def move(self, thing: str, receptacle: str) -> None:
        names = self.room.names
        self.say(f"move {names[thing]} to {names[receptacle]}")
        self.room.contents[receptacle].add(thing)

    def treat(self, thing: str, verb: str, receptacle: str) -> None:
        names = self.room.names
        self.say(f"{verb} {names[thing]} with {names[receptacle]}")

    def toggle(self, lamp: str) -> None:
        self.say(f"use {self.room.names[lamp]}")


def expert_plan(game: AlfworldGame | Mapping[str, Any] | str | os.PathLike[str]) -> list[str]:
    """Commands that win a game from its start, short but not proven shortest; for one who knows the room.

    Raises:
        ValueError: no plan of the expert's kind wins this game.
    """
    start = game if isinstance(game, AlfworldGame) else AlfworldGame(game)
    best: list[str] | None = None
    for steps in _plans(_Room.of(_fresh(start)), start):
        hand = _Hand(_fresh(start), _Room.of(_fresh(start)))
        _follow(hand, steps)
        if hand.won and (best is None or len(hand.commands) < len(best)):
            best = hand.commands
            if len(best) <= _SHORTEST[start.task_type]:
                break
    if best is None:
        raise ValueError(f"{start.id}: the expert finds no plan for {start.task!r}")
    return best


# No plan of the type is shorter when nothing lies at hand; the search for a shorter one ends there.
_SHORTEST = {
    "pick_and_place_simple": 4,
    "look_at_obj_in_light": 3,
    "pick_clean_then_place_in_recep": 6,
    "pick_heat_then_place_in_recep": 6,
    "pick_cool_then_place_in_recep": 6,
    "pick_two_obj_and_place": 8,
}


def _fresh(game: AlfworldGame) -> AlfworldGame:
    other = game.copy()
    other.reset()
    return other


def _follow(hand: _Hand, steps: list[tuple[str, ...]]) -> None:
    for verb, *arguments in steps:
        if hand.won:
            return
        getattr(hand, verb)(*arguments)


def _plans(room: _Room, game: AlfworldGame) -> Iterator[list[tuple[str, ...]]]:
    """Candidate plans as steps of `_Hand`, the cheaper first."""
    goal = game.goal
    places = [(thing, r) for r in room.receptacles for thing in sorted(room.contents[r])]
    things = [
        (thing, r)
        for thing, r in places
        if room.kind.get(thing) == goal.object_type and ("pickupable", thing) in room.marks
    ]
    # open shelves first: they save a step
    things.sort(key=lambda pair: pair[1] in room.openable)
    if goal.task_type == "look_at_obj_in_light":
        lamps = [
            (t, r)
            for t, r in places
            if room.kind.get(t) == goal.lamp_type and ("toggleable", t) in room.marks
        ]
        for lamp, stand in lamps:
            for thing, r in sorted(things, key=lambda pair: room.location[pair[1]] != room.location[stand]):
                yield [("go", r), ("open", r), ("take", thing, r), ("go", stand), ("toggle", lamp)]
        return
    assert goal.receptacle_type is not None
    targets = sorted(room.of_kind(goal.receptacle_type), key=lambda r: r in room.openable)
    treatments = [_TREATMENTS[c] for c in goal.conditions if c in _TREATMENTS]
    if goal.task_type == "pick_two_obj_and_place":
        yield from _plans_for_two(things, targets)
        return
    needed = [c for c in goal.conditions if c.endswith("able")]
    for thing, r in things:
        if any((c, thing) not in room.marks for c in needed):
            continue
        for target in targets:
            steps: list[tuple[str, ...]] = [("go", r), ("open", r), ("take", thing, r)]
            for verb, kind in treatments:
                tools = sorted(room.of_kind(kind), key=lambda tool: tool != r)
                if tools:
                    steps += [("go", tools[0]), ("treat", thing, verb, tools[0])]
            yield [*steps, ("go", target), ("open", target), ("move", thing, target)]


def _plans_for_two(things: list[tuple[str, str]], targets: list[str]) -> Iterator[list[tuple[str, ...]]]:
    for target in targets:
        there = [thing for thing, r in things if r == target]
        elsewhere = [(thing, r) for thing, r in things if r != target and thing not in there]
        for i, first in enumerate(elsewhere):
            for second in elsewhere[i + 1 :] if not there else [None]:
                steps: list[tuple[str, ...]] = []
                for pair in (first, second):
                    if pair is not None:
                        thing, r = pair
                        steps += [("go", r), ("open", r), ("take", thing, r)]
                        steps += [("go", target), ("open", target), ("move", thing, target)]
                yield steps


class _ClumsyHand(_Hand):
    """Now and then says something wrong first, and makes good what that changed."""

    def __init__(self, game: AlfworldGame, room: _Room, rng: np.random.Generator, rate: float):
        super().__init__(game, room)
        self._rng, self._rate = rng, rate
        self._wanted = game.goal.object_type
        self._full = False
        self.mistakes: list[bool] = []

    def say(self, command: str) -> str:
        if self._rng.random() < self._rate:
            self._blunder()
        return self._say(command)

    def _say(self, command: str, mistake: bool = False) -> str:
        observation = super().say(command)
        self.mistakes.append(mistake)
        if observation.startswith(("You pick up", "You move")):
            self._full = observation.startswith("You pick up")
        if self.won:
            raise _Won
        return observation

    def _pick(self, items: list[Any]) -> Any:
        return items[int(self._rng.integers(len(items)))]

    def _blunder(self) -> None:
        """Takes the wrong thing and puts it back, or names something that is not there."""
        room, chance = self.room, self._rng.random()
        wrong = [] if self._full or chance > 0.5 else self._wrong_things()
        here = [r for r in room.receptacles if room.location[r] == room.agent]
        if wrong:
            thing, place = (room.names[i] for i in self._pick(wrong))
            self._say(f"take {thing} from {place}", mistake=True)
            self._say(f"move {thing} to {place}")
        elif here and chance < 0.75:
            things = sorted(t for t in room.kind if t not in room.location)
            thing, place = self._pick(things), self._pick(here)
            if thing not in room.contents[place] or self._full:
                self._say(f"take {room.names[thing]} from {room.names[place]}", mistake=True)
        else:
            name = f"{self._pick(_PLACES)} {1 + int(self._rng.integers(3))}"
            if name not in room.names.values():
                self._say(f"go to {name}", mistake=True)

    def _wrong_things(self) -> list[tuple[str, str]]:
        """(thing, receptacle) within reach that the task does not ask for and that can be put back."""
        room = self.room
        return [
            (thing, r)
            for r in room.receptacles
            if room.location[r] == room.agent and (r not in room.openable or r in room.opened)
            for thing in sorted(room.contents[r])
            if ("pickupable", thing) in room.marks
            and room.kind.get(thing) != self._wanted
            and (room.kind.get(r, ""), room.kind.get(thing, "")) in room.holds
        ]


class _Searcher:
    """Acts on what it has seen: where things lie is known of a receptacle only once it has been looked into."""

    def __init__(self, hand: _Hand, rng: np.random.Generator, detours: float):
        self.hand, self.room, self.rng, self.detours = hand, hand.room, rng, detours
        self.seen: set[str] = set()
        self.last = ""
        self.done: set[str] = set()

    def look_into(self, receptacle: str) -> None:
        if not self.hand.reach(receptacle):  # it is here and open, but nothing has shown what is in it
            self.hand.say(f"examine {self.room.names[receptacle]}")
        self.seen.add(receptacle)
        self.last = receptacle

    def find(self, kind: str, mark: str) -> tuple[str, str]:
        """(thing, receptacle) of a thing of that kind, searching as long as none has been seen."""
        while True:
            known = [
                (thing, r)
                for r in self.room.receptacles
                if r in self.seen
                for thing in sorted(self.room.contents[r])
                if self.room.kind.get(thing) == kind
                and (mark, thing) in self.room.marks
                and thing not in self.done
            ]
            here = [pair for pair in known if self.room.location[pair[1]] == self.room.agent]
            if known:
                choices = here or known
                return choices[int(self.rng.integers(len(choices)))]
            self.look_into(self._next(kind))

    def _next(self, kind: str) -> str:
        """The next receptacle in the order of the room's description; at first and on a detour, a likely one."""
        unseen = [r for r in self.room.receptacles if r not in self.seen]
        if not unseen:
            raise _Lost
        if self.last and self.rng.random() >= self.detours:
            return next((r for r in unseen if r > self.last), unseen[0])
        prior = _PRIOR.get(kind, {})
        weights = np.array([prior.get(self.room.kind.get(r, ""), 0.0) + 0.02 for r in unseen], dtype=float)
        return unseen[int(self.rng.choice(len(unseen), p=weights / weights.sum()))]


class _Won(Exception):
    """The goal holds, perhaps before the last step: a cleaned pan that lies on two burners is still on the other."""


class _Lost(Exception):
    """Everything has been looked into, and the thing is not there."""


@dataclass(frozen=True)
class Demonstration:
    """Commands of which the last one wins; ``mistakes`` says which of them are not to be imitated."""

    commands: list[str]
    mistakes: list[bool]


def demonstration(
    game: AlfworldGame,
    rng: np.random.Generator,
    *,
    detours: float = 0.15,
    mistakes: float = 0.0,
    max_steps: int = 50,
) -> Demonstration | None:
    """An expert that must search: every choice follows from the task and what it has been shown.

    It looks into receptacles it has not seen, in the order of the room's description, and opens closed ones, until
    it has seen what the task asks for; what it saw on the way it remembers.

    Args:
        rng: breaks ties and draws the order of the search, so that demonstrations of one game differ.
        detours: probability that the search leaves that order for a place where the thing is likely.
        mistakes: probability that a command is preceded by a wrong one: an impossible one, or a wrong thing taken,
            which is then put back. Who imitates the rest learns to go on after mistakes of its own.
        max_steps: longest demonstration, in commands.

    Returns:
        the demonstration; None where the search found nothing or took too long.
    """
    hand = _ClumsyHand(_fresh(game), _Room.of(_fresh(game)), rng, mistakes)
    searcher = _Searcher(hand, rng, detours)
    try:
        _demonstrate(searcher, game)
    except _Lost:
        return None
    except _Won:
        if len(hand.commands) <= max_steps:
            return Demonstration(hand.commands, hand.mistakes)
    return None


def _demonstrate(searcher: _Searcher, game: AlfworldGame) -> None:
    hand, room, goal = searcher.hand, searcher.room, game.goal
    target = None
    if goal.receptacle_type is not None:
        targets = room.of_kind(goal.receptacle_type)
        if not targets:
            raise _Lost
        target = targets[int(searcher.rng.integers(len(targets)))]
    for _ in range(2 if goal.task_type == "pick_two_obj_and_place" else 1):
        thing, r = searcher.find(goal.object_type, "pickupable")
        hand.go(r)
        hand.take(thing, r)
        searcher.done.add(thing)
        for condition in goal.conditions:
            if condition in _TREATMENTS:
                verb, kind = _TREATMENTS[condition]
                tools = room.of_kind(kind)
                if not tools:
                    raise _Lost
                tool = tools[int(searcher.rng.integers(len(tools)))]
                hand.go(tool)
                hand.treat(thing, verb, tool)
        if target is None:
            assert goal.lamp_type is not None
            lamp, stand = searcher.find(goal.lamp_type, "toggleable")
            hand.go(stand)
            hand.toggle(lamp)
        else:
            if hand.reach(target):
                searcher.seen.add(target)
            hand.move(thing, target)
