#!/usr/bin/env bash
# Checks and times the Triton programs on this machine's GPU: benchmarks/gpu_check.sh [FOLDER], within 8 minutes.
# Without a GPU it goes the same way on tiny sizes in Triton's interpreter, where its times mean nothing.
# FOLDER (build/gpu_check) receives results.json and, where matplotlib is installed, results.png.
# PYTHON names the interpreter: that of .venv, or python3, by default. Needs torch, triton and numpy alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
default=python3
if [ -x .venv/bin/python ]; then default=.venv/bin/python; fi
python=${PYTHON:-$default}
if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  export TRITON_INTERPRET=1
fi
exec "$python" -m benchmarks.gpu_check "${1:-build/gpu_check}"
