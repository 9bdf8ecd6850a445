"""The command ``spo-fast``."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spo_fast._extras import require
from spo_fast.envs.alfworld import TextworldError

if TYPE_CHECKING:
    from spo_fast.train.config import TrainConfig
    from spo_fast.train.summary import Summary

_USAGE = """usage: spo-fast COMMAND [OPTIONS]

commands:
  train   train a policy with SPO++ or SPO            (spo-fast train --help)
  eval    play a trained policy on games              (spo-fast eval --help)
  report  write a run's report, or compare several    (spo-fast report --help)
  play    play a game, or watch a trained policy      (spo-fast play --help)
  doctor  what is installed, and what is missing

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
    except KeyboardInterrupt as stop:
        print(f"\nspo-fast: {str(stop) or 'stopped'}", file=sys.stderr)
        return 130


def _train(arguments: list[str]) -> int:
    require("spo-fast train", "train")
    from spo_fast.train import PRESETS, TrainConfig

    resumed, arguments = _take(arguments, "--resume")
    if resumed is not None:
        return _resume(resumed, arguments)
    preset, arguments = _take(arguments, "--preset")
    file, arguments = _take(arguments, "--config")
    if preset is not None and file is not None:
        raise ValueError("--preset, --config: expected one of them, got both")
    if file is None:
        preset = "demo" if preset is None else preset
        if preset not in PRESETS:
            raise ValueError(f"--preset: expected one of {', '.join(PRESETS)}, got {preset!r}")
        source, defaults = preset, PRESETS[preset]
    else:
        source, defaults = file, _read_config(Path(file))
    config = _parse(
        TrainConfig,
        "train",
        f"Trains a policy. --preset {{{','.join(PRESETS)}}} names the defaults that the options change, --config FILE "
        f"takes them from a run's config.json; those below are of {source!r}. --resume RUN goes on with a run that was "
        "stopped, as it was configured.",
        arguments,
        default=defaults,
    ).with_output()
    from spo_fast.train import train  # PyTorch comes with it: not for a mere --help

    assert config.output is not None
    _show(train(config), config.output)
    return 0


def _read_config(path: Path) -> TrainConfig:
    """A run's settings, without its output folder."""
    from spo_fast.train import TrainConfig

    try:
        return dataclasses.replace(TrainConfig.from_json(path.read_text(encoding="utf-8")), output=None)
    except ValueError as error:
        raise ValueError(f"--config: {path}: {error}") from error


def _resume(run: str, arguments: list[str]) -> int:
    if arguments:
        raise ValueError(
            f"--resume: a run goes on as it was configured; expected no other option, got {arguments[0]}"
        )
    from spo_fast.train import resume

    _show(resume(Path(run)), Path(run))
    return 0


def _show(summary: Summary, run: Path) -> None:
    print(summary.text())
    print(f"report: {run}/report.html\npolicy: {run}/model")


def _take(arguments: list[str], option: str) -> tuple[str | None, list[str]]:
    """(the value of ``option VALUE`` or ``option=VALUE``, None where it is not given; the other arguments)."""
    value = None
    rest = []
    it = iter(arguments)
    for argument in it:
        if argument == option:
            value = next(it, "")
        elif argument.startswith(f"{option}="):
            value = argument.partition("=")[2]
        else:
            rest.append(argument)
    if value == "":
        raise ValueError(f"{option}: expected a value, got none")
    return value, rest


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


def _report(arguments: list[str]) -> int:
    require("spo-fast report", "train")
    from spo_fast.train import ReportConfig

    config = _parse(
        ReportConfig,
        "report",
        "Writes RUN/report.html, or with several runs a page that compares them.",
        arguments,
    )
    if not config.runs:
        raise ValueError("runs: expected the folder of a run, or of several, got none")
    from spo_fast.train.report import write_comparison, write_report

    (first, *others) = config.runs
    print(write_comparison(config.runs, config.output) if others else write_report(first))
    return 0


def _play(arguments: list[str]) -> int:
    require("spo-fast play", "train")
    from spo_fast.train import PlayConfig

    config = _parse(PlayConfig, "play", "Plays a game in the terminal.", arguments)
    from spo_fast.train import play

    play(config)
    return 0


def _doctor(arguments: list[str]) -> int:
    if arguments:
        print("usage: spo-fast doctor", file=sys.stdout if arguments[0] in ("-h", "--help") else sys.stderr)
        return 0 if arguments[0] in ("-h", "--help") else 2
    from spo_fast.doctor import examine

    findings = examine()
    for finding in findings:
        print(finding)
    return 0 if all(finding.good for finding in findings if finding.needed) else 1


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


_COMMANDS = {"train": _train, "eval": _eval, "report": _report, "play": _play, "doctor": _doctor}
