"""`python -m tests.pods.run CASE`: run a release of the chart as processes, roll its StatefulSets under load, and tell.

CASE: one of those in `helm/pidkeeper/ci` that can be run here. Prints one JSON document: what `helm test` said, the
moves of the leader in each roll, how long pods took to end, and what callers of the agents were told. Ends with 1 where
a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import shutil
import ssl
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.chart.rendering import VALUES, Rendered, find_helm, render_file
from tests.pods.load import Claims, quorum
from tests.pods.namespaces import enter
from tests.pods.network import Network
from tests.pods.pod import PodError
from tests.pods.release import Release
from tests.support.certificates import CertificateAuthority

CASES: Final = ("default", "production")
"""Those that need nothing but what `Surroundings` has, found a quorum of three, and have agents to ask."""

MOST_MOVES: Final = 2
"""Of the leader, while each member is restarted once."""

GIVEN: Final = {
    "ids-peer": {"peer-key": "the key of the members of a test\n"},
    "ids-api": {"token": "the token of callers\n"},
    "ids-operators": {"token": "the token of operators\n"},
}


class Rolled(msgspec.Struct, frozen=True):
    """One roll of the controllers: the terms that it took, and the seconds that pods took to end."""

    moves: int
    ends: dict[str, float]


class Told(msgspec.Struct, frozen=True):
    """What came of a run."""

    test: str
    upgrade: str
    """What the hook of an upgrade said that keeps all members."""
    refused: str
    """What it said to one that leaves a single member of them."""
    rolls: list[Rolled]
    ids: int
    twice: int
    failed: list[str]

    @property
    def good(self) -> bool:
        """Whether all promises were kept."""
        settled = all(roll.moves <= MOST_MOVES for roll in self.rolls)
        return self.ids > 0 and self.twice == 0 and not self.failed and settled


class Surroundings:
    """What a release takes for given: Secrets, as somebody or cert-manager makes them, and a caller who may do all."""

    def __init__(self, rendered: Rendered, directory: Path) -> None:
        self._authority = CertificateAuthority(directory)
        self.secrets: dict[str, dict[str, str]] = {name: dict(entries) for name, entries in GIVEN.items()}
        for one in rendered.all():
            if one["kind"] == "Certificate":
                self._issue(one["spec"])
        config = tomllib.loads(rendered.one("ConfigMap", "pidkeeper-agent")["data"]["agent.toml"])
        self.context = self._context(rendered) if config.get("security") == "required" else None

    def _issue(self, spec: Mapping[str, Any]) -> None:
        files = self._authority.issue(spec["secretName"], uris=spec["uris"], hosts=spec.get("dnsNames", []))
        entries = {"tls.crt": files.certificate_file, "tls.key": files.key_file, "ca.crt": files.ca_file}
        self.secrets[spec["secretName"]] = {entry: Path(str(file)).read_text() for entry, file in entries.items()}

    def _context(self, rendered: Rendered) -> ssl.SSLContext:
        config = tomllib.loads(rendered.one("ConfigMap", "pidkeeper-controller")["data"]["controller.toml"])
        files = self._authority.issue("caller", uris=[f"pidkeeper://{config['cluster_id']}/operator/caller"])
        context = ssl.create_default_context(cafile=files.ca_file)
        context.check_hostname = False  # Pods are called by their addresses here.
        context.load_cert_chain(str(files.certificate_file), files.key_file)
        return context


def term(release: Release, context: ssl.SSLContext | None) -> int:
    """The term of the quorum, as far as any member knows it."""
    return max(int(quorum(pod.address, context)["term"]) for pod in release.named("controller"))


def refusal(release: Release, rendered: Rendered) -> str:
    """Why an upgrade that must not begin does not. Raises PodError if it would."""
    try:
        release.upgrade(rendered.all())
    except PodError as error:
        return str(error)
    raise PodError("an upgrade that leaves voters without pods was not refused")


def run(case: str, rolls: int, directory: Path) -> Told:
    """Install, test, and roll the controllers so many times under load."""
    helm = find_helm()
    assert helm is not None
    rendered = render_file(helm, VALUES[case])
    (directory / "ca").mkdir()
    around = Surroundings(rendered, directory / "ca")
    release = Release(rendered.all(), around.secrets, directory, Network())
    try:
        release.install()
        tested = release.test()
        refused = refusal(release, render_file(helm, VALUES[case], "--is-upgrade", "--set", "controller.replicas=1"))
        done = []
        with Claims([pod.address for pod in release.named("agent")], around.context) as claims:
            upgrade = release.upgrade(render_file(helm, VALUES[case], "--is-upgrade").all())
            for _ in range(rolls):
                before = term(release, around.context)
                ends = release.roll("pidkeeper-controller")
                done.append(Rolled(term(release, around.context) - before, ends))
        twice = sum(count - 1 for count in Counter(claims.ids).values())
        return Told(tested, upgrade, refused, done, len(claims.ids), twice, claims.failed)
    finally:
        release.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--rolls", type=int, default=1)
    parser.add_argument("--directory", type=Path, default=None)
    options = parser.parse_args()
    if (reason := enter()) is not None:
        print(f"no pods: {reason}", file=sys.stderr)
        return 2
    directory = options.directory or Path(tempfile.mkdtemp(prefix="pidkeeper-pods-"))
    directory.mkdir(parents=True, exist_ok=True)
    try:
        told = run(options.case, options.rolls, directory)
    except PodError as error:
        print(f"{error}\nWhat the nodes kept is in {directory}", file=sys.stderr)
        return 1
    print(json.dumps(msgspec.to_builtins(told), indent=2))
    if told.good and options.directory is None:
        shutil.rmtree(directory)
    return 0 if told.good else 1


if __name__ == "__main__":
    sys.exit(main())
