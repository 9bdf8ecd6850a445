"""What is installed, and who imports whom."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "spo_fast"


def source_files():
    """The package's files as the repository has them; kernels come in through the symlink."""
    files = set()
    for folder, prefix in ((PACKAGE, "spo_fast"), (ROOT / "kernels", "spo_fast/kernels")):
        for path in folder.rglob("*"):
            relative = path.relative_to(folder)
            if path.is_file() and "kernels" not in relative.parts[:1] and "__pycache__" not in relative.parts:
                files.add(f"{prefix}/{relative.as_posix()}")
    return files


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """The sdist, and the wheel built from it, as a packager makes them."""
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def test_wheel_has_the_same_modules(distributions):
    _, wheel = distributions
    names = {n for n in zipfile.ZipFile(wheel).namelist() if n.startswith("spo_fast/")}
    compiled = {n for n in names if n.endswith(".so")}
    assert names - compiled == source_files()
    assert len(compiled) == 1


def test_sdist_has_the_same_modules(distributions):
    sdist, _ = distributions
    with tarfile.open(sdist) as archive:
        names = {m.name.split("/", 1)[1] for m in archive.getmembers() if not m.isdir()}
    for name in source_files():
        inside = name.replace("spo_fast/kernels/", "kernels/") if "/kernels/" in name else f"python/{name}"
        assert inside in names, inside
    assert {"CMakeLists.txt", "pyproject.toml", "csrc/bindings/module.cpp"} <= names


def test_wheel_imports_with_numpy_alone(distributions, tmp_path):
    _, wheel = distributions
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", wheel], check=True, capture_output=True)
    code = (
        "import sys, spo_fast; t = spo_fast.PromptTracker(); t.register(['a'], [1], [2]);"
        "from spo_fast.envs.alfworld import AlfworldGame, generate_games;"
        "print(AlfworldGame(generate_games(1, 0)[0]).reset()[0][:8], 'torch' in sys.modules)"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "-= Welco False\n", done.stderr
    done = subprocess.run(
        [python, "-c", "from spo_fast import SPOLoss"], capture_output=True, text=True, cwd=tmp_path
    )
    assert "pip install 'spo_fast[train]'" in done.stderr.splitlines()[-1]


def test_editable_and_source_agree():
    import spo_fast

    installed = Path(spo_fast.__file__).resolve().parent
    assert installed == PACKAGE, "these tests judge the working tree; install it with pip install -e"


def test_kernels_has_no_init():
    """With one it would shadow the unrelated distribution of that name."""
    assert not (ROOT / "kernels" / "__init__.py").exists()
    assert (PACKAGE / "kernels").is_symlink()


def test_imports_go_downwards():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_stub_and_extension_agree():
    """What is there and under which name; of its types the extension tells nothing."""
    command = [sys.executable, "-m", "mypy.stubtest", "--concise", "spo_fast._core"]
    path = {**os.environ, "MYPYPATH": str(ROOT / "python")}
    done = subprocess.run(command, cwd=ROOT, env=path, capture_output=True, text=True)
    # pybind11's own: its metaclass, and the constructor of a class that has none
    own = (
        "metaclass differs",
        'GameState.__init__ is inconsistent, stub does not have *args parameter "args"',
    )
    lines = done.stdout.splitlines()
    faults = [line for line in lines if not line.endswith(own)]
    assert faults == [] and len(lines) > 5, done.stdout + done.stderr


def test_import_is_light():
    code = "import sys, spo_fast; print([m for m in ('torch', 'transformers', 'triton') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
