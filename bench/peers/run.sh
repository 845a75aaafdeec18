#!/usr/bin/env bash
# Runs one peer experiment in a private virtual environment: bench/peers/run.sh raftos_repeat --runs 3
set -euo pipefail
cd "$(dirname "$0")/../.."

if [[ $# -eq 0 ]]; then
    echo "usage: bench/peers/run.sh raftos_repeat|pysyncobj_nosync [options]" >&2
    exit 2
fi

venv=.tools/peers
if [[ ! -e $venv/complete ]]; then
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv"
    install() {
        # No build isolation: otherwise pip fetches an unpinned setuptools to build the source archives.
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
            --use-pep517 --require-hashes --requirement "$1" >&2
    }
    install bench/peers/requirements-build.txt
    install bench/peers/requirements.txt
    touch "$venv/complete"
fi

module=$1
shift
exec "$venv/bin/python" -m "bench.peers.$module" "$@"
