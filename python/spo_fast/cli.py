"""The command ``spo-fast``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from spo_fast._extras import require
from spo_fast.envs.alfworld import TextworldError

_USAGE = """usage: spo-fast COMMAND [OPTIONS]

commands:
  train   train a policy with SPO++ or SPO            (spo-fast train --help)
  eval    play a trained policy on games              (spo-fast eval --help)

--debug shows where an error came from.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status: 0, 1 for an error that one sentence says, 2 for wrong usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return 0 if arguments else 2
    command = _COMMANDS.get(arguments[0])
    if command is None:
        print(f"spo-fast: no command {arguments[0]!r}\n\n{_USAGE}", file=sys.stderr)
        return 2
    try:
        return command(arguments[1:])
    except (ImportError, OSError, ValueError, TextworldError) as error:
        if debug:
            raise
        print(f"spo-fast: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nspo-fast: stopped", file=sys.stderr)
        return 130


def _train(arguments: list[str]) -> int:
    require("spo-fast train", "train")
    from spo_fast.train import PRESETS, TrainConfig

    preset, arguments = _take_preset(arguments)
    if preset not in PRESETS:
        raise ValueError(f"--preset: expected one of {', '.join(PRESETS)}, got {preset!r}")
    config = _parse(
        TrainConfig,
        "train",
        f"Trains a policy. --preset {{{','.join(PRESETS)}}} names the defaults that the options change; "
        f"those below are of {preset!r}.",
        arguments,
        default=PRESETS[preset],
    ).with_output()
    from spo_fast.train import train  # PyTorch comes with it: not for a mere --help

    print(train(config).text())
    print(f"learning curve: {config.output}/learning_curve.png\npolicy:         {config.output}/model")
    return 0


def _take_preset(arguments: list[str]) -> tuple[str, list[str]]:
    """Removes --preset NAME from the arguments."""
    preset = "demo"
    rest = []
    it = iter(arguments)
    for argument in it:
        if argument == "--preset":
            preset = next(it, "")
        elif argument.startswith("--preset="):
            preset = argument.partition("=")[2]
        else:
            rest.append(argument)
    return preset, rest


def _eval(arguments: list[str]) -> int:
    require("spo-fast eval", "train")
    from spo_fast.train import EvalConfig

    config = _parse(
        EvalConfig,
        "eval",
        "Plays a run's policy on held-out games. Without options it repeats the evaluation that ended the run; "
        "None: as in the run.",
        arguments,
    )
    from spo_fast.train import evaluate_run

    print(evaluate_run(config).text())
    return 0


def _parse(kind: type, command: str, description: str, arguments: list[str], **options: Any) -> Any:
    """A settings dataclass from the command line; prints and exits with status 2 at wrong usage."""
    import tyro

    return tyro.cli(
        kind,
        prog=f"spo-fast {command}",
        description=description,
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagConversionOff, tyro.conf.PositionalRequiredArgs),
        **options,
    )


_COMMANDS = {"train": _train, "eval": _eval}
