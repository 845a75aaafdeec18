"""`python -m tests.chart.goldens`: render what the golden files hold again, after a change that is intended."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.chart.rendering import VALUES, find_helm, render_file

GOLDEN: Final = Path(__file__).parent / "golden"
KEPT: Final = ("default", "migration", "production")
"""The values in `ci/` whose renders are kept as they are: who changes a template sees there what comes of it."""

WITHOUT_FILES: Final = ("--set", "metrics.rules.enabled=false", "--set", "metrics.dashboards.enabled=false")
"""What only copies a file is compared with that file."""

if __name__ == "__main__":
    helm = find_helm()
    assert helm is not None, "deploy/install-helm.sh builds helm with Go"
    for name in KEPT:
        rendered = render_file(helm, VALUES[name], *WITHOUT_FILES)
        assert rendered.returncode == 0, rendered.stderr
        (GOLDEN / f"{name}.yaml").write_text(rendered.text)
