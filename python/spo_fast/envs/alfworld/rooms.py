"""What rooms hold: our own tables over the class names of AI2-THOR's kitchens, bedrooms, living rooms and bathrooms.

Weights are plain judgement of where a thing is likely to lie; they place objects and order an expert's search.
"""

from __future__ import annotations

from dataclasses import dataclass

OPENABLE = frozenset({"Cabinet", "Drawer", "Fridge", "Microwave", "Safe"})
RECEPTACLE_OBJECTS = frozenset({"Bowl", "Box", "Cup", "Mug", "Pan", "Plate", "Pot"})
CLEANABLE = frozenset(
    "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Kettle Knife Ladle Lettuce Mug Pan Plate Pot Potato "
    "SoapBar Spatula Spoon Tomato".split()
)
HEATABLE = frozenset("Apple Bread Cup Egg Mug Plate Potato Tomato".split())
COOLABLE = frozenset("Apple Bowl Bread Cup Egg Lettuce Mug Pan Plate Pot Potato Tomato WineBottle".split())
SLICEABLE = frozenset("Apple Bread Egg Lettuce Potato Tomato".split())
LAMPS = frozenset({"DeskLamp", "FloorLamp"})


@dataclass(frozen=True)
class Room:
    """A kind of room.

    Attributes:
        always: receptacles that it has once.
        sometimes: further receptacles, each with its largest count.
        objects: what may lie around in it.
    """

    always: tuple[str, ...]
    sometimes: dict[str, int]
    objects: tuple[str, ...]


ROOMS: dict[str, Room] = {
    "kitchen": Room(
        always=("Fridge", "Microwave", "SinkBasin", "CounterTop"),
        sometimes={
            "Cabinet": 4, "Drawer": 3, "DiningTable": 1, "GarbageCan": 1, "CoffeeMachine": 1, "StoveBurner": 2,
            "Shelf": 2, "CounterTop": 1, "SideTable": 1,
        },
        objects=tuple(
            "Apple Bowl Bread ButterKnife Cup DishSponge Egg Fork Glassbottle Kettle Knife Ladle Lettuce Mug Pan "
            "PepperShaker Plate Pot Potato SaltShaker SoapBottle Spatula Spoon Tomato Vase WineBottle".split()
        ),
    ),
    "bathroom": Room(
        always=("Toilet", "SinkBasin", "CounterTop", "GarbageCan"),
        sometimes={
            "Cabinet": 4, "Drawer": 3, "Shelf": 2, "HandTowelHolder": 2, "BathtubBasin": 1, "SideTable": 1,
            "ToiletPaperHanger": 1, "Cart": 1, "SinkBasin": 1,
        },
        objects=tuple(
            "Candle Cloth DishSponge HandTowel SoapBar SoapBottle SprayBottle TissueBox ToiletPaper".split()
        ),
    ),
    "bedroom": Room(
        always=("Bed", "Desk", "Drawer"),
        sometimes={
            "Drawer": 4, "Shelf": 3, "SideTable": 2, "Dresser": 1, "GarbageCan": 1, "Safe": 1, "ArmChair": 1,
            "LaundryHamper": 1,
        },
        objects=tuple(
            "AlarmClock BaseballBat BasketBall Book Bowl Box CD CellPhone Cloth CreditCard KeyChain Laptop Mug Pen "
            "Pencil Pillow RemoteControl Statue TennisRacket Vase Watch".split()
        ),
    ),
    "livingroom": Room(
        always=("Sofa", "CoffeeTable", "ArmChair"),
        sometimes={
            "SideTable": 2, "Drawer": 3, "Shelf": 3, "Dresser": 1, "DiningTable": 1, "GarbageCan": 1, "Safe": 1,
            "Ottoman": 1, "Cabinet": 2, "ArmChair": 1,
        },
        objects=tuple(
            "Book Bowl Box Candle CellPhone CreditCard KeyChain Laptop Newspaper Pen Pencil Pillow Plate "
            "RemoteControl Statue TissueBox Vase Watch WateringCan".split()
        ),
    ),
}  # fmt: skip

