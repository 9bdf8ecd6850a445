"""What a run looks like: report.html for one run, and a page that compares several."""

from spo_fast.train.report.comparison import write_comparison
from spo_fast.train.report.run_report import write_report

__all__ = ["write_comparison", "write_report"]
