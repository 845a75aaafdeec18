#!/usr/bin/env bash
# Builds the pinned helm into .tools/bin with Go; Go checks the module against its checksum database.
set -euo pipefail
cd "$(dirname "$0")/.."

version=v3.22.0
# A release build of helm carries the Kubernetes version that it was made for; templates are rendered as if for that one.
kubernetes_minor=37

if ! command -v go >/dev/null; then
    echo "install-helm: Go is not on PATH; install Go, or put helm $version on PATH yourself" >&2
    exit 1
fi
chartutil=helm.sh/helm/v3/pkg/chartutil
GOBIN="$PWD/.tools/bin" go install \
    -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=$version -X $chartutil.k8sVersionMajor=1 -X $chartutil.k8sVersionMinor=$kubernetes_minor" \
    "helm.sh/helm/v3/cmd/helm@$version"
.tools/bin/helm version --short