# object class -> receptacle class -> weight; what is not listed cannot lie there
_FOOD = {"CounterTop": 4, "Fridge": 4, "DiningTable": 3, "SinkBasin": 2, "GarbageCan": 1, "SideTable": 1}
_HOT_FOOD = {**_FOOD, "Microwave": 2}
_CUTLERY = {"Drawer": 4, "CounterTop": 4, "DiningTable": 2, "SinkBasin": 2, "SideTable": 1}
_SPICE = {"Cabinet": 4, "CounterTop": 3, "Drawer": 2, "Shelf": 2, "DiningTable": 1, "SideTable": 1}
_SMALL = {
    "Drawer": 4,
    "Desk": 3,
    "SideTable": 3,
    "Dresser": 2,
    "Shelf": 2,
    "CoffeeTable": 2,
    "DiningTable": 1,
}
_POCKET = {**_SMALL, "Sofa": 1, "ArmChair": 1, "Ottoman": 1, "Safe": 1}
_STATIONERY = {**_SMALL, "GarbageCan": 1}
_ORNAMENT = {
    "Shelf": 4, "CoffeeTable": 2, "Dresser": 2, "SideTable": 2, "Desk": 1, "Safe": 1, "DiningTable": 1,
    "CounterTop": 1, "Cabinet": 1,
}  # fmt: skip
_SEAT = {"Sofa": 3, "ArmChair": 2, "Bed": 4, "Ottoman": 1}
_TOILETRY = {
    "CounterTop": 4,
    "Cabinet": 3,
    "Toilet": 2,
    "GarbageCan": 1,
    "Drawer": 1,
    "Shelf": 1,
    "Cart": 1,
    "SideTable": 1,
}

