"""The newest results in a CSV as the tables of the README: ``python -m benchmarks.table results.csv``."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import OURS

Case = tuple[str, str, str, str]
"""Task, vocabulary, dtype, mask share, as the CSV has them."""


def newest(path: Path) -> dict[Case, dict[str, dict[str, str]]]:
    """Rows by case and contender, of the last row's commit and machine; of a case measured several times the last."""
    result: dict[Case, dict[str, dict[str, str]]] = {}
    with path.open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    for row in table:
        if all(row[name] == table[-1][name] for name in ("git", "machine", "threads")):
            case = (row["task"], row["vocabulary"], row["dtype"], row["mask_share"])
            result.setdefault(case, {})[row["contender"]] = row
    return {case: rows for case, rows in result.items() if OURS in rows}


def ratios(cases: dict[Case, dict[str, dict[str, str]]]) -> Iterator[str]:
    """A line a case: how many times as long each peer takes."""
    peers = sorted({peer for rows in cases.values() for peer in rows} - {OURS})
    yield "| task | V | dtype | mask | ms | " + " | ".join(peers) + " | of read bandwidth | extra MiB |"
    yield "|---" * (len(peers) + 7) + "|"
    for (task, vocabulary, dtype, share), rows in cases.items():
        ours = rows[OURS]
        times = [f"{float(rows[peer]['times_ours']):.1f}x" if peer in rows else "" for peer in peers]
        bandwidth = ours["share_of_bandwidth"] and f"{float(ours['share_of_bandwidth']):.0%}"
        figures = [task, vocabulary, dtype, share, f"{float(ours['median_ms']):.2f}", *times, bandwidth]
        yield "| " + " | ".join([*figures, ours["extra_mib"]]) + " |"


def mask_shares(cases: dict[Case, dict[str, dict[str, str]]]) -> Iterator[str]:
    """A line a task that was timed with fewer rows: its time as a share of that for all rows."""
    yield "| task | V | dtype | mask | time, of that with mask 1.0 |"
    yield "|---|---|---|---|---|"
    for (task, vocabulary, dtype, share), rows in cases.items():
        whole = cases.get((task, vocabulary, dtype, "1.0"))
        if share in ("", "1.0") or whole is None:
            continue
        part = float(rows[OURS]["median_ms"]) / float(whole[OURS]["median_ms"])
        yield f"| {task} | {vocabulary} | {dtype} | {share} | {part:.2f} |"


def main(path: Path) -> None:
    cases = newest(path)
    last = next(reversed(cases.values()))[OURS]
    print(f"{last['machine']}, {last['threads']} threads, torch {last['torch']}, commit {last['git']}\n")
    print("\n".join(ratios(cases)) + "\n")
    print("\n".join(mask_shares(cases)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
