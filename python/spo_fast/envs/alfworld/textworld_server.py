"""The public engine's games inside a worker process. Imported there only; see `textworld` for the other side."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

# Not alfworld.agents.environment.get_environment, whose other engines need torch and a simulator.
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
from textworld import EnvInfos
from textworld.envs.pddl import PddlEnv

__all__ = ["TextworldServer"]

# What an agent's commands can change and later texts can show, as in AlfworldGame.state_key.
_DYNAMIC = frozenset(
    "atlocation opened inreceptacle objectatlocation holds holdsany isclean ishot iscool istoggled issliced".split()
)


class TextworldServer:
    """Running games by number. Environments of closed games are used again: loading is half the cost of a game."""

    def __init__(self) -> None:
        self._running: dict[int, _Running] = {}
        self._idle: list[_Running] = []

    def open(self, number: int, name: str, source: str | Mapping[str, Any]) -> None:
        running = next((r for r in self._idle if r.source == source), None)
        if running is not None:
            self._idle.remove(running)
        else:
            running = self._idle.pop(0) if self._idle else _Running()
            running.load(name, source)
        self._running[number] = running

    def close(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if running := self._running.pop(number, None):
                running.state = None
                self._idle.append(running)

    def reset(self, number: int) -> tuple[str, bool, list[str]]:
        """Returns (observation, won, admissible commands)."""
        return self._running[number].reset()

    def step(self, moves: Sequence[tuple[int, str]]) -> list[tuple[str, float, bool, bool, list[str]]]:
        """Returns (observation, reward, done, won, admissible commands) of each game."""
        return [self._running[number].step(command) for number, command in moves]

    def state_key(self, number: int) -> bytes:
        return self._running[number].state_key()


class _Running:
    def __init__(self) -> None:
        infos = EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
        self._env = AlfredInfos(AlfredDemangler(PddlEnv(infos), shuffle=False))
        self.name = ""
        self.source: str | Mapping[str, Any] | None = None
        self.state: Any = None

    def load(self, name: str, source: str | Mapping[str, Any]) -> None:
        self.name, self.source, self.state = name, None, None
        try:
            self._env.load(source)
        except Exception as error:
            raise ValueError(f"{name}: the public engine cannot load it: {_said(error)}") from error
        self.source = source

    def reset(self) -> tuple[str, bool, list[str]]:
        try:
            self.state = self._env.reset()
        except Exception as error:
            raise RuntimeError(f"{self.name}: the public engine cannot start it: {_said(error)}") from error
        return self.state.feedback, bool(self.state.won), list(self.state.admissible_commands)

    def step(self, command: str) -> tuple[str, float, bool, bool, list[str]]:
        if self.state is None:
            self.reset()
        try:
            self.state, score, done = self._env.step(command)
        except Exception as error:
            raise RuntimeError(
                f"{self.name}: the public engine fails at {command!r}: {_said(error)}"
            ) from error
        state = self.state
        return state.feedback, float(score), bool(done), bool(state.won), list(state.admissible_commands)

    def state_key(self) -> bytes:
        if self.state is None:
            self.reset()
        facts = (fact for fact in self.state["_facts"] if fact.name in _DYNAMIC)
        texts = sorted(f"{fact.name}({','.join(v.name for v in fact.arguments)})" for fact in facts)
        return hashlib.blake2b("\n".join([self.name, *texts]).encode(), digest_size=16).digest()


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
