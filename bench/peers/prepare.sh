#!/usr/bin/env bash
# Makes the private virtual environment of the peers in Python, in .tools/peers.
set -euo pipefail
cd "$(dirname "$0")/../.."

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