HOMES: dict[str, dict[str, int]] = {
    "AlarmClock": {"Desk": 3, "Shelf": 3, "SideTable": 3, "Dresser": 2},
    "Apple": _HOT_FOOD,
    "BaseballBat": {"Bed": 2, "SideTable": 1},
    "BasketBall": {"Bed": 2, "Desk": 2, "Dresser": 1, "SideTable": 1},
    "Book": {"Bed": 3, "Desk": 3, "Shelf": 2, "CoffeeTable": 2, "Dresser": 1, "Sofa": 1, "SideTable": 1, "ArmChair": 1, "Drawer": 1},
    "Bowl": {"Cabinet": 4, "CounterTop": 2, "Fridge": 2, "DiningTable": 2, "Desk": 2, "Shelf": 2, "SinkBasin": 1, "Microwave": 1, "SideTable": 1, "CoffeeTable": 1, "Dresser": 1},
    "Box": {"Sofa": 2, "CoffeeTable": 2, "DiningTable": 2, "Dresser": 1, "Shelf": 1, "Desk": 1, "ArmChair": 1, "Ottoman": 1, "SideTable": 1},
    "Bread": {"CounterTop": 5, "DiningTable": 3, "Fridge": 2, "SideTable": 1, "GarbageCan": 1, "Microwave": 1},
    "ButterKnife": _CUTLERY,
    "CD": {**_STATIONERY, "Safe": 1},
    "Candle": {"CounterTop": 3, "Toilet": 3, "Cabinet": 2, "Drawer": 1, "Shelf": 1, "SideTable": 1, "Cart": 1, "CoffeeTable": 1, "DiningTable": 1, "Dresser": 1},
    "CellPhone": {**_POCKET, "Bed": 2},
    "Cloth": {"BathtubBasin": 3, "Cabinet": 3, "Drawer": 2, "CounterTop": 2, "LaundryHamper": 2, "Toilet": 1, "SinkBasin": 1, "Shelf": 1, "GarbageCan": 1, "Cart": 1, "Desk": 1, "Dresser": 1, "SideTable": 1, "ArmChair": 1},
    "CreditCard": _POCKET,
    "Cup": {"Cabinet": 4, "CounterTop": 3, "Fridge": 2, "DiningTable": 2, "SinkBasin": 2, "Microwave": 1, "Shelf": 1, "SideTable": 1},
    "DeskLamp": {"Desk": 4, "SideTable": 3, "Shelf": 1, "Dresser": 1, "CoffeeTable": 1},
    "DishSponge": {"CounterTop": 3, "SinkBasin": 3, "Cabinet": 2, "Drawer": 2, "Shelf": 1, "GarbageCan": 1, "DiningTable": 1, "Toilet": 1, "BathtubBasin": 1, "Cart": 1},
    "Egg": _HOT_FOOD,
    "Fork": _CUTLERY,
    "Glassbottle": {"Cabinet": 3, "CounterTop": 3, "Fridge": 1, "DiningTable": 1, "Shelf": 1, "SinkBasin": 1, "Microwave": 1},
    "HandTowel": {"HandTowelHolder": 6, "CounterTop": 2, "Cabinet": 1, "Drawer": 1, "Shelf": 1, "BathtubBasin": 1, "Toilet": 1, "SinkBasin": 1, "Cart": 1, "GarbageCan": 1, "SideTable": 1},
    "Kettle": {"StoveBurner": 3, "CounterTop": 3, "Cabinet": 2, "DiningTable": 1, "SinkBasin": 1, "Shelf": 1, "SideTable": 1},
    "KeyChain": _POCKET,
    "Knife": _CUTLERY,
    "Ladle": {"CounterTop": 3, "Drawer": 2, "Cabinet": 2, "DiningTable": 1, "SinkBasin": 1},
    "Laptop": {"Desk": 4, "Bed": 3, "CoffeeTable": 2, "Sofa": 2, "DiningTable": 1, "Dresser": 1, "SideTable": 1, "ArmChair": 1, "Ottoman": 1},
    "Lettuce": _FOOD,
    "Mug": {"CounterTop": 3, "Cabinet": 3, "CoffeeMachine": 3, "Desk": 2, "Fridge": 1, "SinkBasin": 1, "Microwave": 1, "DiningTable": 1, "Shelf": 1, "SideTable": 1, "Dresser": 1},
    "Newspaper": {"CoffeeTable": 3, "Sofa": 2, "Dresser": 1, "ArmChair": 1, "DiningTable": 1, "Shelf": 1, "SideTable": 1, "Drawer": 1, "GarbageCan": 1, "Ottoman": 1, "Cabinet": 1},
    "Pan": {"StoveBurner": 4, "CounterTop": 2, "Cabinet": 2, "Fridge": 1, "DiningTable": 1, "SinkBasin": 1, "SideTable": 1},
    "Pen": _STATIONERY,
    "Pencil": _STATIONERY,
    "PepperShaker": _SPICE,
    "Pillow": _SEAT,
    "Plate": {"Cabinet": 4, "CounterTop": 2, "DiningTable": 2, "Fridge": 1, "Shelf": 1, "SinkBasin": 1, "CoffeeTable": 1, "Microwave": 1, "SideTable": 1},
    "Pot": {"StoveBurner": 4, "CounterTop": 2, "Cabinet": 1, "Fridge": 1, "DiningTable": 1, "SinkBasin": 1, "Shelf": 1, "SideTable": 1},
    "Potato": _HOT_FOOD,
    "RemoteControl": {"Sofa": 3, "CoffeeTable": 3, "ArmChair": 2, "Ottoman": 1, "SideTable": 1, "Drawer": 1, "Dresser": 1, "Shelf": 1, "Desk": 1, "DiningTable": 1},
    "SaltShaker": _SPICE,
    "SoapBar": {"CounterTop": 3, "SinkBasin": 2, "Toilet": 2, "BathtubBasin": 2, "Cabinet": 2, "Drawer": 1, "GarbageCan": 1, "Cart": 1, "Shelf": 1, "SideTable": 1},
    "SoapBottle": {**_TOILETRY, "DiningTable": 1},
    "Spatula": _CUTLERY,
    "Spoon": _CUTLERY,
    "SprayBottle": _TOILETRY,
    "Statue": _ORNAMENT,
    "TennisRacket": {"Bed": 2, "Desk": 1, "Dresser": 1, "SideTable": 1},
    "TissueBox": {"CoffeeTable": 2, "Shelf": 2, "Toilet": 2, "CounterTop": 2, "SideTable": 1, "DiningTable": 1, "Drawer": 1, "Cabinet": 1, "GarbageCan": 1, "Cart": 1},
    "ToiletPaper": {"ToiletPaperHanger": 4, "Toilet": 3, "Cabinet": 3, "CounterTop": 1, "Drawer": 1, "Shelf": 1, "GarbageCan": 1, "Cart": 1, "SideTable": 1},
    "Tomato": _HOT_FOOD,
    "Vase": _ORNAMENT,
    "Watch": {**_SMALL, "Safe": 1},
    "WateringCan": {"CoffeeTable": 2, "SideTable": 1, "Shelf": 1, "DiningTable": 1, "Drawer": 1, "Cabinet": 1, "Dresser": 1},
    "WineBottle": {"CounterTop": 3, "Cabinet": 2, "DiningTable": 2, "Fridge": 1, "GarbageCan": 1, "Shelf": 1, "SideTable": 1},
}  # fmt: skip

# Names that real games have beyond ours: a vocabulary for them must know these words too.
OTHER_NAMES = (
    "blinds boots chair curtains floorlamp footstool houseplant laundryhamperlid lightswitch mirror painting "
    "papertowelroll plunger poster scrubbrush showerdoor showerglass sink bathtub teddybear television toaster "
    "toiletpaperroll towel towelholder tvstand window stoveknob coffeemachine paintinghanger"
).split()
