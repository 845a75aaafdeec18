"""What a process does not load that has no use for it: a plain controller or agent stays small, and starts fast."""

from __future__ import annotations

import subprocess
import sys

import pytest

SPECIAL = {
    "cryptography": "TLS",
    "kazoo": "a migration",
    "numpy": "the audit",
    "obstore": "a bucket",
    "opentelemetry": "tracing",
    "pyarrow": "the audit",
}


@pytest.mark.parametrize("module", ["pidkeeper.controller.server", "pidkeeper.broker_agent.server"])
def test_what_others_need_is_not_loaded(module: str) -> None:
    code = f"import sys, {module}\nprint(*sorted(set(sys.modules) & {set(SPECIAL)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.split()
    assert not loaded, f"only for {', '.join(SPECIAL[name] for name in loaded)}"
