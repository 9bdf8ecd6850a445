#!/bin/sh
# Makes the virtual environment and installs the project into it. Called by make; see the variables there.
set -eu
python=${PYTHON:-python3} venv=${VENV:-.venv}
torch=${TORCH:-torch==2.13.0} index=${TORCH_INDEX-https://download.pytorch.org/whl/cpu}

# the packages of the Python that was asked for
case $(basename "$python") in
  python3.1[0-3]) name=$(basename "$python") ;;
  *) name=python3 ;;
esac
# an installed torch must have Muon, which came with 2.9
enough_torch='import torch; raise SystemExit(tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9))'

missing() {
  echo "make: $1. On Debian or Ubuntu:" >&2
  echo "  sudo apt-get install -y git gcc g++ make $name $name-venv $name-dev" >&2
  exit 1
}
for tool in git gcc g++ make "$python"; do
  command -v "$tool" >/dev/null 2>&1 || missing "$tool is missing"
done
# a command of that name may be there and start nothing, as pyenv's shims do
said=$("$python" --version 2>&1) || missing "$python does not run ($(echo "$said" | head -n 1))"
if ! "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'; then
  echo "make: $python is $said; Python 3.10 to 3.13 is needed. make PYTHON=python3.12 ... names another." >&2
  exit 1
fi
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing "the venv module of $python is missing"
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
  missing "the C headers of $python are missing"

if [ ! -x "$venv/bin/pip" ]; then
  # a PyTorch that the machine already has is used, not doubled
  if "$python" -c "$enough_torch" 2>/dev/null; then
    "$python" -m venv --system-site-packages "$venv"
  else
    "$python" -m venv "$venv"
  fi
fi
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

if ! "$venv/bin/python" -c "$enough_torch" 2>/dev/null; then
  if pip install -q --no-index --no-deps "$torch" 2>/dev/null; then
    echo "make: using the local file of $torch"
    pip install -q "$torch"
  elif nvidia-smi -L >/dev/null 2>&1 || [ -z "$index" ]; then
    pip install "$torch"
  elif "$venv/bin/python" -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1] + "/torch/", timeout=20)' "$index" 2>/dev/null; then
    pip install "$torch" --extra-index-url "$index"
  else
    echo "make: PyTorch's CPU build is not to be had: $index does not answer." >&2
    echo "  make TORCH_INDEX=URL ... names another index; make TORCH_INDEX= ... takes the default build (several GB)." >&2
    exit 1
  fi
fi
pip install -q -e ".[${EXTRAS:-train,dev}]"
"$venv/bin/python" -c 'import torch, spo_fast; print("make: spo_fast", spo_fast.__version__, "with torch", torch.__version__)'
