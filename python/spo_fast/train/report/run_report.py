"""The page of one run, RUN/report.html."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from spo_fast.train.evaluation import paired_difference
from spo_fast.train.report.charts import charts
from spo_fast.train.report.logs import Evaluation, RunLogs, Table, load_run
from spo_fast.train.report.page import write_page
from spo_fast.train.report.plot import style
from spo_fast.train.report.statistics import Difference
from spo_fast.train.report.wording import (
    count,
    duration,
    percent,
    points,
    points_interval,
    rate_interval,
    signed,
)
from spo_fast.train.summary import area_under_curve

REFRESH_SECONDS = 20
_TRANSCRIPTS = 12
_STRONG_ADVANTAGE = 2.0  # in deviations; from here on the colour is full


def write_report(run: Path) -> Path:
    """Writes RUN/report.html, one file that needs no other and no network. Until the run ends it reloads itself.

    Args:
        run: a run folder. Logs that are missing or short are named on the page as not there yet.

    Returns:
        the page's path.

    Raises:
        ValueError: the folder holds no run, or a file of it is damaged; names the file.
    """
    logs = load_run(run)
    with style():
        pictures = charts(logs)
    shown, left_out = _spread(logs.transcripts.rows)
    updates = logs.config.optimisation.updates
    return write_page(
        run / "report.html",
        "report.html.jinja",
        title=f"{logs.config.algorithm}, seed {logs.config.seed}: {logs.name}",
        heading=f"{_ALGORITHMS[logs.config.algorithm]}, seed {logs.config.seed}",
        lead=_lead(logs),
        refresh=None if logs.summary else REFRESH_SECONDS,
        progress=100 * logs.steps_done / updates if updates else 100,
        tiles=_tiles(logs),
        charts=pictures,
        rates=_rates(logs),
        transcripts=[_transcript(row, logs.transcripts, line) for line, row in shown],
        transcripts_left_out=left_out,
        config=_flat(dataclasses.asdict(logs.config)),
        footer=f"Written by spo-fast report from the logs in {logs.folder}.",
    )


_ALGORITHMS = {"spo++": "SPO++", "spo": "SPO"}


def _lead(logs: RunLogs) -> str:
    tasks = logs.config.tasks
    games = f"games of {tasks.games}" if tasks.games else "generated games"
    text = (
        f"Run {logs.name}: {logs.config.optimisation.prompts_per_step} single rollouts an update, {games}, "
        f"at most {tasks.max_steps} steps an episode."
    )
    if logs.summary:
        return text
    return (
        f"{text} The run has no summary yet: it goes on, or was stopped. This page shows what has been logged and "
        f"reloads itself every {REFRESH_SECONDS} seconds."
    )


def _tiles(logs: RunLogs) -> list[dict[str, str]]:
    """The headline figures."""
    updates = logs.config.optimisation.updates
    rewards = [float(r) for r in logs.metrics.numbers("success") if math.isfinite(r)]
    before, after = (rates.get("all") for rates in logs.held_out_rates())
    change = _change(logs)
    episodes = logs.steps_done * logs.config.optimisation.prompts_per_step
    return [
        _tile("updates", f"{logs.steps_done} of {updates}", f"{count(episodes)} training episodes"),
        _tile(
            "held-out before",
            percent(before.success) if before else "—",
            rate_interval(before) if before else "not yet",
        ),
        _tile(
            "held-out after",
            percent(after.success) if after else "—",
            rate_interval(after) if after else "not yet",
        ),
        _tile(
            "change, in points",
            points(change[0]) if change else "—",
            f"{points_interval(change)}, paired by game" if change else "not yet",
        ),
        _tile(
            "area under the curve",
            f"{area_under_curve(rewards):.3f}" if rewards else "—",
            "mean training success",
        ),
        _tile("time", *_time(logs)),
    ]


def _tile(label: str, value: str, detail: str) -> dict[str, str]:
    return {"label": label, "value": value, "detail": detail}


def _change(logs: RunLogs) -> Difference | None:
    """After minus before over the held-out games that both played."""
    if logs.before and logs.after:
        return _paired(logs.before, logs.after)
    return logs.summary.difference if logs.summary else None


def _paired(before: Evaluation, after: Evaluation, kind: str | None = None) -> Difference | None:
    """After minus before over the games of both, or those of one type; None without any."""
    tasks = [t for t in before.outcomes if t in after.outcomes and kind in (None, before.task_types.get(t))]
    if not tasks:
        return None
    return paired_difference([before.outcomes[t] for t in tasks], [after.outcomes[t] for t in tasks])


def _time(logs: RunLogs) -> tuple[str, str]:
    """(total or so far, what it is)."""
    if logs.summary:
        return duration(
            sum(logs.summary.seconds.values())
        ), f"training {duration(logs.summary.seconds.get('train', 0))}"
    spent = sum(
        np.nansum(logs.metrics.numbers(key)) for key in ("generate_s", "env_s", "update_s", "other_s")
    )
    return duration(spent), "of training so far"


def _rates(logs: RunLogs) -> list[dict[str, Any]]:
    """The table of held-out success: a row a task type."""
    before, after = logs.held_out_rates()
    rows = []
    for name in before or after:
        one, two = before.get(name), after.get(name)
        games = one or two
        change = None
        if logs.before and logs.after:
            change = _paired(logs.before, logs.after, None if name == "all" else name)
        elif logs.summary and name == "all":
            change = logs.summary.difference
        rows.append(
            {
                "name": name,
                "all": name == "all",
                "games": games.episodes if games else 0,
                "before": percent(one.success) if one else "—",
                "before_interval": rate_interval(one) if one else "",
                "after": percent(two.success) if two else "not yet",
                "after_interval": rate_interval(two) if two else "",
                "difference": points(change[0]) if change else "—",
                "difference_interval": points_interval(change) if change else "",
            }
        )
    return rows


def _spread(rows: list[dict[str, Any]]) -> tuple[list[tuple[int, dict[str, Any]]], int]:
    """(line, record) of a few records evenly over all of them with the first and the last, and how many are left out."""
    shown = min(_TRANSCRIPTS, len(rows))
    chosen = np.linspace(0, len(rows) - 1, shown).round().astype(int).tolist()
    return [(i + 1, rows[i]) for i in chosen], len(rows) - shown


def _transcript(row: dict[str, Any], table: Table, line: int) -> dict[str, Any]:
    """An episode as the template shows it."""
    try:
        turns = [
            {"observation": turn["observation"], "tokens": _tokens(turn["tokens"], turn["logprobs"])}
            for turn in row["turns"]
        ]
        advantage, outcome, value = (float(row[key]) for key in ("advantage", "outcome", "value"))
        strength = min(abs(advantage) / _STRONG_ADVANTAGE, 1.0) if math.isfinite(advantage) else 0.0
        rgb = "22, 163, 74" if advantage > 0 else "220, 38, 38"
        return {
            "step": row["step"],
            "task_type": row["task_type"],
            "task_id": row["task_id"],
            "outcome": {0.0: "lost", 1.0: "won"}.get(outcome, f"{outcome:.2f}"),
            "won": outcome >= 0.5,
            "value": f"{value:.2f}",
            "advantage": signed(advantage, 2),
            "tokens": sum(len(turn["tokens"]) for turn in turns),
            "shade": f"rgba({rgb}, {0.05 + 0.4 * strength:.3f})",
            "edge": f"rgba({rgb}, {0.15 + 0.5 * strength:.3f})",
            "turns": turns,
            "end": row.get("end", ""),
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{table.path}: line {line} is damaged: {error!r}") from error


def _tokens(tokens: list[str], logprobs: list[float]) -> list[tuple[str, str]]:
    """(token, tooltip); line ends and empty tokens are made visible."""
    return [
        (
            token.replace("\n", "⏎") or "∅",
            f"log-prob {logprob:.3f}, probability {math.exp(min(logprob, 0)):.3f}",
        )
        for token, logprob in zip(tokens, logprobs, strict=True)
    ]


def _flat(settings: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """(dotted name, value) of nested settings."""
    rows = []
    for name, value in settings.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((prefix + name, str(value)))
    return rows
