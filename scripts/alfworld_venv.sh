#!/usr/bin/env bash
# A virtual environment that plays ALFWorld in text, without what ALFWorld brings along but does not
# need for that (spaCy, through jericho, is the largest part).
#
#     scripts/alfworld_venv.sh FOLDER
#
# Needs a C++ compiler and make: fast_downward_textworld is compiled, for two to three minutes of
# processor time.
set -euo pipefail
folder=$(realpath -m "${1:?the folder of the virtual environment}")
cd "$(dirname "$0")/.."

python3 -m venv "$folder"
# The build of fast_downward_textworld calls "python".
export PATH="$folder/bin:$PATH"
constraints=scripts/constraints/alfworld.txt
python -m pip install --editable .
python -m pip install --constraint "$constraints" more-itertools networkx mementos tatsu
python -m pip install --constraint "$constraints" --no-deps \
    alfworld textworld jericho fast_downward_textworld
python - <<'END'
from ascribe.envs.alfworld import engine

engine.Engine()
print("ALFWorld can be played.")
END
