"""The agent loop: observations in, commands out, many episodes at once, collected in the order they finish."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spo_fast.envs.protocol import Environment, Step, TaskSet
from spo_fast.rollout.chat import ChatFormat, parse_command
from spo_fast.rollout.engine import Engine, Generation


@dataclass(frozen=True)
class Request:
    """One rollout to be made. Numbers are given once and grow; they break ties between episodes that end together.

    Attributes:
        ticket: the prompt memory's receipt for the value frozen at dispatch; -1 where there is none.
        version: how many times the policy had been published when this was dispatched.
    """

    number: int
    task_id: str
    ticket: int = -1
    version: int = 0


@dataclass
class Trajectory:
    """One episode, as tokens.

    Attributes:
        token_ids: the whole conversation.
        action_mask: 1 where the policy generated the token; as long as ``token_ids``.
        logprobs: recorded at rollout, 0 where the mask is 0.
        outcome: in [0, 1]; for games 1 if won.
        finished_at: the engine's decode step at which the episode ended.
        truncated: the episode ended on a limit (steps or tokens), not by the environment's own end.
    """

    request: Request
    task_type: str
    token_ids: list[int] = field(default_factory=list)
    action_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    observations: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    reward: float = 0.0
    outcome: float = 0.0
    truncated: bool = False
    finished_at: int = 0

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Trajectory:
        """The inverse of ``dataclasses.asdict``."""
        return cls(**{**fields, "request": Request(**fields["request"])})

    @property
    def action_tokens(self) -> int:
        return sum(self.action_mask)


def outcome_of(reward: float, info: dict[str, Any]) -> float:
    """What the prompt memory files: ``info["won"]`` where the environment says it, else the return cut to [0, 1]."""
    if "won" in info:
        return float(bool(info["won"]))
    return float(min(max(reward, 0.0), 1.0))


class Collector:
    """Plays requests on an engine. An episode that ends frees its slot at once; nothing waits for the slowest.

    Args:
        max_tokens: an episode whose conversation could exceed this is cut (``truncated``).
        max_action_tokens: the longest turn; a longer one is cut and its text taken as the command.
    """

    def __init__(
        self, engine: Engine, tasks: TaskSet, chat: ChatFormat, *, max_tokens: int, max_action_tokens: int
    ):
        self._engine = engine
        self._tasks = tasks
        self._chat = chat
        self._max_tokens = max_tokens
        self._max_action_tokens = max_action_tokens
        self._running: dict[int, tuple[Environment, Trajectory]] = {}
        self.environment_steps = 0
        self.environment_seconds = 0.0

    @property
    def free_slots(self) -> int:
        return self._engine.free_slots

    @property
    def in_flight(self) -> list[Request]:
        return [trajectory.request for _, trajectory in self._running.values()]

    def start(self, request: Request) -> None:
        began = time.perf_counter()
        environment = self._tasks.make(request.task_id)
        observation, _ = environment.reset()
        self.environment_seconds += time.perf_counter() - began
        trajectory = Trajectory(request, self._tasks.task_type(request.task_id))
        prompt = self._chat.opening(observation)
        if len(prompt) + self._max_action_tokens > self._max_tokens:
            raise ValueError(
                f"max_tokens: task {request.task_id!r} opens with {len(prompt)} tokens, which with "
                f"{self._max_action_tokens} tokens of a first action exceeds {self._max_tokens}"
            )
        self._running[request.number] = (environment, trajectory)
        self._observe(trajectory, observation, prompt)

    def cancel(self, number: int) -> None:
        """Drops a request in flight."""
        del self._running[number]
        self._engine.release(number)

    def step(self) -> list[Trajectory]:
        """One decode step and what follows from it; the episodes that ended, by request number."""
        generations = self._engine.step()
        if not generations:
            return []
        running = [self._running[g.request] for g in generations]
        commands = []
        for generation, (_, trajectory) in zip(generations, running, strict=True):
            trajectory.token_ids += generation.token_ids
            trajectory.action_mask += [1] * len(generation.token_ids)
            trajectory.logprobs += generation.logprobs
            commands.append(parse_command(self._chat.text(generation.token_ids)))
        began = time.perf_counter()
        steps = self._tasks.step([environment for environment, _ in running], commands)
        self.environment_seconds += time.perf_counter() - began
        self.environment_steps += len(steps)
        ended = []
        for generation, (_, trajectory), command, step in zip(
            generations, running, commands, steps, strict=True
        ):
            trajectory.commands.append(command)
            if self._continue(generation, trajectory, step):
                continue
            trajectory.finished_at = self._engine.decode_steps
            del self._running[generation.request]
            self._engine.release(generation.request)
            ended.append(trajectory)
        return ended

    def _continue(self, generation: Generation, trajectory: Trajectory, step: Step) -> bool:
        observation, reward, terminated, truncated, info = step
        trajectory.reward += float(reward)
        trajectory.outcome = outcome_of(trajectory.reward, info)
        if terminated or truncated:
            trajectory.observations.append(observation)
            trajectory.truncated = truncated and not terminated
            return False
        tokens = self._chat.turn(observation, generation.token_ids)
        if len(trajectory.token_ids) + len(tokens) + self._max_action_tokens > self._max_tokens:
            trajectory.observations.append(observation)
            trajectory.truncated = True
            return False
        self._observe(trajectory, observation, tokens)
        return True

    def _observe(self, trajectory: Trajectory, observation: str, tokens: list[int]) -> None:
        trajectory.observations.append(observation)
        trajectory.token_ids += tokens
        trajectory.action_mask += [0] * len(tokens)
        trajectory.logprobs += [0.0] * len(tokens)
        self._engine.submit(trajectory.request.number, tokens, self._max_action_tokens)

    def drain(self) -> Iterator[Trajectory]:
        """Starts nothing and yields the episodes in flight as they end."""
        while self._running:
            yield from self.step()

    def play(self, requests: Iterable[Request]) -> Iterator[Trajectory]:
        """Plays all of these requests; yields episodes in the order they finish."""
        queue = iter(requests)
        exhausted = False
        while not exhausted or self._running:
            while not exhausted and self.free_slots:
                request = next(queue, None)
                if request is None:
                    exhausted = True
                else:
                    self.start(request)
            yield from self.step()
