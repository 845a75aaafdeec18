"""The locks: exact versions with hashes, no address of anything, and in step with pyproject.toml."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = ["runtime.txt", "image.txt", "demo.txt", "dev.txt"]
IMAGES = ["audit.txt", "sbom.txt"]
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def logical_lines(lock: str) -> list[str]:
    text = (ROOT / "requirements" / lock).read_text().replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def locked(lock: str) -> dict[str, Requirement]:
    requirements = [Requirement(HASH.sub("", line).strip()) for line in logical_lines(lock)]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def version(requirement: Requirement) -> str:
    (specifier,) = requirement.specifier
    assert specifier.operator == "=="
    return specifier.version


def declared(*extras: str) -> list[Requirement]:
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("lock", LOCKS + IMAGES)
def test_every_requirement_is_one_version_with_hashes(lock: str) -> None:
    lines = logical_lines(lock)
    assert len(lines) > 10
    for line in lines:
        hashes = HASH.findall(line)
        assert hashes, f"{line[:60]} has no hash"
        assert len(hashes) == len(set(hashes))
        assert line.count("--hash=") == len(hashes), f"a hash of {line[:60]} is not a SHA-256"
        requirement = Requirement(HASH.sub("", line).strip())
        assert requirement.url is None
        assert re.fullmatch(r"[0-9][0-9a-z.+!]*", version(requirement)), line[:60]
    assert len(locked(lock)) == len(lines), "a name is locked twice"


@pytest.mark.parametrize("lock", [*LOCKS, *IMAGES, "seaweedfs.txt"])
def test_no_address_is_in_a_lock(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    for word in ("://", "index-url", "find-links", "trusted-host", " @ ", "-e ", "file:", "git+"):
        assert word not in text


def test_so_it_is_with_what_npm_installs() -> None:
    text = (ROOT / "tools" / "azurite" / "package-lock.json").read_text()
    assert "://" not in text
    ours, *others = json.loads(text)["packages"].values()
    assert all(re.fullmatch(r"[0-9][0-9A-Za-z.-]*", one) for one in ours["dependencies"].values())
    assert len(others) > 100
    assert all(one["version"] and one["integrity"].startswith("sha512-") for one in others)


@pytest.mark.parametrize(
    ("lock", "extras"),
    [("runtime.txt", ()), ("image.txt", ("store",)), ("demo.txt", ("demo",)), ("dev.txt", ("demo", "dev"))],
)
def test_what_pyproject_asks_for_is_locked_within_its_bounds(lock: str, extras: tuple[str, ...]) -> None:
    found = locked(lock)
    for requirement in declared(*extras):
        name = canonicalize_name(requirement.name)
        assert name in found, f"{name} is not in {lock}: run `make lock`"
        assert requirement.specifier.contains(version(found[name])), f"{requirement} but {found[name]} in {lock}"


def test_what_builds_the_wheel_is_locked_too() -> None:
    for lock in LOCKS:
        assert "setuptools" in locked(lock)


def test_the_locks_agree_with_each_other() -> None:
    runtime, image, demo, dev = (locked(lock) for lock in LOCKS)
    for smaller, larger in ((runtime, image), (image, dev), (runtime, demo), (demo, dev)):
        assert set(smaller) <= set(larger)
        assert {name: version(one) for name, one in smaller.items()} == {
            name: version(larger[name]) for name in smaller
        }


def test_a_member_needs_no_test_tool_and_no_kafka_client() -> None:
    for lock in ("runtime.txt", "image.txt"):
        assert not set(locked(lock)) & {"pytest", "hypothesis", "aiokafka", "confluent-kafka", "kafka-python"}
