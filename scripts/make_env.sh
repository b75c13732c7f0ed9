#!/usr/bin/env bash
# Make a virtual environment with Ascribe and the packages of a lock in scripts/locks, and audit it.
#
#     scripts/make_env.sh .venv dev              development: lint, types, tests, docs (2 GB)
#     scripts/make_env.sh .venv-trl trl          TRL (2 GB)
#     .venv-trl/bin/python -m pytest tests/engines lab/tests/train -k trl
#     scripts/make_env.sh .venv-verl verl-cpu    verl with vLLM (5 GB)
#     .venv-verl/bin/python -m pytest tests/engines lab/tests/train lab/tests/models/test_vllm.py -k "verl or vllm"
#     scripts/make_env.sh .venv-alfworld alfworld
#     scripts/make_env.sh .venv-adapters adapters
#     scripts/make_env.sh .venv-formats formats
#     scripts/make_env.sh .venv-trainers trainers    Tinker cookbook, Trinity-RFT, SkyRL, AReaL
#
# The locks are for Linux on x86-64 and Python 3.11; PYTHON names another interpreter than python3.
# A file whose SHA-256 is not the locked one is refused, and nothing else is fetched: packages that
# come as source (ALFWorld's planner takes a C++ compiler and two to three minutes) are built with
# the locked tools. uv installs, in a fraction of pip's time and with one copy of a file for all
# environments; pip installs what uv does not find at the index and links that pip is set up for.
# dev, trl and verl-cpu need PyTorch's build for the CPU: if the index that pip is set up for has
# none, set PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS to a place that has it.
#
# With NVIDIA GPUs no lock is needed, for the engines' own requirements can be met:
#
#     python3 -m venv .venv-verl
#     .venv-verl/bin/python -m pip install "verl[vllm]==0.9.1" TransferQueue==0.1.11 --editable . --editable "./lab[verl]"
set -euo pipefail

usage="usage: scripts/make_env.sh FOLDER dev|trl|verl-cpu|alfworld|adapters|formats|trainers"
folder=$(realpath -m "${1:?$usage}")
here=$(cd "$(dirname "$0")" && pwd)
lock=$here/locks/${2:?$usage}.txt
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    echo "$lock is for Python 3.11; set PYTHON to one" >&2
    exit 1
}
"$python" -m venv --clear "$folder"
export PATH="$folder/bin:$PATH" # some builds call "python"

options="--quiet --no-deps --no-build-isolation"
install() {
    python -m pip install $options "$@"
}
setting() { # what pip is set up with, by its variable or its files
    local variable=PIP_${1^^}
    echo "${!variable:-$(env -u PIP_QUIET python -m pip config get "global.${1//_/-}" 2> /dev/null)}"
}

# First the tools that install and build the others.
install --require-hashes --requirement <(grep -E '^(pip|uv|setuptools|wheel)==' "$lock")
index=$(setting index_url) links=$(setting find_links)
UV_FIND_LINKS=${links// /,} uv pip install $options --require-hashes --python "$folder/bin/python" \
    ${index:+--default-index "$index"} --requirement "$lock" || echo "the rest is left to pip"
# Torch before the others, because it is the one that may be missing.
install --require-hashes --requirement <(grep -E '^(pip|torch)==' "$lock")
install --require-hashes --requirement "$lock"
install --editable "$here/.." --editable "$here/../lab"
python "$here/packages.py" audit "$lock"
