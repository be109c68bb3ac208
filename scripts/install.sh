#!/usr/bin/env bash
# Makes a virtual environment with trainwiz in it: scripts/install.sh VENV [EXTRA ...]; without an EXTRA, train
#
# Chooses the build of torch first, because plain `pip install torch` on Linux fetches gigabytes of
# CUDA libraries even where there is no GPU:
#   a working NVIDIA driver   -> the CUDA build
#   Linux without a driver    -> the CPU build, from pip's own find-links or PyTorch's CPU index
#   macOS                     -> the ordinary build (it has no CUDA in it, and knows Apple's GPU)
# TRAINWIZ_TORCH=cpu or TRAINWIZ_TORCH=cuda decides by hand.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${1:?usage: scripts/install.sh VENV [EXTRA ...]}
shift
[ $# -gt 0 ] || set -- train
python=${PYTHON:-python3}
cpu_index=https://download.pytorch.org/whl/cpu
version=$(sed -n 's/^torch==//p' "$root/constraints.txt")

say() { printf '\033[2m%s\033[0m\n' "$*" >&2; }
[ -t 2 ] || say() { printf '%s\n' "$*" >&2; }

"$python" - <<'PY' || { echo "trainwiz needs Python 3.11 or later; set PYTHON=/path/to/python3.11" >&2; exit 2; }
import sys
sys.exit(sys.version_info < (3, 11))
PY

build=${TRAINWIZ_TORCH:-}
if [ -z "$build" ]; then
  if [ "$(uname -s)" = Linux ] && ! { command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; }; then
    build=cpu
  else
    build=cuda
  fi
fi

[ -x "$venv/bin/python" ] || { say "Making the virtual environment $venv"; "$python" -m venv "$venv"; }
# Bytecode is made at the end, by all cores: pip itself makes it file by file, which takes a third of its time.
install=("$venv/bin/python" -m pip --disable-pip-version-check install -q --no-compile)

if ! "$venv/bin/python" -c "import importlib.metadata as m; m.version('torch')" 2>/dev/null; then
  if [ "$build" = cpu ] && [ "$(uname -s)" = Linux ]; then
    say "Installing the CPU build of torch $version (no NVIDIA driver here; TRAINWIZ_TORCH=cuda for the CUDA build)"
    "${install[@]}" "torch==$version+cpu" 2>/dev/null ||
      "${install[@]}" "torch==$version" --index-url "$cpu_index" || {
        echo "No CPU build of torch $version could be had. Check the network, or run again with TRAINWIZ_TORCH=cuda." >&2
        exit 3
      }
  else
    say "Installing torch $version"
    "${install[@]}" "torch==$version"
  fi
fi

extras=""
deepspeed=no
for extra in "$@"; do
  if [ "$extra" = deepspeed ]; then deepspeed=yes; else extras="$extras,$extra"; fi
done
target="$root"
[ -n "$extras" ] && target="$root[${extras#,}]"

compiling=""
if [ "$deepspeed" = yes ]; then
  # DeepSpeed builds its parts when they are first used; that takes a compiler, and a torch that is already there.
  if command -v g++ >/dev/null 2>&1; then
    say "Installing DeepSpeed, whose parts for CPUs are compiled meanwhile (one to four minutes, once)"
    "${install[@]}" setuptools wheel ninja py-cpuinfo
    DS_BUILD_OPS=0 "${install[@]}" -c "$root/constraints.txt" --no-build-isolation deepspeed
    # Else the first run compiles them, beside others that wait for it and run into their time limits.
    PATH="$("$venv/bin/python" -c 'import sys, os; print(os.path.dirname(sys.executable))'):$PATH" DS_ACCELERATOR=cpu \
      TORCH_EXTENSIONS_DIR="${TORCH_EXTENSIONS_DIR:-$root/.cache/torch_extensions}" "$venv/bin/python" - >/dev/null 2>&1 <<'PY' &
from deepspeed.accelerator import get_accelerator

for part in ("CPUAdamBuilder", "ShareMemCommBuilder"):
    get_accelerator().create_op_builder(part).load()
PY
    compiling=$!
  else
    say "No C++ compiler here: DeepSpeed is left out, and its tests will say so"
  fi
fi

say "Installing trainwiz and what it needs (about a minute)"
"${install[@]}" -c "$root/constraints.txt" -e "$target"
# Without it the first start would be slow, and every start where PYTHONDONTWRITEBYTECODE is set. Some packages carry files
# for other versions of Python, of which none can be made.
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$venv/bin/python" -m compileall -q -j0 "$packages" "$root/core" "$root/tui" "$root/profiles" >/dev/null 2>&1 || true
[ -z "$compiling" ] || wait "$compiling" || say "DeepSpeed's parts did not compile; the first run with DeepSpeed says why"
