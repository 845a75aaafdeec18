#!/usr/bin/env bash
# Writes the locks again from pyproject.toml: versions and hashes only, no index address.
set -euo pipefail
cd "$(dirname "$0")/.."
lock() {
    local out=$1
    shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
        --no-annotate "$@" pyproject.toml requirements/build.in --output-file "requirements/$out"
}
lock runtime.txt
lock image.txt --extra store
uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate \
    requirements/sbom.in --output-file requirements/sbom.txt
uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate \
    requirements/seaweedfs.in --output-file requirements/seaweedfs.txt
lock demo.txt --extra demo
lock audit.txt --extra demo --extra audit
lock dev.txt --extra demo --extra audit --extra dev
