"""What the optional parts need, and the one line that says what to install."""

from __future__ import annotations

import importlib.util

MODULES = {
    "train": ("torch", "transformers", "safetensors", "jinja2", "tyro", "tqdm", "matplotlib"),
    "alfworld": ("alfworld", "textworld", "fast_downward"),
}
"""The modules that an extra of pyproject.toml brings."""


def require(what: str, extra: str) -> None:
    """Raises ImportError if a module of the extra is missing; imports none of them.

    Args:
        what: what needs it, as the message's subject.
        extra: a key of ``MODULES``.
    """
    missing = [name for name in MODULES[extra] if importlib.util.find_spec(name) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise ImportError(f"{what} needs {', '.join(missing)}, which {are} missing: {install_line(extra)}")


def install_line(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'spo_fast[{extra}]'"
