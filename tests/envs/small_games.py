"""Hand-written games, small enough to check every sentence by eye."""

from __future__ import annotations

from typing import Any

from spo_fast.envs.alfworld import game_mapping

OBJECTS = {
    "apple_bar_1": "AppleType", "apple_bar_2": "AppleType", "butterknife_bar_1": "ButterKnifeType",
    "desklamp_bar_1": "DeskLampType", "mug_bar_1": "MugType", "pan_bar_1": "PanType", "plate_bar_1": "PlateType",
}  # fmt: skip
RECEPTACLES = {
    "cabinet_bar_1": ("CabinetType", "loc_bar_1"), "cabinet_bar_2": ("CabinetType", "loc_bar_1"),
    "countertop_bar_1": ("CounterTopType", "loc_bar_2"), "fridge_bar_1": ("FridgeType", "loc_bar_3"),
    "microwave_bar_1": ("MicrowaveType", "loc_bar_4"), "sidetable_bar_1": ("SideTableType", "loc_bar_5"),
    "sink_bar_1_bar_sinkbasin": ("SinkBasinType", "loc_bar_6"),
}  # fmt: skip
OPENABLE = ("cabinet_bar_1", "fridge_bar_1", "microwave_bar_1")
# An apple is in two receptacles at once, as objects of real games sometimes are; the plate's recorded location is
# not its receptacle's.
CONTENTS = {
    "apple_bar_1": ("countertop_bar_1", "cabinet_bar_2"), "apple_bar_2": ("fridge_bar_1",),
    "butterknife_bar_1": ("countertop_bar_1",), "desklamp_bar_1": ("sidetable_bar_1",),
    "mug_bar_1": ("cabinet_bar_2",), "pan_bar_1": ("countertop_bar_1",), "plate_bar_1": ("sidetable_bar_1",),
}  # fmt: skip
LOCATION = {
    "apple_bar_1": "loc_bar_2", "apple_bar_2": "loc_bar_3", "butterknife_bar_1": "loc_bar_2",
    "desklamp_bar_1": "loc_bar_5", "mug_bar_1": "loc_bar_1", "pan_bar_1": "loc_bar_2", "plate_bar_1": "loc_bar_2",
}  # fmt: skip

_IN = "(objectType ?o {object}) (receptacleType ?r {place}) (inReceptacle ?o ?r)"
GOALS = {
    "pick_and_place_simple": "(exists (?r - receptacle) (exists (?o - object) (and " + _IN + ")))",
    "pick_clean_then_place_in_recep": "(exists (?r - receptacle ?o - object) (and (cleanable ?o) (isClean ?o) " + _IN + "))",
    "pick_heat_then_place_in_recep": "(exists (?r - receptacle ?o - object) (and (heatable ?o) (isHot ?o) " + _IN + "))",
    "pick_cool_then_place_in_recep": "(exists (?r - receptacle ?o - object) (and (coolable ?o) (isCool ?o) " + _IN + "))",
    "pick_two_obj_and_place": "(exists (?r - receptacle ?o - object) (and " + _IN + " (exists (?p - object) (and (not (= ?o ?p)) (objectType ?p {object}) (inReceptacle ?p ?r)))))",
    "look_at_obj_in_light": "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot DeskLampType) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r))) (exists (?o - object ?a - agent) (and (objectType ?o {object}) (holds ?a ?o))))",
}  # fmt: skip


def problem(goal: str, extra: str = "") -> str:
    """The kitchen with that goal and more initial facts."""
    types = sorted(set(OBJECTS.values()) | {"KnifeType"})
    places = sorted({kind for kind, _ in RECEPTACLES.values()})
    spots = sorted({spot for _, spot in RECEPTACLES.values()} | {"loc_bar_0"})
    facts = [f"(objectType {name} {kind})" for name, kind in OBJECTS.items()]
    facts += [f"(objectAtLocation {name} {spot})" for name, spot in LOCATION.items()]
    facts += [f"(receptacleType {name} {kind})" for name, (kind, _) in RECEPTACLES.items()]
    facts += [f"(receptacleAtLocation {name} {spot})" for name, (_, spot) in RECEPTACLES.items()]
    facts += [f"(inReceptacle {name} {place})" for name, inside in CONTENTS.items() for place in inside]
    facts += [f"(openable {name})" for name in OPENABLE]
    facts += [f"(pickupable {name})" for name in OBJECTS if not name.startswith("desklamp")]
    facts += [
        f"({fact} {name})"
        for name in ("apple_bar_1", "apple_bar_2")
        for fact in ("cleanable", "heatable", "coolable", "sliceable")
    ]
    facts += [
        "(toggleable desklamp_bar_1)",
        "(isReceptacleObject pan_bar_1)",
        "(atLocation agent1 loc_bar_0)",
    ]
    facts += [
        f"(canContain {place} {kind})"
        for place in places
        for kind in types
        if (place, kind) != ("SideTableType", "PanType")
    ]
    lines = "\n    ".join(facts)
    return f"""(define (problem kitchen)
  (:domain alfred)
  (:objects agent1 - agent {" ".join(OBJECTS)} - object {" ".join(RECEPTACLES)} - receptacle
    {" ".join(types)} - otype {" ".join(places)} - rtype {" ".join(spots)} - location)
  (:init (= (total-cost) 0)
    {lines}
    {extra})
  (:goal {goal}))
"""  # fmt: skip


def kitchen(task_type: str = "pick_and_place_simple", object_: str = "AppleType", place: str = "SideTableType", extra: str = "") -> dict[str, Any]:  # fmt: skip
    """A game of that task in the kitchen."""
    goal = GOALS[task_type].replace("{object}", object_).replace("{place}", place)
    return game_mapping(
        problem(goal, extra), f"{task_type} {object_} {place}", id=f"train/{task_type}/kitchen"
    )
