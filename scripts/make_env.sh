#!/usr/bin/env bash
# Make a virtual environment with Ascribe and an engine for the CPU from a list in
# scripts/constraints, and check it: TRL (2 GB), or verl with vLLM (5 GB).
#
#     scripts/make_env.sh .venv-trl trl
#     .venv-trl/bin/python -m pytest tests/engines -k trl
#
#     scripts/make_env.sh .venv-verl verl-cpu
#     .venv-verl/bin/python -m pytest tests/engines tests/models/test_vllm.py -k "verl or vllm"
#
# PYTHON names another interpreter than python3; it must be Python 3.11.
#
# With NVIDIA GPUs no list is needed, for the engines' own requirements can be met:
#
#     python3 -m venv .venv-verl
#     .venv-verl/bin/python -m pip install "verl[vllm]==0.9.1" TransferQueue==0.1.11 --editable ".[verl]"
set -euo pipefail

usage="usage: scripts/make_env.sh FOLDER trl|verl-cpu"
folder=${1:?$usage}
here=$(cd "$(dirname "$0")" && pwd)
list=$here/constraints/${2:?$usage}.txt
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    echo "$list is for Python 3.11; set PYTHON to one" >&2
    exit 1
}
"$python" -m venv --clear "$folder"
"$folder/bin/python" -m pip install --quiet --no-deps --requirement "$list"
"$folder/bin/python" -m pip install --quiet --no-deps --editable "$here/.."
"$folder/bin/python" "$here/check_env.py" "$list"
