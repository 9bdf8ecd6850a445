"""The kernels under AddressSanitizer and UndefinedBehaviorSanitizer, without Python in between."""

from __future__ import annotations

import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "array row row_kernel_avx2 row_kernel_portable segment_kernel_avx2 segment_kernel_portable cpu_path token_rows "
    "token_logprob tiles policy_loss policy_terms normalize_advantages threads"
).split()
FLAGS = ["-std=c++20", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-pthread"]
AVX2 = ["-mavx2", "-mfma", "-mf16c"] if platform.machine() in ("x86_64", "AMD64") else []


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_no_kernel_leaves_its_memory(tmp_path: Path) -> None:
    files = [ROOT / "csrc" / "src" / f"{name}.cpp" for name in SOURCES] + [
        ROOT / "tests" / "cpp" / "kernels.cpp"
    ]

    def compiled(source: Path) -> Path:
        target = tmp_path / f"{source.stem}.o"
        extra = AVX2 if source.stem.endswith("_avx2") else []
        include = ["-I", str(ROOT / "csrc" / "include")]
        done = subprocess.run(
            ["g++", *FLAGS, *extra, *include, "-c", str(source), "-o", str(target)],
            capture_output=True,
            text=True,
        )
        if "libasan" in done.stderr or "sanitize" in done.stderr:
            pytest.skip(f"no sanitisers here: {done.stderr.splitlines()[0]}")
        assert done.returncode == 0, done.stderr
        return target

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, files))
    program = tmp_path / "kernels"
    subprocess.run(["g++", *FLAGS, *map(str, objects), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
