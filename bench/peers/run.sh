#!/usr/bin/env bash
# Runs one peer experiment in a private virtual environment: bench/peers/run.sh raftos_repeat --runs 3
set -euo pipefail
cd "$(dirname "$0")/../.."

if [[ $# -eq 0 ]]; then
    echo "usage: bench/peers/run.sh raftos_repeat|pysyncobj_nosync [options]" >&2
    exit 2
fi

bench/peers/prepare.sh
module=$1
shift
exec ".tools/peers/bin/python" -m "bench.peers.$module" "$@"
