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
if command -v npm >/dev/null; then
    (cd tools/azurite && npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved \
        --no-audit --no-fund --loglevel=error)
    # Who takes money for a package, and where its license is, are addresses.
    node -e '
        const fs = require("fs"), path = "tools/azurite/package-lock.json", lock = JSON.parse(fs.readFileSync(path));
        for (const one of Object.values(lock.packages)) { delete one.funding; delete one.license; }
        fs.writeFileSync(path, JSON.stringify(lock, null, 2) + "\n");'
fi
