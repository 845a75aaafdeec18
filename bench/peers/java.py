"""What the peers in Java have in common."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from typing import Final

LEAST_JAVA: Final = 17
BANNER_SECONDS: Final = 30.0


@functools.cache
def why_no_java() -> str | None:
    """None if there is a Java that runs them, else what is missing."""
    missing = f"no Java {LEAST_JAVA}+ on PATH"
    if shutil.which("java") is None:
        return missing
    banner = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=BANNER_SECONDS, check=False)
    found = re.search(r'version "(\d+)', banner.stderr + banner.stdout)
    return None if found and int(found[1]) >= LEAST_JAVA else missing
