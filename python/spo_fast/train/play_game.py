"""What ``spo-fast play`` does: a game in the terminal, played by a person or by a run's policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from spo_fast.envs.protocol import TaskSet
from spo_fast.train.config import PlayConfig, TaskConfig, TrainConfig
from spo_fast.train.run_folder import load_finished
from spo_fast.train.tasks import held_out_tasks, training_tasks

_HELP = "commands: a sentence of the game, ? for what is possible now, q to stop"


def play(
    config: PlayConfig, *, read: Callable[[str], str] = input, show: Callable[[str], None] = print
) -> bool:
    """Plays one game; returns whether it was won.

    Args:
        config: see ``PlayConfig``.
        read: asks a person for a line, given the prompt. EOFError stops the game.
        show: takes each text for the terminal.

    Raises:
        ValueError: a setting out of range, no finished run, no such game.
    """
    config.validate()
    run, split = _settings(config)
    tasks = (training_tasks if split == "train" else held_out_tasks)(run.tasks, run.seed)
    if config.game >= len(tasks.task_ids):
        raise ValueError(
            f"game: expected less than {len(tasks.task_ids)}, the number of games, got {config.game}"
        )
    task = tasks.task_ids[config.game]
    show(f"game {config.game} of {len(tasks.task_ids)}: {tasks.task_type(task)}\n")
    if config.policy is None:
        show(_HELP + "\n")
        return _loop(tasks, task, lambda observation, info: _ask(read, info, show), config, show)
    agent = _agent(config, run)
    next(agent)

    def command(observation: str, info: dict[str, Any]) -> str | None:
        said: str | None = agent.send(observation)
        if said is not None:
            show(f"> {said}")
        return said

    return _loop(tasks, task, command, config, show)


def _settings(config: PlayConfig) -> tuple[TrainConfig, str]:
    """The settings of the run whose policy plays, or the defaults; and which split is played."""
    run = TrainConfig(tasks=TaskConfig(eval_tasks=100, train_tasks=100))
    if config.policy is not None:
        run = load_finished("policy", config.policy)
    split = config.split or run.tasks.eval_split
    tasks: dict[str, Any] = {"eval_split": split} if split != "train" else {}
    if config.games is not None:
        tasks |= {"games": config.games, "train_tasks": 0, "eval_tasks": 0}
    if config.max_steps is not None:
        tasks["max_steps"] = config.max_steps
    seed = run.seed if config.seed is None else config.seed
    return dataclasses.replace(run, seed=seed, tasks=dataclasses.replace(run.tasks, **tasks)), split


def _ask(read: Callable[[str], str], info: dict[str, Any], show: Callable[[str], None]) -> str | None:
    """What a person types that is for the game; None to stop."""
    try:
        while (said := read("> ").strip()) == "?":
            show(_possible(info))
    except EOFError:
        return None
    return None if said in ("q", "quit") else said


def _loop(
    tasks: TaskSet,
    task: str,
    command_for: Callable[[str, dict[str, Any]], str | None],
    config: PlayConfig,
    show: Callable[[str], None],
) -> bool:
    """One episode; None for a command stops it."""
    environment = tasks.make(task)
    observation, info = environment.reset()
    show(observation)
    while True:
        if config.admissible:
            show(_possible(info))
        command = command_for(observation, info)
        if command is None:
            show("stopped")
            return False
        ((observation, _, terminated, truncated, info),) = tasks.step([environment], [command])
        show(observation)
        if terminated or truncated:
            won = bool(info.get("won", False))
            show("won" if won else "not won: the steps are used up" if truncated else "not won")
            return won


def _possible(info: dict[str, Any]) -> str:
    commands = info.get("admissible_commands")
    return (
        "possible now:\n  " + "\n  ".join(commands) if commands else "this game does not say what is possible"
    )


def _agent(config: PlayConfig, run: TrainConfig) -> Generator[Any, Any, None]:
    """A generator: send it observations, it yields the policy's commands; None once the conversation is too long."""
    from spo_fast.rollout.chat import ChatFormat, parse_command
    from spo_fast.rollout.transformers_engine import TransformersEngine
    from spo_fast.train.policy import load_policy

    assert config.policy is not None
    model, tokenizer = load_policy(Path(config.policy, "model"))
    chat = ChatFormat(tokenizer, run.policy.system_prompt)
    temperature = run.rollout.eval_temperature if config.temperature is None else config.temperature
    engine = TransformersEngine(
        model, stop_ids=chat.stop_ids, slots=1, temperature=temperature, seed=run.seed
    )
    tokens = chat.opening((yield))
    used = 0
    while used + len(tokens) + run.rollout.max_action_tokens <= run.rollout.max_tokens:
        engine.submit(0, tokens, run.rollout.max_action_tokens)
        while not (generations := engine.step()):
            pass
        said = generations[0].token_ids
        used += len(tokens) + len(said)
        tokens = chat.turn((yield parse_command(chat.text(said))), said)
    yield None
