#!/usr/bin/env bash
# Start a model and a gateway on loopback, run a harness, and stop both: run.sh mini|team
# It writes gateway.jsonl and rewards.csv into the current folder.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export OMP_NUM_THREADS=1

python "$here/serve.py" 8911 > serve.log 2>&1 &
trap 'kill $(jobs -p)' EXIT
until curl --silent --fail --output /dev/null http://127.0.0.1:8911/health; do
    kill -0 $! || { cat serve.log; exit 1; }
    sleep 1
done
rllm-model-gateway --host 127.0.0.1 --port 8912 --worker http://127.0.0.1:8911/v1 \
    --store sqlite --db-path calls.db > gateway.log 2>&1 &
until curl --silent --fail --output /dev/null http://127.0.0.1:8912/health; do sleep 1; done

python "$here/$1.py" http://127.0.0.1:8912
