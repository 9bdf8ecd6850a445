"""Options of the benchmarks."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sweep", action="store_true", help="every vocabulary and mask share, not only the typical ones"
    )
    parser.addoption("--csv", default=None, help="append the results to this file")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    sweep = metafunc.config.getoption("--sweep")
    choices = {
        "vocabulary": [32000, 151936, 248320] if sweep else [151936],
        "share": [1.0, 0.5, 0.25] if sweep else [1.0, 0.25],
        "dtype": ["float32", "bfloat16"],
    }
    for name, values in choices.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, values)
