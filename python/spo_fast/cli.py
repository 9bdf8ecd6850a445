"""The command ``spo-fast``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_USAGE = """usage: spo-fast COMMAND [OPTIONS]

commands:
  train   train a policy with SPO++ or SPO            (spo-fast train --help)
  eval    play a trained policy on games              (spo-fast eval --help)
"""


def main(argv: Sequence[str] | None = None) -> int:
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
    except ImportError as error:
        if debug:
            raise
        print(f"spo-fast: {error}\ninstall what is missing: pip install 'spo-fast[train]'", file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        if debug:
            raise
        print(f"spo-fast: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nspo-fast: stopped", file=sys.stderr)
        return 130


def _train(arguments: list[str]) -> int:
    import tyro

    from spo_fast.train.config import PRESETS, TrainConfig

    preset, arguments = _take_preset(arguments)
    if preset not in PRESETS:
        raise ValueError(f"--preset: expected one of {', '.join(PRESETS)}, got {preset!r}")
    config = tyro.cli(
        TrainConfig,
        prog="spo-fast train",
        description="Trains a policy; --preset {"
        + ",".join(PRESETS)
        + "} names the defaults that options change.",
        args=arguments,
        default=PRESETS[preset],
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagConversionOff),
    )
    from spo_fast.train.trainer import train

    summary = train(config)
    print(summary.text())
    print(
        f"learning curve: {config.output / 'learning_curve.png'}\npolicy:         {config.output / 'model'}"
    )
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
    import tyro

    from spo_fast.train.evaluation import EvalConfig, evaluate_run

    config = tyro.cli(
        EvalConfig,
        prog="spo-fast eval",
        description="Plays a run's policy on held-out games.",
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagConversionOff),
    )
    print(evaluate_run(config))
    return 0


_COMMANDS = {"train": _train, "eval": _eval}
