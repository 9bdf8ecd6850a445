"""Reinforcement learning of language-model agents from single streams of rollouts.

``import spo_fast`` needs numpy alone. Names that need PyTorch are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# public name -> module that defines it
_LAZY = {
    "token_logprobs": "spo_fast.ops",
    "linear_token_logprobs": "spo_fast.ops",
    "policy_loss": "spo_fast.ops",
    "PolicyLossOutput": "spo_fast.ops",
    "SPOLoss": "spo_fast.ops",
    "normalize_advantages": "spo_fast.ops",
    "spo_advantages": "spo_fast.advantages.spo",
    "PromptTracker": "spo_fast.memory.prompt_tracker",
    "ReceiptOrderTracker": "spo_fast.memory.receipt_order_tracker",
    "StateTable": "spo_fast.memory.state_table",
    "StateDelta": "spo_fast.memory.state_table",
    "TrainConfig": "spo_fast.train.config",
}

__all__ = ["__version__", *_LAZY]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'spo_fast' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("spo_fast"):
            raise
        raise ImportError(
            f"spo_fast.{name} needs {error.name}, which is missing: pip install 'spo_fast[train]'"
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
