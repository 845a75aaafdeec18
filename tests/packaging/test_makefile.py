"""The Makefile: make itself finds nothing to warn of, such as a target whose recipe is given twice and run once."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not here")
def test_make_warns_of_nothing() -> None:
    asked = subprocess.run(["make", "-n", *TARGETS], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert "warning" not in asked.stderr


def test_each_target_is_phony_and_each_setting_has_one_default() -> None:
    phony = re.findall(r"^\.PHONY:(.*)$", MAKEFILE, re.MULTILINE)
    assert len(phony) == 1 and sorted(phony[0].split()) == sorted(TARGETS)
    settings = re.findall(r"^([A-Z_]+) *[?:]?=", MAKEFILE, re.MULTILINE)
    assert len(settings) == len(set(settings))
