#!/usr/bin/env bash
# What CI leaves out because it takes hours: tests marked nightly, every one in the environment that
# it needs, 500 examples of each property test, and the library's tests without the laboratory.
#
#     ASCRIBE_COVERAGE=1 .ci/run && scripts/nightly.sh
#
# It uses the environments that .ci/run has made; the variable has that measure coverage, too.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/${ASCRIBE_CI_FOLDER:-.venv-ci}
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 HF_HUB_OFFLINE=1
failed=

run() { # NAME of the environment, then arguments of pytest; goes on after a failure
    echo "== $*"
    "$folder/$1/bin/python" -m pytest --durations=15 "${@:2}" || failed+=" $1"
}

run full -m nightly
run trl -m nightly -k trl tests/engines lab/tests
run verl -m nightly -k "verl or vllm or released" tests/engines lab/tests
run alfworld -m nightly -k alfworld lab/tests
command -v bwrap > /dev/null || { apt-get -qq update && apt-get -qq install --yes bubblewrap; }
run formats -m nightly lab/tests/docs/test_harness.py
run trainers -m nightly tests/engines/test_adapter_areal.py
echo "== other releases of the engines"
"$folder/full/bin/python" scripts/releases.py "$folder" || failed+=" releases"
HYPOTHESIS_PROFILE=nightly run full -m "not nightly" tests lab/tests
scripts/make_env.sh "$folder/library" dev && "$folder/library/bin/python" -m pip uninstall --yes ascribe-lab
run library -m "not nightly" tests

echo "== the papers' files, each installed as its page says"
"$folder/full/bin/python" scripts/paper_installs.py "$folder/papers" || failed+=" papers"

echo "failed:${failed:- nothing}"
[ -z "$failed" ]
