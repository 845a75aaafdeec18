"""Earlier builds, out of git's history and beside the present one; above all the build before foundings.

Of that one there are directories, too. They have no `founding.json`, its handshakes name no founding, and it knows
metadata versions up to 4.
"""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from pidkeeper.cli.local_cluster import LocalCluster, Member, member_name
from pidkeeper.protocol.metadata_version import MIGRATION
from tests.support.cluster import exit_code

COMMIT: Final = "c318e72cfca843eb2992aad4395b1b98f1feeb52^"
"""The parent of the commit that made the voters of a directory durable."""

METADATA_VERSION: Final = MIGRATION
"""The newest that the earlier build reads and writes."""

PACKAGES: Final = (
    "pidkeeper", "broker_agent", "cli", "controller", "pipeline", "protocol", "service", "snapshots",
)  # fmt: skip
REPOSITORY: Final = Path(__file__).resolve().parents[2]
GOLDEN: Final = REPOSITORY / "tests" / "golden" / "earlier-build.tar.xz"
"""What `tests/golden/make_earlier_build.py` writes."""
RUN_SECONDS: Final = 60.0
"""When git or a command of the earlier build is given up."""


class NoHistory(Exception):  # noqa: N818 - what is missing, which is what the reader of a summary is told
    """The earlier build cannot be had: this is no checkout, or one without that commit."""


class EarlierBuild:
    """An earlier build in `folder`, run by the interpreter of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def unpack(cls, folder: Path, commit: str = COMMIT, packages: tuple[str, ...] = PACKAGES) -> EarlierBuild:
        """Unpack it into `folder`, and make sure that it is what is imported there. Raises NoHistory."""
        unpack(commit, packages, folder)
        build = cls(folder)
        names = ", ".join(f"pidkeeper.{package}" for package in packages[1:])
        files = build._run("-c", f"import {names}; print(pidkeeper.controller.__file__, pidkeeper.cli.__file__)")
        assert files.split() == [f"{folder}/pidkeeper/{name}/__init__.py" for name in ("controller", "cli")], files
        return build

    def program(self) -> list[str]:
        """What comes before the arguments of its `pidkeeper` command."""
        return [*self._python(), "-m", "pidkeeper.cli"]

    def run(self, *arguments: str | Path) -> str:
        """Run its command line to a good end; what it printed."""
        return self._run("-m", "pidkeeper.cli", *map(str, arguments))

    def _python(self) -> list[str]:
        # PYTHONPATH comes before an installed pidkeeper; -P, for the folder of the present build comes before that.
        return ["env", f"PYTHONPATH={self.folder}", sys.executable, "-P"]

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._python(), *arguments], capture_output=True, text=True, timeout=RUN_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


class RolledCluster(LocalCluster):
    """A local cluster that an earlier build begins. `earlier`: names of the members that it still runs.

    Configuration files hold what both builds know.
    """

    def __init__(self, directory: Path, build: EarlierBuild, **options: Any) -> None:
        super().__init__(directory, **options)
        self.earlier = {member_name(member) for member in self.members()}
        self._build = build

    def program(self, member: Member) -> list[str]:
        """The command of the build that runs this member."""
        return self._build.program() if member_name(member) in self.earlier else super().program(member)

    def upgrade(self, member: Member) -> None:
        """Stop it, start the present build, and wait until it is ready."""
        self.leave(member)
        self.start_present(member)

    def start_present(self, member: Member) -> None:
        """Start it with the present build, and wait until it is ready."""
        self.earlier.discard(member_name(member))
        self.start(member)
        self.wait_ready(member)

    def leave(self, member: Member) -> None:
        """Stop it in order."""
        self.signal(member, signal.SIGTERM)
        assert exit_code(self, member) == 0, self.log_end(member)


class MixedCluster(RolledCluster):
    """One that is formatted and begun by the build before foundings."""

    def __init__(self, directory: Path, build: EarlierBuild, **options: Any) -> None:
        super().__init__(directory, build, by_kafka=False, **options)
        self.controller_options |= {"founding_hearing_ms": None}
        # It elects its first leader by itself.
        self.layout.to_found = None
        for one in self.layout.controllers:
            identity = ("--cluster-id", self.layout.cluster_id, "--node-id", str(one.id))
            build.run("storage", "format", "--dir", one.data_dir, *identity)


class Told(msgspec.Struct, frozen=True):
    """What the earlier build said of the golden directories. `lagging`: the member that led, and was killed then."""

    cluster_id: str
    next_producer_id: int
    metadata_version: int
    blocks: list[dict[str, Any]]
    transactions: list[dict[str, Any]]
    lagging: int


def golden_cluster(directory: Path, **options: Any) -> tuple[LocalCluster, Told]:
    """A cluster of the present build on copies of the golden directories; nobody runs yet."""
    cluster = LocalCluster(directory, **options)
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(directory / "data", filter="data")
    told = msgspec.json.decode((directory / "data" / "told.json").read_bytes(), type=Told)
    cluster.layout.cluster_id = told.cluster_id
    cluster.layout.to_found = None
    return cluster, told


def unpack(commit: str, paths: Iterable[str], folder: Path) -> None:
    """Put what lay at these paths in a commit into `folder`. Raises NoHistory."""
    with tarfile.open(fileobj=io.BytesIO(_archived(commit, paths))) as archive:
        archive.extractall(folder, filter="data")


def _archived(commit: str, paths: Iterable[str]) -> bytes:
    command = ["git", "-C", str(REPOSITORY), "archive", "--format=tar", commit, *paths]
    try:
        done = subprocess.run(command, capture_output=True, timeout=RUN_SECONDS, check=False)
    except FileNotFoundError as error:
        raise NoHistory("git is not installed, and the earlier build is in its history alone") from error
    if done.returncode != 0:
        told = done.stderr.decode(errors="replace").strip()
        raise NoHistory(f"git's history, where the earlier build is, cannot be had here: {told}")
    return done.stdout
