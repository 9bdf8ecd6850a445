"""The words of ALFWorld's texts."""

from __future__ import annotations

import re
from importlib import resources

from spo_fast.envs.alfworld.rooms import HOMES, OTHER_NAMES, ROOMS

__all__ = ["FILLER_WORDS", "vocabulary"]

# Words of observations and task sentences that no command uses and that tell nothing: a reader may skip them.
FILLER_WORDS = frozenset(
    "welcome textworld alfred you are in the middle of a an room looking quickly around it and your is some on at "
    "see under using".split()
)

# what the engine says beyond the grammar's sentences, and the verbs of task sentences
_OTHER_WORDS = (
    "nothing happens welcome to textworld alfred a and your task is put some on find two them hot cool clean heat "
    "examine look at under with it cold sliced"
).split()


def vocabulary(largest_number: int = 60) -> list[str]:
    """Every lower-case word, without punctuation, of observations, commands and task sentences.

    Args:
        largest_number: the highest number that names of things may carry.
    """
    grammar = (
        resources.files("spo_fast.envs.alfworld").joinpath("data/grammar.twl2").read_text(encoding="utf-8")
    )
    words = {word for word in re.findall(r"[a-z]+", grammar.lower()) if len(word) > 1}
    words |= {"a", "i", *_OTHER_WORDS, *OTHER_NAMES}
    words |= {name.lower() for name in HOMES}
    words |= {r.lower() for room in ROOMS.values() for r in (*room.always, *room.sometimes)}
    words |= {str(i) for i in range(largest_number + 1)}
    return sorted(words)
