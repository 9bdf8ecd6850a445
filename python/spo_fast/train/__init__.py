"""Training runs. Settings need no PyTorch; ``train`` and ``evaluate_run`` are loaded when first used."""

from __future__ import annotations

import importlib
from typing import Any

from spo_fast._extras import require
from spo_fast.train.config import PRESETS, EvalConfig, PlayConfig, ReportConfig, TrainConfig

# name -> module that defines it
_LAZY = {
    "train": "spo_fast.train.trainer",
    "resume": "spo_fast.train.trainer",
    "evaluate_run": "spo_fast.train.eval_run",
    "play": "spo_fast.train.play_game",
}

__all__ = ["PRESETS", "EvalConfig", "PlayConfig", "ReportConfig", "TrainConfig", *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'spo_fast.train' has no attribute {name!r}")
    require("training", "train")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
