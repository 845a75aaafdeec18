"""`python -m tests.pods.upgraded`: a release of an earlier chart and build becomes one of this, under load.

The earlier one is of the commit before the metadata version that is in force now. Prints one JSON document, and ends
with 1 where a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from pidkeeper.protocol.metadata_version import LATEST
from tests.chart.rendering import VALUES, find_helm, render_file, template
from tests.pods.load import Claims, quorum
from tests.pods.namespaces import enter
from tests.pods.network import Network
from tests.pods.pod import PodError
from tests.pods.release import Release
from tests.pods.run import GIVEN, term
from tests.support.cluster import wait_until
from tests.support.earlier_build import PACKAGES, NoHistory, unpack

COMMIT: Final = "401fa5f8b49e9d35e100fe3c2b74d9e0ef5fa80e"
"""The parent of the commit that raised the metadata version to 9."""

CHART: Final = "helm/pidkeeper"
BEFORE: Final = "before"
"""The tag of its image."""

STATEFUL_SETS: Final = ("pidkeeper-controller", "pidkeeper-agent")


class Told(msgspec.Struct, frozen=True):
    """What came of it. `versions`: metadata versions in force before and after; `moves`: terms that the roll took."""

    hook: str
    versions: tuple[int, int]
    releases: list[str | None]
    moves: int
    ids: int
    twice: int
    failed: list[str]

    @property
    def good(self) -> bool:
        """Whether all promises were kept."""
        return self.ids > 0 and self.twice == 0 and not self.failed and self.versions[0] < self.versions[1] == LATEST


def run(directory: Path) -> Told:
    """Install the earlier release, upgrade it, roll the controllers under load, and then the agents."""
    helm = find_helm()
    assert helm is not None
    earlier = directory / "earlier"
    unpack(COMMIT, [*PACKAGES, CHART], earlier)
    values = VALUES["default"]
    begun = template(helm, "--values", str(values), "--set", f"image.tag={BEFORE}", chart=earlier / CHART)
    release = Release(begun.all(), GIVEN, directory, Network(), {f"pidkeeper:{BEFORE}": earlier})
    try:
        release.install()
        agents = [pod.address for pod in release.named("agent")]
        first = _version(release)
        with Claims(agents, None) as claims:
            hook = release.upgrade(render_file(helm, values, "--is-upgrade").all())
            before = term(release, None)
            release.roll(STATEFUL_SETS[0])
            moves = term(release, None) - before
        release.roll(STATEFUL_SETS[1])
        with Claims([pod.address for pod in release.named("agent")], None) as later:
            release.test()
        wait_until(lambda: _version(release) == LATEST, "the newest metadata version: all agents know it")
        described = quorum(release.named("controller")[0].address)
        ids, failed = [*claims.ids, *later.ids], [*claims.failed, *later.failed]
        return Told(
            hook,
            (first, _version(release)),
            [voter["release"] for voter in described["voters"]],
            moves,
            len(ids),
            sum(count - 1 for count in Counter(ids).values()),
            failed,
        )
    finally:
        release.stop()


def _version(release: Release) -> int:
    return int(quorum(release.named("controller")[0].address)["metadata_version"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?")
    options = parser.parse_args()
    if (reason := enter()) is not None:
        print(f"no pods: {reason}", file=sys.stderr)
        return 2
    directory = options.directory or Path(tempfile.mkdtemp(prefix="pidkeeper-upgraded-"))
    try:
        told = run(directory)
    except NoHistory as error:
        print(f"no earlier build: {error}", file=sys.stderr)
        return 2
    except PodError as error:
        print(f"{error}\nWhat the nodes kept is in {directory}", file=sys.stderr)
        return 1
    print(json.dumps(msgspec.to_builtins(told), indent=2))
    return 0 if told.good else 1


if __name__ == "__main__":
    sys.exit(main())
