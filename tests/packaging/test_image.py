"""The image's environment, made by the very commands of the Dockerfile, in other places than it names."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.test_locks import locked, version

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
COMMAND_SECONDS = 300.0
MEASURED_MIB = 84.0
"""Of /opt/pidkeeper. deploy/README.md tells it."""


def build_stage() -> list[tuple[str, str]]:
    """The instructions of the first stage as (name, arguments)."""
    text = re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text()).replace("\\\n", " ")
    lines = [line.partition(" ") for line in text.splitlines() if line]
    starts = [number for number, (name, _, _) in enumerate(lines) if name == "FROM"]
    return [(name, rest) for name, _, rest in lines[starts[0] : starts[1]]]


def copy_sources(arguments: str, source: Path) -> None:
    """What COPY brings: files by name, or all that the build context has."""
    *names, target = arguments.split()
    if names == ["."]:
        ignored = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
        names, target = [line[1:] for line in ignored if line.startswith("!")], "."
    for name in names:
        place = source / (name if target == "." else target + Path(name).name)
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, place, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, place)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the image has in /opt/pidkeeper."""
    root = tmp_path_factory.mktemp("image")
    source = root / "src"
    source.mkdir()
    for name, arguments in build_stage():
        if name == "COPY":
            copy_sources(arguments, source)
        if name == "RUN":
            command = re.sub(r"(?<![\w.])/(opt|wheels)\b", lambda one: f"{root}/{one[1]}", arguments)
            command = re.sub(r"^python ", f"{sys.executable} ", command).replace("&& python ", f"&& {sys.executable} ")
            # The cache is this machine's: what it holds was checked by the same hashes.
            done = subprocess.run(
                ["sh", "-ec", command.replace(" --no-cache-dir", "")],
                cwd=source,
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return root / "opt" / "pidkeeper"


def distributions(environment: Path) -> dict[str, str]:
    (packages,) = environment.glob("lib/python3.*/site-packages")
    named = (path.name.removesuffix(".dist-info").split("-") for path in packages.glob("*.dist-info"))
    return {name.lower().replace("_", "-").replace(".", "-"): number for name, number in named}


def test_it_runs_and_has_what_is_locked_and_neither_pip_nor_what_builds(environment: Path) -> None:
    told = subprocess.run(
        [environment / "bin" / "pidkeeper", "--version"], capture_output=True, text=True, timeout=30, check=False
    )
    assert (told.returncode, told.stdout.split()[-1]) == (0, "0.1.0"), told.stderr
    wanted = {name: version(requirement) for name, requirement in locked("image.txt").items() if _is_for_us(name)}
    del wanted["setuptools"]
    assert distributions(environment) == {**wanted, "pidkeeper": "0.1.0"}
    assert not list(environment.glob("bin/pip*"))


@pytest.mark.parametrize("url", ["s3://bucket/prefix", "gs://bucket"])
def test_a_bucket_can_be_a_store(environment: Path, url: str) -> None:
    opened = f"from pidkeeper.broker_agent.data.store.opening import open_store; print(open_store({url!r}, {{}}))"
    command = [str(environment / "bin" / "python"), "-c", opened]
    told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert "RemoteStore" in told.stdout, told.stderr


def test_its_bill_of_materials_lists_what_it_has(environment: Path) -> None:
    bill = json.loads((environment / "sbom.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    listed = {one["name"].lower().replace("_", "-"): one["version"] for one in bill["components"]}
    assert listed == distributions(environment)


def test_it_adds_no_more_to_its_base_than_was_measured(environment: Path) -> None:
    found = [path.stat().st_size for path in environment.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(found) < MEASURED_MIB * 1.25 * 2**20, f"{sum(found) / 2**20:.1f} MiB"


def _is_for_us(name: str) -> bool:
    marker = locked("image.txt")[name].marker
    return marker is None or marker.evaluate()
