"""A secure cluster that somebody else runs: everybody who asks in a run gets IDs of it, by what its directory has."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

import pytest

from pidkeeper.cli.controllers import CERTIFICATES
from pidkeeper.cli.dev_user import CLIENT
from pidkeeper.cli.failures import CommandError
from tests.chaos.against import CLUSTER, FoundCluster
from tests.chaos.checker import check
from tests.chaos.ledgers import LedgerKeeper
from tests.chaos.load.actor import Actor
from tests.chaos.load.credentials import client_security
from tests.chaos.load.crew import DEFAULT_QUOTA, JAVA, at_work, crew
from tests.chaos.load.journal import Outcome, claims, entries
from tests.chaos.load.kafka_process import LIBRARIES, Spec, opener
from tests.chaos.load.kinds import FENCED, INIT, ZOMBIE
from tests.chaos.setting import found
from tests.chaos.stage import Stage
from tests.clients.java_witness import why_no_java
from tests.integration.test_dev import dev

# aiokafka waits for nobody when it hangs up: what it has left may be found only by a later test.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

PATIENCE_SECONDS: Final = 60.0

LIBRARIES_HERE: Final = frozenset(LIBRARIES) - (frozenset() if why_no_java() is None else {JAVA})
NO_JAVA: Final = frozenset() if why_no_java() is None else {f"{JAVA} client"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a small cluster of `pidkeeper dev --secure`."""
    directory = tmp_path_factory.mktemp("dev") / "cluster"
    with dev(directory, "--secure", "--controllers", "1", "--agents", "1") as run:
        yield directory
        assert run.stop() == 0


@pytest.fixture
def lacking(cluster: Path, tmp_path: Path) -> Callable[..., Path]:
    """Makes a copy of its directory that lacks some files, and gives the cluster.json there."""

    def copy(*files: str) -> Path:
        directory = tmp_path / "copy"
        shutil.copytree(cluster, directory, ignore=shutil.ignore_patterns("data", "logs"))
        for file in files:
            (directory / file).unlink()
        return directory / CLUSTER

    return copy


async def until_all(journal: Path, wanted: Collection[str]) -> None:
    """Wait until each of these has happened. Raises AssertionError that says which has not."""
    missing = set(wanted)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while missing := set(wanted) - happened(journal):  # noqa: ASYNC110 - it is on disk that it shows
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE_SECONDS:g} s: {missing}, but {happened(journal)}") from None


def happened(journal: Path) -> set[str]:
    """Who did what with which outcome, and whose single claims got IDs."""
    told = {f"{one.actor} {one.kind} {one.code or one.outcome.name}" for one in entries(journal)}
    return told | {f"{one.actor} claimed" for one in claims(journal) if len(one.ids)}


def everything() -> set[str]:
    """What shows that a witness of each kind is let in, and as whom."""
    return {
        "allocator allocate OK",
        "stale allocate STALE_BROKER_EPOCH",
        "malicious register OK",
        "malicious forbidden CLUSTER_AUTHORIZATION_FAILED",
        "operator raise-floor OK",
        "wire-1 claimed",
        "http-1 claimed",
        *(f"{library} {INIT} {Outcome.OK.name}" for library in LIBRARIES_HERE),
        *(f"{library} {ZOMBIE} {FENCED}" for library in LIBRARIES_HERE),
    }


async def test_everybody_gets_ids_of_a_secure_cluster(cluster: Path, tmp_path: Path) -> None:
    certificates = files_in(cluster)
    async with found(cluster / CLUSTER) as stage:
        everybody, missing = crew(stage, tmp_path, 1, DEFAULT_QUOTA)
        assert missing.keys() == NO_JAVA
        assert stage.operator is not None
        async with at_work(everybody):
            await stage.operator.raise_floor()
            await until_all(tmp_path, everything())
        await asyncio.to_thread(LedgerKeeper(stage.cluster, tmp_path).finish)
    verdict = check(tmp_path)
    assert verdict.violations == []
    assert (verdict.duplicates, verdict.lost, verdict.fatal_client_errors) == (0, 0, 0)
    assert min(verdict.ids_checked, verdict.blocks_checked, verdict.stale_refused, verdict.zombies_fenced) > 0
    assert files_in(cluster) == certificates, "a run writes nothing into the directory of somebody else's cluster"


def files_in(cluster: Path) -> dict[Path, bytes]:
    """What is where in its directory, but for what its members write."""
    configured = [*cluster.glob("*.*"), *cluster.glob("config/*"), *cluster.glob(f"{CERTIFICATES}/*")]
    return {path: path.read_bytes() for path in configured}


async def test_who_lacks_something_is_named_and_the_others_work(lacking: Callable[..., Path], tmp_path: Path) -> None:
    stage = Stage(FoundCluster(lacking(CLIENT, f"{CERTIFICATES}/ca.key")))
    everybody, missing = crew(stage, tmp_path, 1, DEFAULT_QUOTA)
    assert "malicious" not in {one.name for one in everybody}
    assert missing.keys() - NO_JAVA == {"malicious broker", "logins of Kafka clients"}
    assert "ca.key cannot be read" in missing["malicious broker"]
    assert f"{CLIENT} has no user" in missing["logins of Kafka clients"]
    async with at_work([one for one in everybody if isinstance(one, Actor)]):
        await until_all(tmp_path, {"allocator allocate OK", "wire-1 claimed", "http-1 claimed"})


@pytest.mark.parametrize("library", sorted(LIBRARIES_HERE))
async def test_clients_without_a_user_show_a_certificate(lacking: Callable[..., Path], library: str) -> None:
    cluster = FoundCluster(lacking(CLIENT))
    security = client_security(cluster)
    assert security is not None
    assert security.login is None
    spec = Spec(library, "", library, cluster.layout.agents[0].kafka, [], security)
    async with opener(spec) as opened:
        witness = opened(spec.bootstrap, f"certified-{library}")
        assert (await witness.init()).producer_id >= 0
        await witness.close()


@pytest.mark.parametrize("file", ["ca.pem", "operator.pem", "producer.key"])
def test_without_the_certificates_that_a_run_shows_there_is_none(lacking: Callable[..., Path], file: str) -> None:
    path = lacking(f"{CERTIFICATES}/{file}")
    with pytest.raises(CommandError, match=r"lacks one of ca\.pem, .* `pidkeeper dev --secure`"):
        FoundCluster(path)
    assert not (path.parent / CERTIFICATES / file).exists()


def test_a_certificate_of_no_use_is_told_before_the_run(lacking: Callable[..., Path]) -> None:
    path = lacking()
    certificate = path.parent / CERTIFICATES / "producer.pem"
    certificate.write_text("")
    with pytest.raises(CommandError, match=r"of the producer .* of no use: certificate_file: .* holds no certificate"):
        FoundCluster(path)


def test_a_password_that_is_not_in_force_is_told_before_the_run(
    lacking: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    # The log of aiokafka would keep its sockets.
    caplog.set_level(logging.CRITICAL, "aiokafka")
    path = lacking()
    client = path.parent / CLIENT
    client.write_text(re.sub('password="[^"]+"', 'password="another"', client.read_text()))

    async def look() -> str:
        try:
            async with found(path):
                return "let in"
        except CommandError as error:
            return str(error)

    told = asyncio.run(look())
    gc.collect()
    assert re.search(rf"lets no Kafka client in with {client}: .*; its log says why", told), told
